"""Runs of some of a scenario's protocols, and what stays of the others."""

from pathlib import Path

import pytest
from tiny_worlds import raw

import vflsim
from vflsim.errors import ScenarioError

THREE = {"wait": {"kind": "synchronous"}, "first": {"kind": "t_synchronous", "t": 2}, "async": {"kind": "asynchronous"}}


def runs(folder: Path, *names: str, **changes: object) -> dict[str, int]:
    """Run some protocols without training; the numbers of runs that the folder then has."""
    said = raw(THREE, stop={"rounds": 5}, seeds=[0, 1], **changes)
    results = vflsim.run(said, folder, protocols=names, timing_only=True, progress=False)
    return {name: len([run for run in results.runs if run.protocol == name]) for name in results.protocols}


def test_protocols_run_one_after_another_into_one_study(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert runs(folder, "async") == {"async": 2}
    before = (folder / "async" / "seed-0" / "run.json").read_bytes()
    assert runs(folder, "wait") == {"wait": 2, "async": 2}
    assert runs(folder) == {"wait": 2, "first": 2, "async": 2}
    assert (folder / "async" / "seed-0" / "run.json").read_bytes() == before
    assert vflsim.verify(folder) == []
    assert not (tmp_path / "out.previous-1").exists()


def test_runs_of_others_that_do_not_fit_are_moved_aside_and_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    runs(folder, "async", "wait")
    changed = {"timing": {"server": {"compute": "9 ms"}, "clients": [{"select": "all", "compute": "2 ms"}]}}
    assert runs(folder, "first", **changed) == {"first": 2}
    assert (tmp_path / "out.previous-1" / "wait" / "seed-1").is_dir()


def test_an_unknown_protocol_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"--protocol wate: there is no protocol 'wate'\n.*wait, first, async"):
        runs(tmp_path / "out", "wate")
    assert not (tmp_path / "out").exists()


def test_a_sweep_goes_over_some_protocols(tmp_path: Path) -> None:
    said = raw(THREE, stop={"rounds": 5}, seeds=[0])
    done = vflsim.sweep(
        said, {"first.t": [1, 2]}, tmp_path / "s", protocols=["first"], timing_only=True, progress=False
    )
    assert done.protocols == ("first",)
