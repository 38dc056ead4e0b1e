"""Scenarios by name, a scenario to start from, and completion in a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended

from vflsim import load, shipped
from vflsim.errors import ScenarioError
from vflsim.scenario.models import Scenario
from vflsim.shipped import TEMPLATE, started

WIDTH = 120
Vflsim = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_shipped_scenario_is_listed_in_one_line(vflsim: Vflsim) -> None:
    listed = vflsim("scenarios")
    assert listed.status == 0
    lines = listed.out.splitlines()
    for name, file in shipped.shipped().items():
        first = file.read_text().splitlines()[0].removeprefix("# ")
        assert any(re.fullmatch(rf"{name} +{re.escape(first)} *", line) for line in lines), name
    assert max(map(len, lines)) <= WIDTH
    assert {"quickstart", "fedvs/fig4"} <= {line.split()[0] for line in lines if line.strip()}


def test_a_shipped_scenario_is_loaded_by_its_name() -> None:
    assert load("quickstart").name == "quickstart"
    assert load("timing/two_clients").name == "two_clients"


def test_a_file_of_ones_own_comes_first_and_a_folder_does_not(tmp_path: Path) -> None:
    Path("timing").mkdir()
    Path("quickstart").mkdir()
    assert load("quickstart").name == "quickstart"
    Path("timing", "tails").write_text(started("mine"))
    assert load("timing/tails").name == "mine"
    with pytest.raises(ScenarioError, match="this is a folder"):
        load("timing")


def test_paths_in_a_shipped_scenario_are_relative_to_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    text = re.sub("^data: .*$", "data: {file: own.csv, label: y}", started("own"), flags=re.MULTILINE)
    (tmp_path / "inside" / "own.yaml").write_text(text)
    monkeypatch.setattr(shipped, "FOLDERS", (tmp_path / "nowhere", tmp_path / "inside"))
    assert load("own").data.file == str(tmp_path / "inside" / "own.csv")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("quikstart", "quickstart"), ("fig4", "fedvs/fig4"), ("scenarios/timing/tail.yaml", "timing/tails")],
)
def test_a_mistyped_name_is_answered_with_the_nearest_shipped_scenario(name: str, meant: str, vflsim: Vflsim) -> None:
    for command in ("run", "check", "analyze"):
        ended = vflsim(command, name)
        assert ended.status == 2
        assert f"{name}: there is no such file" in ended.err
        assert f"did you mean '{meant}'?" in ended.err
    assert vflsim("sweep", name, "--over", "partition.clients=2,3").err == ended.err


def test_new_writes_a_scenario_that_is_valid_and_says_what_there_is(vflsim: Vflsim) -> None:
    made = vflsim("new", "mine")
    assert made.status == 0, made.err
    scenario = load("mine.yaml")
    assert scenario.name == "mine"
    text = Path("mine.yaml").read_text()
    assert "NAME" not in text
    optional = re.findall(r"^# (\w+): (.*?)(?: # .*)?$", text, re.MULTILINE)
    written = {key for key, _ in optional} | scenario.document.raw.keys()
    assert written == Scenario.model_fields.keys()
    for key, value in optional:
        assert key in load("mine.yaml", [f"{key}={value}"]).model_fields_set


def test_new_overwrites_nothing_and_checks_the_name(vflsim: Vflsim) -> None:
    Path("mine.yaml").write_text("precious")
    again = vflsim("new", "mine")
    assert (again.status, Path("mine.yaml").read_text()) == (2, "precious")
    assert "mine.yaml: this file exists" in again.err
    wrong = vflsim("new", "my/own study")
    assert wrong.status == 2
    assert "cannot name a folder of results" in wrong.err
    assert sorted(path.name for path in Path().iterdir()) == ["mine.yaml"]


def test_new_copies_another_scenario_under_the_new_name(vflsim: Vflsim) -> None:
    assert vflsim("new", "mine", "--from", "timing/two_clients").status == 0
    mine, theirs = load("mine.yaml"), load("timing/two_clients")
    assert mine.name == "mine"
    assert mine == theirs.model_copy(update={"name": "mine"})


def test_what_new_writes_runs_every_protocol(tmp_path: Path) -> None:
    import vflsim

    scenario = load(TEMPLATE, ["name=mine", "stop={rounds: 2}", "seeds=[0]", "data.train_rows=100"])
    assert not vflsim.run(scenario, out=tmp_path / "out").failed


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("words", "offered"),
    [("run quick", ["quickstart"]), ("check timing/ta", ["timing/tails"]), ("run m", ["mine.yaml", "more/"])],
)
def test_a_shell_completes_scenarios(words: str, offered: list[str]) -> None:
    Path("mine.yaml").touch()
    Path("more").mkdir()
    asked = {"_VFLSIM_COMPLETE": "complete_bash", "COMP_WORDS": f"vflsim {words}", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "import sys; sys.argv = ['vflsim']; from vflsim.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | asked)
    assert done.stdout.split() == offered, done.stderr
