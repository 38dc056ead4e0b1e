"""Progress of ``vflsim.run``: lines in a terminal, a notebook or on request, and silence elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from tiny_worlds import raw, tiny

import vflsim
from vflsim.studies.texts import InNotebook, live_on


def test_a_pipe_hears_of_progress_on_request_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tiny("synchronous", seeds=[0, 1], stop={"rounds": 2})
    vflsim.run(scenario, tmp_path / "quiet")
    vflsim.run(scenario, tmp_path / "never", progress=False)
    assert capsys.readouterr() == ("", "")
    vflsim.run(scenario, tmp_path / "asked", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split("  ")[0] for line in err.splitlines()[-2:]] == ["1/2 synchronous", "2/2 synchronous"]


def test_a_sweep_shows_progress_and_begins_anew_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = raw({"wait": {"kind": "synchronous"}}, stop={"rounds": 2})
    for anew in (False, True):
        vflsim.sweep(world, {"training.batch": [10, 20]}, tmp_path / "out", progress=True, anew=anew, timing_only=True)
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line.split("  ")[0] for line in err.splitlines()]
    assert [line for line in lines if line[:1].isdigit()] == 2 * ["1/2 batch = 10", "2/2 batch = 20"]
    assert len([*tmp_path.glob("out/*/earlier/*/wait/seed-0")]) == 2


def test_a_notebook_changes_one_output_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, lines: Any) -> None:
            shown.append(lines.plain)

    def display(*_: Any, display_id: bool = False, **__: Any) -> Handle | None:
        return Handle() if display_id else None

    notebook = ModuleType("IPython.display")
    monkeypatch.setattr(notebook, "display", display, raising=False)
    monkeypatch.setattr(notebook, "HTML", str, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert isinstance(live_on(Console()), InNotebook)
    vflsim.run(tiny("synchronous", seeds=[0, 1], stop={"rounds": 2}), tmp_path / "out")
    assert any(" 2/2  " in lines and "left" in lines and "synchronous, seed 1" in lines for lines in shown)
    assert shown[-1] == ""
