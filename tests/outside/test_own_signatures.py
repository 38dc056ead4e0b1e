"""Methods of a protocol from outside that do not take what they are called with, or answer something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from ruamel.yaml import YAML
from tiny_worlds import raw, tiny

from vflsim.protocols.synchronous import Synchronous

HEAD = """\
from typing import Literal

from vflsim.protocol import Synchronous


class Own(Synchronous):
    kind: Literal["own"] = "own"
"""
WRONG: dict[str, tuple[str, str, str]] = {
    "describe without a setting": ("def describe(self): return 'it'", "takes (self)", "def describe(self, setting)"),
    "describe with more": (
        "def describe(self, setting, more): return 'it'", "takes (self, setting, more)", "def describe(self, setting)"
    ),
    "describe is a coroutine": (
        "async def describe(self, setting): return 'it'", "describe is a coroutine", "def describe(self, setting)"
    ),
    "describe is a field": ("describe: str = 'it'", "Own.describe is no method", "def describe(self, setting)"),
    "describe is a property": (
        "@property\n    def describe(self): return 'it'", "Own.describe is no method", "def describe(self, setting)"
    ),
    "rare contents without rows": (
        "def rare_contents(self, setting, sender, receiver): return {}", "takes (self, setting, sender, receiver)",
        "def rare_contents(self, setting, sender, receiver, rows)",
    ),
    "closed_forms without a setting": (
        "def closed_forms(self): return ()", "takes (self)", "def closed_forms(self, setting)"
    ),
    "recurrence": (
        "def recurrence(self, world): return None",
        "Own.recurrence is never used: Own does not derive from Vectorisable", "class Own(Vectorisable, …)",
    ),
    "participants": (
        "def participants(self, clients): return [1]", "takes (self, clients)",
        "def participants(self, clients, symbols)",
    ),
    "without": ("def without(self): return [1]", "takes (self)", "def without(self, clients)"),
    "check": ("def check(self): pass", "takes (self)", "def check(self, context)"),
    "client": ("async def client(self, node, more): pass", "takes (self, node, more)", "async def client(self, node)"),
    "server": ("async def server(self): pass", "takes (self)", "async def server(self, node)"),
}  # fmt: skip
ANSWERS: dict[str, tuple[str, str, str]] = {
    "describe returns nothing": (
        "def describe(self, setting): pass", "Own.describe(setting) returned a value of type NoneType", "a text"
    ),
    "closed_forms returns a number": (
        "def closed_forms(self, setting): return 0.3", "Own.closed_forms(setting) returned a value of type float",
        "a tuple of ClosedForm and NoClosedForm",
    ),
    "closed_forms returns numbers": (
        "def closed_forms(self, setting): return (0.3,)", "Own.closed_forms(setting) returned a value of type float",
        "a tuple of ClosedForm and NoClosedForm",
    ),
}  # fmt: skip
SOUND = [
    "def describe(this, a): return 'it'",
    "def describe(self, *_): return 'it'",
    "@classmethod\n    def describe(cls, setting): return 'it'",
    "@staticmethod\n    def describe(setting): return 'it'",
    "def rare_contents(self, setting, sender, receiver, rows, more=1): return {}",
    "def closed_forms(self, setting): raise KeyError('later')",
]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]) -> Callable[..., Ended]:
    """``vflsim check`` of a scenario whose protocol has a method of its own."""
    monkeypatch.chdir(tmp_path)

    def checked(method: str, *options: str) -> Ended:
        name = f"own_{abs(hash(method))}"
        Path(f"{name}.py").write_text(f"{HEAD}\n    {method}\n")
        with Path("own.yaml").open("w") as file:
            YAML().dump(raw({"it": {"kind": "module", "path": f"{name}:Own"}}, stop={"rounds": 2}), file)
        return vflsim("check", "own.yaml", *options)

    return checked


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.filterwarnings("ignore:Field name")
def test_methods_that_cannot_be_called_are_refused_when_the_scenario_is_read(
    case: str, check: Callable[..., Ended]
) -> None:
    method, what, allowed = WRONG[case]
    ended = check(method, "--quick")
    assert ended.status == 2
    assert what in ended.err
    assert f"allowed: {allowed}" in ended.err
    assert "own.yaml:" in ended.err
    assert "protocols.it" in ended.err
    assert "change its definition in" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_of_another_type_are_refused_before_a_run(case: str, check: Callable[..., Ended]) -> None:
    method, what, allowed = ANSWERS[case]
    ended = check(method)
    assert ended.status == 2
    assert what in ended.err
    assert f"allowed: {allowed}" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", SOUND)
def test_other_names_and_further_defaults_are_fine(method: str, check: Callable[..., Ended]) -> None:
    ended = check(method)
    assert ended.status == 0, ended.err


def test_a_protocol_of_the_caller_is_refused_when_it_is_added() -> None:
    class Own(Synchronous):
        def check(self) -> None:  # type: ignore[override]
            """Check nothing."""

    with pytest.raises(ValueError, match=r"Own\.check takes \(self\); allowed: def check\(self, context\)"):
        tiny("synchronous").with_protocols({"it": Own()})
