"""``docs/own-parts.md``: its commands run, and so does each of its scenarios with its classes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from pages import ROOT, code_of
from ruamel.yaml import YAML

import vflsim

PAGE = ROOT / "docs" / "own-parts.md"
BASE, *SECTIONS = [
    YAML(typ="safe").load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
]


@pytest.fixture(autouse=True)
def _mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("\n".join(code_of(PAGE)))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: "+".join(section))
def test_each_scenario_of_the_page_runs(section: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    YAML(typ="safe").dump({**BASE, **section}, path)
    results = vflsim.run(path, out=tmp_path / "out")
    assert not results.failed
    if "metrics" in section:
        assert {"test_f1", "test_f2"} <= set(results.evaluated)
        assert results.main_metric == "test_f2"


@pytest.mark.slow
def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    YAML(typ="safe").dump(BASE, tmp_path / "own-parts.yaml")
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert [shlex.split(command)[1] for command in commands] == ["check", "run", "tune", "run"]
    for command in commands:
        ended = vflsim(*shlex.split(command)[1:])
        assert ended.status == 0, f"{command}: {ended.err}"


def test_every_class_of_the_page_stands_in_a_scenario() -> None:
    classes = set(re.findall(r"^class (\w+)\(", "\n".join(code_of(PAGE)), re.MULTILINE))
    named = set(re.findall(r'"mine:(\w+)"', str([BASE, *SECTIONS]).replace("'", '"')))
    assert classes == named | {"Clients"}  # a figure is named on the command line


def test_the_figure_of_the_page_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    YAML(typ="safe").dump({**BASE, "record": "rounds", "modules": "."}, path)
    results = vflsim.run(path, out=tmp_path / "out")
    assert vflsim.plot(results, "mine:Clients", metric="missing").axes[0].get_ylabel() == "clients missing"
