"""The options of execution are the same in Python, on the command line and in the documentation."""

from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer.main
from tiny_worlds import raw

import vflsim
from vflsim.cli.app import app
from vflsim.studies.runs import options as module
from vflsim.studies.runs.options import RunOptions
from vflsim.vocabulary.execution_options import DEFAULTS, ExecutionOptions

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FUNCTIONS = {"run": vflsim.run, "sweep": vflsim.sweep, "tune": vflsim.tune}


def said(command: str) -> dict[str, Any]:
    return {each.name: each.default for each in COMMANDS[command].params}


@pytest.mark.parametrize("command", FUNCTIONS)
def test_commands_and_functions_take_every_option_with_one_default(command: str) -> None:
    own = said(command)
    assert {name: own[name] for name in DEFAULTS} == dict(DEFAULTS)
    assert [name for name in own if name in DEFAULTS] == [*DEFAULTS]
    last = [*signature(FUNCTIONS[command]).parameters.values()][-1]
    assert (last.name, last.kind, last.annotation) == ("execution", Parameter.VAR_KEYWORD, "Unpack[ExecutionOptions]")
    assert not DEFAULTS.keys() & signature(FUNCTIONS[command]).parameters.keys()


@pytest.mark.parametrize(
    ("command", "some"),
    [("plan", {"eager", "device", "threads", "tf32"}), ("work", {"workers", "checkpoint_every"})],
)
def test_other_commands_take_some_with_the_same_defaults(command: str, some: set[str]) -> None:
    own = said(command)
    assert own.keys() & DEFAULTS.keys() == some
    assert all(own[name] == dict(DEFAULTS)[name] for name in some)


def test_every_option_has_a_type_and_a_default() -> None:
    assert get_type_hints(ExecutionOptions).keys() == DEFAULTS.keys()
    documented = ExecutionOptions.__doc__ or ""
    assert all(f"``{name}``" in documented for name in DEFAULTS)
    assert all(f"``{name}``" in (vflsim.run.__doc__ or "") for name in DEFAULTS)


OTHER: dict[str, Any] = {
    "workers": 2, "resume": True, "anew": True, "checkpoint_every": "off", "eager": True, "device": "cpu", "threads": 2,
    "tf32": True, "engine": "ray", "address": "auto", "num_cpus": 2.0, "num_gpus": 1.0, "max_retries": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_no_option_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    monkeypatch.setattr(module, "cuda_available", lambda: True)
    base: dict[str, Any] = {"engine": "ray"} if name in ("address", "num_cpus", "num_gpus", "max_retries") else {}
    assert RunOptions.of(**base, **{name: OTHER[name]}) != RunOptions.of(**base)


@pytest.mark.parametrize("command", FUNCTIONS)
def test_unknown_options_are_refused_before_anything_runs(command: str, tmp_path: Path) -> None:
    over = {"run": (), "sweep": ({"training.batch": [1, 2]},), "tune": ({"training.batch": [1, 2]},)}[command]
    with pytest.raises(TypeError, match=r"unexpected option 'worker'; allowed: workers, resume"):
        FUNCTIONS[command](raw(), *over, tmp_path / "out", worker=2)  # type: ignore[operator]
    assert not (tmp_path / "out").exists()
