"""A first look at a study: one seed, under a name of its own, and what it cannot say stands beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw, tiny

import vflsim as package
from vflsim.results.read import Results
from vflsim.results.tables.footnotes import ONE_SEED
from vflsim.scenario.load import quickened
from vflsim.shipped import LONGEST_NAME
from vflsim.studies.plan import axes_of, planned

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario with three seeds, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(json.dumps(raw(BOTH, name="mine", seeds=[4, 5, 6])))
    return Path("mine.yaml")


def test_a_first_look_runs_one_seed_into_a_folder_of_its_own_and_says_what_that_cannot_tell(
    scenario: Path, vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", str(scenario), "--quick", "--no-report"]
    monkeypatch.setattr("sys.argv", ["vflsim", *words])
    ended = vflsim(*words)
    assert (ended.status, [each.name for each in Path("results").iterdir()]) == (0, ["mine-quick"])
    results = Results.open(Path("results/mine-quick"))
    assert (results.name, results.seeds, results.protocols) == ("mine-quick", (4,), ("wait", "fast"))
    warning = (
        "QUICK LOOK, mine-quick: seed 4 alone of 3. One seed cannot order protocols. "
        "The whole study: vflsim run mine.yaml --no-report"
    )
    assert ended.out.count(warning) == 2, "before the runs, and after the table"
    assert ONE_SEED in ended.out
    assert ONE_SEED in Path("results/mine-quick/summary.md").read_text()


def test_the_whole_study_computes_all_of_its_seeds_after_a_first_look(scenario: Path) -> None:
    look = package.run(scenario, quick=True, progress=False)
    whole = package.run(scenario, progress=False)
    assert (look.folder.name, whole.folder.name, whole.seeds) == ("mine-quick", "mine", (4, 5, 6))
    assert look.run("wait", 4).info.files == whole.run("wait", 4).info.files


@pytest.mark.parametrize("name", ["mine", "m" * LONGEST_NAME, "mine-quick"])
def test_every_name_becomes_that_of_a_first_look_once(name: str) -> None:
    look = quickened(tiny(BOTH, name=name, seeds=[3, 1]))
    assert (look.name, look.seeds) == (f"{name.removesuffix('-quick')[: LONGEST_NAME - 6]}-quick", (3,))
    assert quickened(look) == look
    assert quickened(look, wanted=False) is look


def test_the_points_of_a_sweep_are_first_looks_too() -> None:
    said = raw(BOTH, name="mine", seeds=[4, 5])
    plan = planned(said, axes_of(said, {"fast.t": [1, 2]}), quick=True)
    assert [(point.scenario.name, point.scenario.seeds) for point in plan.points] == [("mine-quick", (4,))] * 2
