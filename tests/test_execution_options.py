"""The options of execution are the same in Python, on the command line and in the documentation."""

from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer.main
from tiny_worlds import raw, tiny

import vflsim
from vflsim.cli.app import app
from vflsim.results.store.pages import RunInfo
from vflsim.simulation.info import run_info
from vflsim.vocabulary import execution_options as module
from vflsim.vocabulary.execution_options import DEFAULTS, OPTIONS, RECORDED, Execution, ExecutionOptions, RunOptions

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
    [("plan", set(RECORDED)), ("work", {"workers", "checkpoint_every", "together"})],
)
def test_other_commands_take_some_with_the_same_defaults(command: str, some: set[str]) -> None:
    own = said(command)
    assert own.keys() & DEFAULTS.keys() == some
    assert all(own[name] == dict(DEFAULTS)[name] for name in some)


def test_every_option_has_a_type_and_a_default() -> None:
    assert get_type_hints(ExecutionOptions).keys() == DEFAULTS.keys()
    documented = ExecutionOptions.__doc__ or ""
    assert all(f"``{name}``" in documented for name in DEFAULTS)


def another(name: str) -> Any:
    """A value that is not the default, nor what the default comes to."""
    kind, option = OPTIONS[name]
    if option.none:
        return "off"
    if option.number is not None:
        return (option.default or 0) + 1
    if kind is bool:
        return not option.default
    return get_args(kind)[1] if isinstance(option.default, str) else "another"


@pytest.mark.parametrize("name", DEFAULTS)
def test_no_option_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    monkeypatch.setattr(module, "cuda_available", lambda: True)
    base: dict[str, Any] = {"engine": "ray"} if name in ("address", "num_cpus", "num_gpus", "max_retries") else {}
    assert RunOptions.of(**base, **{name: another(name)}) != RunOptions.of(**base)


def test_what_results_depend_on_is_told_and_read_again() -> None:
    assert set(RECORDED) <= OPTIONS.keys()
    unusual = RunOptions.of(**{name: another(name) for name in RECORDED}).execution
    page = run_info(tiny("synchronous"), "synchronous", 0, None, **unusual.facts("cpu", True), wall_clock_s=0.0)
    assert RunInfo.model_validate_json(page.model_dump_json()) == page
    assert Execution.of_facts(vars(page)) == unusual
    assert unusual.words("cpu").items() & Execution().words("cpu").items() == {("device", "cpu")}


def test_unusual_options_without_a_field_of_their_own_stand_in_run_json_and_usual_ones_do_not() -> None:
    @dataclass(frozen=True)
    class Longer(Execution):
        deterministic: bool = False

    page = run_info(tiny("synchronous"), "synchronous", 0, None, **Longer(deterministic=True).facts("cpu", True),
                    wall_clock_s=0.0)  # fmt: skip
    assert '"execution":{"deterministic":true}' in page.model_dump_json()
    assert Longer.of_facts(vars(page)) == Longer(deterministic=True)
    assert "execution" not in page.model_copy(update={"execution": {}}).model_dump()
    assert Longer().words("cpu")["deterministic"] == "False"


@pytest.mark.parametrize("command", FUNCTIONS)
def test_unknown_options_are_refused_before_anything_runs(command: str, tmp_path: Path) -> None:
    over = {"run": (), "sweep": ({"training.batch": [1, 2]},), "tune": ({"training.batch": [1, 2]},)}[command]
    with pytest.raises(TypeError, match=r"unexpected option 'worker'; allowed: quick, workers"):
        FUNCTIONS[command](raw(), *over, tmp_path / "out", worker=2)  # type: ignore[operator]
    assert not (tmp_path / "out").exists()
