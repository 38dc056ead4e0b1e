"""A class of one's own that is named by its kind alone: the message says how to name it."""

import sys
from typing import Any

import own_delays
import pytest
from int8_codec import Int8
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.protocols.synchronous import Synchronous
from vflsim.scenario import load


class Turns(Synchronous):
    kind: str = "turns"  # type: ignore[assignment]


@pytest.mark.parametrize("module", [__name__, "__main__"])
@pytest.mark.parametrize("kind", ["turns", "Turns"])
def test_a_protocol_named_by_its_kind_gets_its_path(kind: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turns, "__module__", module)
    monkeypatch.setattr(sys.modules[module], "Turns", Turns, raising=False)
    assert f'`{{kind: module, path: "{module}:Turns"}}`' in refusal(raw({"it": {"kind": kind}}))
    assert load(raw({"it": {"kind": "module", "path": f"{module}:Turns"}})).protocols["it"].protocol.kind == "turns"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"timing": {"clients": {"compute": {"kind": "lomax", "shape": 3}}}}, f"{own_delays.__name__}:Lomax"),
        ({"codec": {"kind": "int8"}}, f"{Int8.__module__}:Int8"),
        ({"codec": "int8"}, f"{Int8.__module__}:Int8"),
    ],
    ids=["delay", "codec", "codec by one word"],
)
def test_so_do_other_parts(changes: dict[str, Any], path: str) -> None:
    assert f'`{{kind: module, path: "{path}"}}`' in refusal(raw(**changes))


def test_an_unknown_kind_gets_no_such_hint() -> None:
    assert "kind: module" not in refusal(raw({"it": {"kind": "tturns"}}))


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(document)
    return str(caught.value)
