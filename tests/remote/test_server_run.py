"""What the server makes of messages between clients, of which it learns the time alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from vflsim.protocols.fedvs.messages import ModelShare, Sharers
from vflsim.remote.control import ControlError, Passing
from vflsim.remote.frames import kinds_of
from vflsim.remote.server_run import ServerRun


def stands_for(passing: Passing, public: object = ()) -> Any:
    run: Any = SimpleNamespace(
        _made=SimpleNamespace(reader=SimpleNamespace(kinds=kinds_of(()))),
        _resolved=SimpleNamespace(public=public),
        _clients={1: None, 2: None, 3: None},
    )
    return ServerRun._stands_for(run, 1, passing)


def passing(to: int = 2, message: str = "model_share") -> Passing:
    return Passing(to=to, message=message, round=4, size=600, at=0.5)


def test_a_message_without_content_stands_for_one_between_clients() -> None:
    made = stands_for(passing())
    assert isinstance(made, ModelShare)
    assert (made.sender, made.receiver, made.round, made.carried) == (1, 2, 4, {})
    assert isinstance(stands_for(passing(message="sharers")), Sharers), "also with fields of its own"


@pytest.mark.parametrize(
    ("wrong", "public"),
    [
        (passing(to=1), ()),
        (passing(to=0), ()),
        (passing(to=4), ()),
        (passing(message="unheard"), ()),
        (passing(), None),
    ],
    ids=["to itself", "to the server", "to a stranger", "of an unknown kind", "in a run without connections"],
)
def test_a_message_that_cannot_be_between_clients_is_refused(wrong: Passing, public: object) -> None:
    with pytest.raises(ControlError):
        stands_for(wrong, public)
