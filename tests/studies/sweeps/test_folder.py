"""A sweep that is repeated on its folder grows: it computes what is missing, and what no longer fits is kept aside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from swept import run_sweep
from tiny_worlds import raw

from vflsim.errors import ResultsError
from vflsim.results.sweeps.sweep import Sweep, SweepPage
from vflsim.results.verify.runs import verify_folder
from vflsim.studies.runs.options import RunOptions
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.sweeps.sweep import Step, SweepWatcher

pytestmark = pytest.mark.usefixtures("no_closed_forms")
KEY = "protocols.fast.t"
BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


def said(**changes: Any) -> dict[str, Any]:
    return raw(BOTH, **{"stop": {"rounds": 4}, "seeds": [0], "record": "rounds", **changes})


class Listening(SweepWatcher):
    """Remembers the runs that began, and what became of earlier points; raises an interrupt at a run."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.runs: list[tuple[str, str, int]] = []
        self.gone: list[str] = []
        self.stay = 0
        self._interrupt_at = interrupt_at

    def grown(self, stay: int, gone: Sequence[str], place: Path) -> None:
        self.stay, self.gone = stay, [*gone]

    def watching(self, step: Step) -> Watcher:
        outer = self

        class Noting(Watcher):
            def began(self, run: StudyRun) -> None:
                if len(outer.runs) == outer._interrupt_at:
                    raise KeyboardInterrupt
                outer.runs.append((step.setting, run.protocol, run.seed))

        return Noting()


def swept(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True, **how: Any) -> Listening:
    watcher = Listening(how.pop("interrupt_at", None))
    run_sweep(world, KEY, values, out=out, timing_only=timing_only, watcher=watcher, options=RunOptions(**how))
    return watcher


def tables(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}


_known: dict[str, Path] = {}


def computed(values: list[int], world: dict[str, Any], timing_only: bool = True) -> Path:
    """A folder with a finished sweep, computed once."""
    key = json.dumps([values, world, timing_only])
    if key not in _known:
        _known[key] = Path(mkdtemp()) / "out"
        swept(_known[key], values, world, timing_only)
    return _known[key]


def begin(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True) -> None:
    """Place a finished sweep in a new folder, as if it had been computed there."""
    shutil.copytree(computed(values, world, timing_only), out, symlinks=True)


def assert_like_fresh(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True) -> None:
    fresh = computed(values, world, timing_only)
    assert tables(out) == tables(fresh)
    assert SweepPage.read(out) == SweepPage.read(fresh)
    assert verify_folder(out) == []


def test_the_same_sweep_again_computes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert len(swept(out, [1, 3], said()).runs) == 3
    assert swept(out, [1, 3], said()).runs == []
    assert_like_fresh(out, [1, 3], said())


@pytest.mark.slow
def test_more_values_and_seeds_compute_what_is_missing(tmp_path: Path) -> None:
    out, more = tmp_path / "out", said(seeds=[0, 1])
    begin(out, [1, 3], said())
    grown = swept(out, [1, 2, 3], more)
    assert (grown.stay, grown.gone) == (2, [])
    assert set(grown.runs) == {
        ("t = 1", "wait", 1),
        ("t = 1", "fast", 1),
        ("t = 2", "fast", 0),
        ("t = 2", "fast", 1),
        ("t = 3", "fast", 1),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert_like_fresh(out, [1, 2, 3], more)


def test_values_that_are_gone_are_named_and_kept_aside_as_a_sweep(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin(out, [1, 2, 3], said())
    before = tables(out)
    grown = swept(out, [3, 4], said())  # the runs of wait, done at t = 1, are kept at t = 3
    assert (grown.stay, grown.gone) == (1, ["t = 1", "t = 2"])
    assert grown.runs == [("t = 4", "fast", 0)]
    assert Sweep.open(tmp_path / "out.previous-1").values == (1, 2)
    assert verify_folder(tmp_path / "out.previous-1") == []
    assert tables(tmp_path / "out.previous-1").items() <= before.items()
    assert_like_fresh(out, [3, 4], said())


def test_a_later_end_keeps_the_shorter_runs_aside_as_a_sweep(tmp_path: Path) -> None:
    out, longer = tmp_path / "out", said(stop={"rounds": 6})
    swept(out, [1, 3], said(), timing_only=False)
    before = tables(out)
    swept(out, [1, 3], longer, timing_only=False)
    assert tables(tmp_path / "out.previous-1") == before
    assert Sweep.open(tmp_path / "out.previous-1").values == (1, 3)
    assert verify_folder(tmp_path / "out.previous-1") == []
    assert {path.name for path in out.iterdir()} == {"sweep.json", "t-1", "t-3"}
    assert_like_fresh(out, [1, 3], longer, timing_only=False)


@pytest.mark.parametrize("run", [0, 1, 2])
def test_a_sweep_that_is_interrupted_while_it_grows_loses_nothing(run: int, tmp_path: Path) -> None:
    out, longer = tmp_path / "out", said(stop={"rounds": 6})
    begin(out, [1, 2, 3], said())
    before = tables(out).values()
    with pytest.raises(KeyboardInterrupt):
        swept(out, [2, 3, 4], longer, interrupt_at=run)
    everything = [content for folder in tmp_path.iterdir() for content in tables(folder).values()]
    assert set(before) <= set(everything)
    assert Sweep.open(tmp_path / "out.previous-1").values[0] == 1
    assert Sweep.open(out).values
    swept(out, [2, 3, 4], longer)
    assert_like_fresh(out, [2, 3, 4], longer)


def test_anew_and_training_after_timing_alone_keep_no_value(tmp_path: Path) -> None:
    out = tmp_path / "out"
    swept(out, [1], said())
    assert len(swept(out, [1], said(), anew=True).runs) == 2
    assert len(swept(out, [1], said(), timing_only=False).runs) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.previous-1", "out.previous-2"}


def test_resuming_refuses_other_values(tmp_path: Path) -> None:
    swept(tmp_path / "out", [1], said())
    with pytest.raises(ResultsError, match="another scenario"):
        swept(tmp_path / "out", [1, 2], said(), resume=True)
