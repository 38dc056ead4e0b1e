"""What the server makes of messages between clients, of which it learns the time alone."""

from typing import Any

import pytest

from vflsim.protocols.fedvs.messages import ModelShare, Sharers
from vflsim.remote.control import ControlError, Passing
from vflsim.remote.frames import kinds_of
from vflsim.remote.transport import stand_in


def stands_for(passing: Passing, clients: frozenset[int] = frozenset({1, 2, 3})) -> Any:
    return stand_in(passing, 1, kinds_of(()), clients)


def passing(to: int = 2, message: str = "model_share") -> Passing:
    return Passing(to=to, message=message, round=4, size=600, at=0.5)


def test_a_message_without_content_stands_for_one_between_clients() -> None:
    made = stands_for(passing())
    assert isinstance(made, ModelShare)
    assert (made.sender, made.receiver, made.round, made.carried) == (1, 2, 4, {})
    assert isinstance(stands_for(passing(message="sharers")), Sharers), "also with fields of its own"


@pytest.mark.parametrize(
    ("wrong", "clients"),
    [
        (passing(to=1), frozenset({1, 2, 3})),
        (passing(to=0), frozenset({1, 2, 3})),
        (passing(to=4), frozenset({1, 2, 3})),
        (passing(message="unheard"), frozenset({1, 2, 3})),
        (passing(), frozenset()),
    ],
    ids=["to itself", "to the server", "to a stranger", "of an unknown kind", "in a run without connections"],
)
def test_a_message_that_cannot_be_between_clients_is_refused(wrong: Passing, clients: frozenset[int]) -> None:
    with pytest.raises(ControlError):
        stands_for(wrong, clients)
