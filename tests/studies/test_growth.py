"""A results folder grows: after any changes of a scenario it holds the bytes of a fresh folder, and nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_worlds import raw

from vflsim.checkpoints import Keeper
from vflsim.checkpoints.snapshot import Return, went_elsewhere
from vflsim.results import aside
from vflsim.results.folder import Prepared
from vflsim.results.verify import verify_folder
from vflsim.results.write import write_file
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.growth import Growth
from vflsim.studies.growth_text import sentences
from vflsim.studies.options import RunOptions
from vflsim.studies.study import run_study
from vflsim.studies.watching import Report, StudyRun, Watcher

OFTEN = RunOptions(checkpoint_every=3600.0)
"""Checkpoints are on; ``by_events`` says when."""
TIMING = {"clients": {"compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "5 ms"}}}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "wait": {"kind": "synchronous"},
    "async": {"kind": "asynchronous"},
    "t-sync": {"kind": "t_synchronous", "t": 2},
}


def said(*protocols: str, **changes: Any) -> Scenario:
    chosen = {name: PROTOCOLS[name] for name in protocols or ("wait", "async")}
    return load(raw(chosen, **{"timing": TIMING, "stop": {"rounds": 8}, "seeds": [0, 1], **changes}))


@pytest.fixture(autouse=True, scope="module")
def by_events() -> Iterator[None]:
    """Checkpoints after every 20 events, instead of by the clock."""

    def plan(keeper: Keeper) -> None:
        assert keeper._course is not None
        keeper._course.world.visit(keeper._visit, max(0, keeper._kept_at) + 20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "_plan", plan)
        yield


class Listening(Watcher):
    """Remembers which runs began, and what was told before."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []
        self.continued: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.place: Path | None = None

    def grown(self, what: Prepared, growth: Growth) -> None:
        self.lines, self.place = sentences(what, growth), what.moved_to

    def began(self, run: StudyRun) -> None:
        (self.continued if run.continued else self.runs).append((run.protocol, run.seed))


def grown(scenario: Scenario, out: Path, options: RunOptions = OFTEN, **more: Any) -> Listening:
    watcher = Listening()
    run_study(scenario, out, options=options, watcher=watcher, **more)
    return watcher


def bytes_of(out: Path) -> dict[str, bytes]:
    """All tables and weights of a folder."""
    found = (path for path in out.rglob("*") if path.suffix in (".parquet", ".safetensors"))
    return {str(name): path.read_bytes() for path in found if "/." not in f"/{(name := path.relative_to(out))}"}


def fresh(scenario: Scenario) -> dict[str, bytes]:
    return _fresh(scenario.document.raw, repr(scenario.document.raw))


_known: dict[str, dict[str, bytes]] = {}


def _fresh(raw: dict[str, Any], key: str) -> dict[str, bytes]:
    if key not in _known:
        out = Path(mkdtemp())
        run_study(load(raw), out, options=RunOptions(checkpoint_every=None))
        _known[key] = bytes_of(out)
    return _known[key]


def assert_like_fresh(out: Path, scenario: Scenario) -> None:
    assert bytes_of(out) == fresh(scenario)
    assert verify_folder(out) == []


# --- what stays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "new"),
    [
        (said(seeds=[0, 1, 2]), [("wait", 2), ("async", 2)]),
        (said("wait", "async", "t-sync"), [("t-sync", 0), ("t-sync", 1)]),
        (said(name="another"), []),
        (said(target={"test_accuracy": 0.2}), []),
        (said(stop={"rounds": 8, "time": "1000 s"}), []),
    ],
    ids=["more seeds", "another protocol", "another name", "a target", "a limit that no run reaches"],
)
def test_what_still_fits_stays(now: Scenario, new: list[tuple[str, int]], tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out")
    watcher = grown(now, tmp_path / "out")
    assert (watcher.runs, watcher.continued, watcher.place) == (new, [], None)
    assert_like_fresh(tmp_path / "out", now)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_later_end_continues_from_checkpoints_and_keeps_the_shorter_runs_aside(tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out", options=OFTEN)
    before, longer = bytes_of(tmp_path / "out"), said(stop={"rounds": 14})
    watcher = grown(longer, tmp_path / "out")
    assert (watcher.runs, len(watcher.continued)) == ([], 4)
    assert "continued from checkpoints: 4 runs: seeds 0–1 of wait, async (from " in watcher.lines[1]
    assert watcher.lines[2].endswith("4 runs: seeds 0–1 of wait, async (stop.rounds: 8 → 14)")
    assert_like_fresh(tmp_path / "out", longer)
    assert_like_fresh(tmp_path / "out.previous-1", said())
    assert bytes_of(tmp_path / "out.previous-1") == before


def test_a_run_that_its_checkpoint_misleads_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(_: Return) -> None:
        raise went_elsewhere("rounds 3, not 4")

    notes: list[str] = []

    class Noting(Watcher):
        def ended(self, run: StudyRun, report: Report) -> None:
            notes.append(report.note)

    run_study(said("wait", seeds=[0]), tmp_path, options=OFTEN)
    longer = said("wait", seeds=[0], stop={"rounds": 14})
    with monkeypatch.context() as patch:
        patch.setattr(Return, "arrive", elsewhere)
        run_study(longer, tmp_path, options=OFTEN, watcher=Noting())
    assert notes == ["computed anew: the run did not come back to its checkpoint: rounds 3, not 4"]
    assert_like_fresh(tmp_path, longer)


def test_without_a_checkpoint_a_run_with_a_later_end_is_computed_anew(tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out", options=RunOptions(checkpoint_every=None))
    longer = said(stop={"rounds": 14})
    watcher = grown(longer, tmp_path / "out")
    assert (len(watcher.runs), watcher.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", longer)


def test_an_earlier_end_keeps_the_longer_runs_and_their_checkpoints_aside(tmp_path: Path) -> None:
    longer = said(stop={"rounds": 14})
    run_study(longer, tmp_path / "out", options=OFTEN)
    shorter = grown(said(stop={"rounds": 3}), tmp_path / "out")
    assert (len(shorter.runs), shorter.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", said(stop={"rounds": 3}))
    longest = said(stop={"rounds": 20})
    assert len(grown(longest, tmp_path / "out.previous-1").continued) == 4
    assert_like_fresh(tmp_path / "out.previous-1", longest)


NOISE = {"kind": "gaussian", "clip": 1, "epsilon": 5, "delta": 1e-5, "per": "run"}


def test_noise_that_is_calibrated_for_a_whole_run_is_computed_anew(tmp_path: Path) -> None:
    private = {"wait": {"kind": "synchronous"}, "private": {"kind": "synchronous", "mechanism": NOISE}}
    short, long = (load(raw(private, timing=TIMING, stop={"rounds": rounds})) for rounds in (8, 14))
    run_study(short, tmp_path, options=OFTEN)
    watcher = grown(long, tmp_path)
    assert (watcher.runs, watcher.continued) == ([("private", 0)], [("wait", 0)])
    assert_like_fresh(tmp_path, long)


# --- what no longer fits ----------------------------------------------------------------------------------------------


def test_what_no_longer_fits_is_named_and_kept_aside_as_results_of_its_own(tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out")
    before = bytes_of(tmp_path / "out")
    own = {"wait": PROTOCOLS["wait"], "async": {**PROTOCOLS["async"], "training": {"batch": 30}}}
    now = load(raw(own, timing=TIMING, stop={"rounds": 8}, seeds=[0, 1]))
    watcher = grown(now, tmp_path / "out")
    assert watcher.lines[0].endswith("out: 2 of 4 runs are there and stay")
    assert watcher.lines[1] == "  to compute: 2 runs: seeds 0–1 of async"
    assert watcher.lines[2].endswith("out.previous-1: 2 runs: seeds 0–1 of async (training.batch: 20 → 30)")
    assert_like_fresh(tmp_path / "out", now)
    aside = bytes_of(tmp_path / "out.previous-1")
    assert {name for name in aside if name.startswith("async")} == {name for name in before if name.startswith("async")}
    assert all(aside[name] == before[name] for name in aside if not name.startswith("summary"))
    missing = [f"wait/seed-{seed} is missing: a run of this scenario" for seed in (0, 1)]
    assert verify_folder(tmp_path / "out.previous-1") == missing


def test_seeds_and_protocols_that_are_left_out_are_kept_aside(tmp_path: Path) -> None:
    run_study(said("wait", "async", "t-sync"), tmp_path / "out")
    now = said("wait", "async", seeds=[1])
    watcher = grown(now, tmp_path / "out")
    assert (watcher.runs, watcher.continued) == ([], [])
    assert_like_fresh(tmp_path / "out", now)
    assert len(list((tmp_path / "out.previous-1").glob("*/seed-*"))) == 4


def test_anew_keeps_nothing(tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out", options=OFTEN)
    watcher = grown(said(), tmp_path / "out", RunOptions(anew=True))
    assert (len(watcher.runs), watcher.continued) == (4, [])
    assert_like_fresh(tmp_path / "out", said())
    assert_like_fresh(tmp_path / "out.previous-1", said())


def test_timing_alone_is_no_training(tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out")
    watcher = grown(said(), tmp_path / "out", timing_only=True)
    assert len(watcher.runs) == 4
    watcher = grown(said(seeds=[0, 1, 2]), tmp_path / "out", timing_only=True)
    assert watcher.runs == [("wait", 2), ("async", 2)]


# --- any changes ------------------------------------------------------------------------------------------------------

STOPS: list[dict[str, Any]] = [
    {"rounds": 4},
    {"rounds": 9},
    {"rounds": 9, "time": "0.15 s"},
    {"time": "0.3 s"},
    {"updates": 30},
    {"epochs": 2},
    {"rounds": 12, "target": {"test_accuracy": 0.2, "for": "1 evaluation"}},
    {"rounds": 12, "target": {"test_accuracy": 0.3, "for": "1 evaluation"}},
    {"rounds": 9, "time": "S s"},
]
SCENARIOS = st.builds(
    lambda names, seeds, **changes: said(*names, seeds=seeds, **changes),
    st.lists(st.sampled_from([*PROTOCOLS]), min_size=1, max_size=2, unique=True),
    st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True),
    stop=st.sampled_from(STOPS),
    target=st.sampled_from([{"test_accuracy": 0.2}, {"test_loss": 1.0}]),
    name=st.sampled_from(["one", "two"]),
    evaluate=st.sampled_from([{"every": "2 rounds"}, {"every": "3 rounds"}]),
    record=st.sampled_from(["events", "summary"]),
    constants=st.sampled_from([{"S": 0.2}, {"S": 0.3}]),
    training__batch=st.sampled_from([20, 20, 30]),
)


def runs_in(folder: Path) -> set[str]:
    """Digests of the tables and weights of all runs."""
    runs = (path.parent for path in folder.rglob("seed-*/run.json"))
    files = (b"".join(path.read_bytes() for path in sorted(run.glob("*[ts]"))) for run in runs)
    return {sha256(content).hexdigest() for content in files}


@settings(max_examples=4, deadline=None, derandomize=True)
@given(history=st.lists(SCENARIOS, min_size=2, max_size=3))
def test_after_any_changes_a_folder_has_the_bytes_of_a_fresh_one_and_no_run_is_lost(history: list[Scenario]) -> None:
    place = Path(mkdtemp())
    computed: set[str] = set()
    for scenario in history:
        grown(scenario, place / "out")
        assert_like_fresh(place / "out", scenario)
        computed |= runs_in(place / "out")
        assert computed == runs_in(place)


# --- interruptions ----------------------------------------------------------------------------------------------------

MIXED = {"async": {"kind": "asynchronous", "training": {"batch": 30}}, "wait": PROTOCOLS["wait"]}
"""Beside ``said()`` this continues ``wait`` and computes ``async`` anew."""


def mixed() -> Scenario:
    return load(raw(MIXED, timing=TIMING, stop={"rounds": 12}, seeds=[0, 1]))


class Stopping(Watcher):
    """Raises an interrupt at the ``number``-th word of the study."""

    def __init__(self, number: int) -> None:
        self._left = number

    def _word(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt

    grown = began = progressed = ended = _word


@pytest.mark.parametrize("number", [1, 2, 4, 12])
def test_an_interruption_anywhere_loses_nothing_and_the_next_run_finishes(number: int, tmp_path: Path) -> None:
    run_study(said(), tmp_path / "out", options=OFTEN)
    computed = runs_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_study(mixed(), tmp_path / "out", options=OFTEN, watcher=Stopping(number))
    assert computed <= runs_in(tmp_path)
    computed = runs_in(tmp_path)
    grown(mixed(), tmp_path / "out")
    assert computed <= runs_in(tmp_path)
    assert_like_fresh(tmp_path / "out", mixed())


class Killed(BaseException):
    """Ends a process where it stands."""


@pytest.mark.parametrize("step", range(8))
def test_a_process_killed_while_runs_are_moved_leaves_two_sound_folders(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(said(), tmp_path / "out", options=OFTEN)
    computed, left = runs_in(tmp_path), iter(range(step, -1, -1))
    moved, wrote = Path.rename, write_file

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any) -> Any:
            if next(left, 0) == 0:
                raise Killed
            return real(*arguments)

        return do

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying(moved))
        patch.setattr(aside, "write_file", dying(wrote))
        with pytest.raises(Killed):
            run_study(mixed(), tmp_path / "out", options=OFTEN)
    assert runs_in(tmp_path) == computed
    for folder in tmp_path.iterdir():
        scenario = load(folder / "scenario.yaml")
        for run in runs_of(folder):
            assert (folder / run / "metrics.parquet").read_bytes() == fresh(scenario)[f"{run}/metrics.parquet"]
    grown(mixed(), tmp_path / "out")
    assert computed < runs_in(tmp_path)
    assert_like_fresh(tmp_path / "out", mixed())


def runs_of(folder: Path) -> list[str]:
    return [path.parent.relative_to(folder).as_posix() for path in folder.glob("*/seed-*/run.json")]


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
