"""A results folder grows: after a change of its scenario it holds the bytes of a fresh folder, and nothing is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from growing import OFTEN, PROTOCOLS, TIMING, assert_like_fresh, begin, bytes_of, earlier, grown, said
from tiny_worlds import raw

import vflsim
from vflsim.errors import ResultsError, ScenarioError
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints.snapshot import went_elsewhere
from vflsim.simulation.programs import TrainedRun
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions

pytestmark = pytest.mark.usefixtures("by_events")


# --- what stays -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("now", "new"),
    [
        (said(seeds=[0, 1, 2]), [("wait", 2), ("async", 2)]),
        (said("wait", "async", "t-sync"), [("t-sync", 0), ("t-sync", 1)]),
        (said(name="another", target={"test_accuracy": 0.2}, stop={"rounds": 8, "time": "1000 s"}), []),
    ],
    ids=["more seeds", "another protocol", "another name, a target and a limit that no run reaches"],
)
def test_what_still_fits_stays(now: Scenario, new: list[tuple[str, int]], tmp_path: Path) -> None:
    begin(said(), tmp_path / "out")
    watcher = grown(now, tmp_path / "out")
    assert (watcher.runs, watcher.continued, watcher.place) == (new, [], None)
    assert_like_fresh(tmp_path / "out", now)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_later_end_continues_from_checkpoints_and_keeps_the_shorter_runs(tmp_path: Path) -> None:
    begin(said(), tmp_path / "out")
    before, longer = bytes_of(tmp_path / "out"), said(stop={"rounds": 14})
    watcher = grown(longer, tmp_path / "out")
    assert (watcher.runs, len(watcher.continued)) == ([], 4)
    assert "continued from checkpoints: 4 runs: seeds 0–1 of wait, async (from " in watcher.lines[1]
    assert watcher.lines[2].endswith("4 runs: seeds 0–1 of wait, async (stop.rounds: 8 → 14)")
    assert_like_fresh(tmp_path / "out", longer)
    assert_like_fresh(earlier(tmp_path / "out"), said())
    assert bytes_of(earlier(tmp_path / "out")) == before


def test_a_run_that_its_checkpoint_misleads_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*_: object) -> None:
        raise went_elsewhere("rounds 3, not 4")

    notes: list[str] = []

    class Noting(Watcher):
        def ended(self, run: StudyRun, report: Report) -> None:
            notes.append(report.note)

    begin(said("wait", seeds=[0]), tmp_path)
    longer = said("wait", seeds=[0], stop={"rounds": 14})
    with monkeypatch.context() as patch:
        patch.setattr(TrainedRun, "resume", elsewhere)
        run_study(longer, tmp_path, options=OFTEN, watcher=Noting())
    assert notes == ["computed anew: the run did not come back to its checkpoint: rounds 3, not 4"]
    assert_like_fresh(tmp_path, longer)


def test_without_a_checkpoint_a_run_with_a_later_end_is_computed_anew(tmp_path: Path) -> None:
    begin(said(), tmp_path / "out", checkpoints=False)
    longer = said(stop={"rounds": 14})
    watcher = grown(longer, tmp_path / "out")
    assert (len(watcher.runs), watcher.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", longer)


@pytest.mark.slow
def test_an_earlier_end_keeps_the_longer_runs_and_their_checkpoints(tmp_path: Path) -> None:
    longer = said(stop={"rounds": 14})
    begin(longer, tmp_path / "out")
    shorter = grown(said(stop={"rounds": 3}), tmp_path / "out")
    assert (len(shorter.runs), shorter.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", said(stop={"rounds": 3}))
    longest = said(stop={"rounds": 20})
    assert len(grown(longest, earlier(tmp_path / "out")).continued) == 4
    assert_like_fresh(earlier(tmp_path / "out"), longest)


NOISE = {"kind": "gaussian", "clip": 1, "epsilon": 5, "delta": 1e-5, "per": "run"}


@pytest.mark.slow
def test_noise_that_is_calibrated_for_a_whole_run_is_computed_anew(tmp_path: Path) -> None:
    private = {"wait": {"kind": "synchronous"}, "private": {"kind": "synchronous", "mechanism": NOISE}}
    short, long = (load(raw(private, timing=TIMING, stop={"rounds": rounds})) for rounds in (8, 14))
    begin(short, tmp_path)
    watcher = grown(long, tmp_path)
    assert (watcher.runs, watcher.continued) == ([("private", 0)], [("wait", 0)])
    assert_like_fresh(tmp_path, long)


# --- what no longer fits ----------------------------------------------------------------------------------------------


def test_what_no_longer_fits_is_named_and_kept_as_results_of_its_own(tmp_path: Path) -> None:
    begin(said(), tmp_path / "out")
    before = bytes_of(tmp_path / "out")
    own = {"wait": PROTOCOLS["wait"], "async": {**PROTOCOLS["async"], "training": {"batch": 30}}}
    now = load(raw(own, timing=TIMING, stop={"rounds": 8}, seeds=[0, 1]))
    watcher = grown(now, tmp_path / "out")
    assert watcher.lines[0].endswith("out: 2 of 4 runs are there and stay")
    assert watcher.lines[1] == "  to compute: 2 runs: seeds 0–1 of async"
    assert watcher.lines[2].endswith(": 2 runs: seeds 0–1 of async (training.batch: 20 → 30)")
    assert_like_fresh(tmp_path / "out", now)
    aside = bytes_of(earlier(tmp_path / "out"))
    assert {name for name in aside if name.startswith("async")} == {name for name in before if name.startswith("async")}
    assert all(aside[name] == before[name] for name in aside if not name.startswith("summary"))
    missing = [f"wait/seed-{seed} is missing: a run of this scenario" for seed in (0, 1)]
    assert verify_folder(earlier(tmp_path / "out")) == missing


def test_seeds_and_protocols_that_are_left_out_are_kept(tmp_path: Path) -> None:
    begin(said("wait", "async", "t-sync"), tmp_path / "out")
    now = said("wait", "async", seeds=[1])
    watcher = grown(now, tmp_path / "out")
    assert (watcher.runs, watcher.continued) == ([], [])
    assert_like_fresh(tmp_path / "out", now)
    assert len(list(earlier(tmp_path / "out").glob("*/seed-*"))) == 4


def test_runs_return_with_their_scenario(tmp_path: Path) -> None:
    out, other = tmp_path / "out", said(training__batch=30)
    begin(said(), out)
    (out / "figure.png").write_text("drawn")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert len(grown(other, out).runs) == 4
    assert_like_fresh(out, other)
    assert not (out / "figure.png").exists()
    watcher = grown(said(seeds=[0, 1]), out)
    assert (watcher.runs, watcher.continued) == ([], [])
    assert "  of an earlier study here: 4 runs: seeds 0–1 of wait, async" in watcher.lines
    assert_like_fresh(out, said())
    assert {path: path.read_bytes() for path in before if path.name != "manifest.json"} == {
        path: content for path, content in before.items() if path.name != "manifest.json"
    }
    assert grown(other, out).runs == []
    assert_like_fresh(out, other)


def test_runs_return_to_every_scenario_that_has_them(tmp_path: Path) -> None:
    begin(said(), tmp_path)
    grown(said(training__batch=30), tmp_path)
    more = said(seeds=[1, 2], name="more")
    assert grown(more, tmp_path).runs == [("wait", 2), ("async", 2)]
    assert_like_fresh(tmp_path, more)


def test_a_damaged_run_is_replaced_by_an_equal_one_that_is_there(tmp_path: Path) -> None:
    begin(said("wait"), tmp_path)
    grown(said("wait"), tmp_path, RunOptions(anew=True))
    table = tmp_path / "wait" / "seed-0" / "metrics.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert grown(said("wait"), tmp_path).runs == []
    assert_like_fresh(tmp_path, said("wait"))


def test_a_study_that_is_stopped_before_its_first_run_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin(said(), out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    class Stopping(Watcher):
        def began(self, run: StudyRun) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(said(training__batch=30), out, watcher=Stopping())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("foreign", ["thesis.tex", "scenario.yaml+thesis.tex", "scenario.yaml+src/main.py"])
def test_a_folder_of_other_things_is_refused_and_stays(tmp_path: Path, foreign: str) -> None:
    for name in foreign.split("+"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(ResultsError, match="holds other things than results"):
        run_study(said("wait"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        Path(name).name for name in foreign.split("+")
    )


def test_results_behind_a_link_are_kept_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    begin(said(), tmp_path / "disk")
    grown(said("wait"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert {run.name for run in (earlier(tmp_path / "disk") / "async").glob("seed-*")} == {"seed-0", "seed-1"}


def test_anew_keeps_nothing(tmp_path: Path) -> None:
    begin(said(), tmp_path / "out")
    watcher = grown(said(), tmp_path / "out", RunOptions(anew=True))
    assert (len(watcher.runs), watcher.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", said())
    assert_like_fresh(earlier(tmp_path / "out"), said())


def test_timing_alone_is_no_training(tmp_path: Path) -> None:
    begin(said(), tmp_path / "out")
    watcher = grown(said(), tmp_path / "out", timing_only=True)
    assert len(watcher.runs) == 4
    watcher = grown(said(seeds=[0, 1, 2]), tmp_path / "out", timing_only=True)
    assert watcher.runs == [("wait", 2), ("async", 2)]


# --- files that runs read ---------------------------------------------------------------------------------------------


def test_runs_of_changed_code_of_ones_own_no_longer_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_of_growth.py").write_text("import helping_growth\nfrom normed_module import Normed as Mine\n")
    (tmp_path / "helping_growth.py").write_text("NUMBER = 1\n")
    client = {"kind": "module", "path": "own_of_growth:Mine", "embedding": 6}
    protocols = {"own": {"kind": "synchronous", "models": {"client": client}}, "wait": PROTOCOLS["wait"]}
    now = load(raw(protocols, timing=TIMING, stop={"rounds": 3}, modules=str(tmp_path)))
    run_study(now, tmp_path / "out")
    assert grown(now, tmp_path / "out").runs == []
    (tmp_path / "helping_growth.py").write_text("NUMBER = 2\n")
    watcher = grown(now, tmp_path / "out")
    assert watcher.runs == [("own", 0)]
    assert watcher.lines[2].endswith("1 run: seed 0 of own (helping_growth.py has changed since)")


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
    assert not (folder / "earlier").exists()


def test_runs_of_others_that_do_not_fit_are_kept_and_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    runs(folder, "async", "wait")
    changed = {"timing": {"server": {"compute": "9 ms"}, "clients": [{"select": "all", "compute": "2 ms"}]}}
    assert runs(folder, "first", **changed) == {"first": 2}
    assert (earlier(folder) / "wait" / "seed-1").is_dir()


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
