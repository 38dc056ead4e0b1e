"""A results folder grows through any changes and interruptions: it ends as a fresh folder, and no run is lost."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from growing import OFTEN, PROTOCOLS, TIMING, assert_like_fresh, begin, fresh, grown, said
from hypothesis import given, settings, strategies as st
from thorough import examples
from tiny_worlds import raw

from vflsim.results.store.write import write_file
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.runs import store
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.study import run_study

pytestmark = pytest.mark.usefixtures("by_events")


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


@pytest.mark.slow
@settings(max_examples=examples(3), deadline=None, derandomize=True)
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
"""Beside ``said(seeds=[0])`` this continues ``wait`` and computes ``async`` anew."""


def mixed() -> Scenario:
    return load(raw(MIXED, timing=TIMING, stop={"rounds": 12}))


class Stopping(Watcher):
    """Raises an interrupt at the ``number``-th word of the study."""

    def __init__(self, number: int) -> None:
        self._left = number

    def _word(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt

    grown = began = progressed = ended = _word


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [1, 2, 4, 8])
def test_an_interruption_anywhere_loses_nothing_and_the_next_run_finishes(number: int, tmp_path: Path) -> None:
    begin(said(seeds=[0]), tmp_path / "out")
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


@pytest.mark.slow
@pytest.mark.parametrize("step", range(5))
def test_a_process_killed_while_runs_are_moved_leaves_two_sound_folders(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(said(seeds=[0]), tmp_path / "out")
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
        patch.setattr(store, "write_file", dying(wrote))
        with pytest.raises(Killed):
            run_study(mixed(), tmp_path / "out", options=OFTEN)
    assert runs_in(tmp_path) == computed
    for folder in {page.parent for page in tmp_path.rglob("scenario.yaml")}:
        scenario = load(folder / "scenario.yaml")
        for run in runs_of(folder):
            assert (folder / run / "metrics.parquet").read_bytes() == fresh(scenario)[f"{run}/metrics.parquet"]
    grown(mixed(), tmp_path / "out")
    assert computed < runs_in(tmp_path)
    assert_like_fresh(tmp_path / "out", mixed())


def runs_of(folder: Path) -> list[str]:
    return [path.parent.relative_to(folder).as_posix() for path in folder.glob("*/seed-*/run.json")]
