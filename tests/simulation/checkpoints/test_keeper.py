"""When checkpoints are taken, and what a wish to stop does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kept_runs import FINGERPRINT, KeptAt, files_of, interrupted, whole
from protocols_by_kind import KINDS, SOME
from tiny_worlds import RANDOM_TIMING, raw, run, tiny

from vflsim.scenario import load
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.reporter import Progress

SCENARIO = tiny(stop={"rounds": 12})


def asking(keeper: Keeper, how: Callable[[], Any], when: int = 5) -> Callable[[Progress], None]:
    """A report that asks once, when the run has come to its ``when``-th round."""
    asked: list[int] = []

    def report(progress: Progress) -> None:
        if progress.rounds >= when and not asked:
            asked.append(progress.rounds)
            how()

    return report


def test_without_a_reason_nothing_is_written(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "checkpoints", 3600.0, FINGERPRINT, resume=True)
    assert run(SCENARIO, keeper=keeper).note == ""
    assert not (tmp_path / "checkpoints").exists()
    waiting = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in waiting), "cancelled, if its thread has not ended yet"


def test_the_clock_asks_for_checkpoints_which_change_nothing(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "checkpoints", 1e-9, FINGERPRINT, resume=False)
    started = threading.Event()
    outcome = run(SCENARIO, keeper=keeper, report=asking(keeper, lambda: started.wait(0.2)))
    assert list((tmp_path / "checkpoints").iterdir())
    assert outcome.note == ""
    expected = files_of(run(SCENARIO), tmp_path / "expected", SCENARIO)
    assert files_of(outcome, tmp_path / "kept", SCENARIO) == expected


@pytest.mark.parametrize("how", ["signal", "thread", "call"])
def test_who_asks_to_stop_gets_a_checkpoint_and_an_interrupt(how: str, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "checkpoints", None, FINGERPRINT, resume=True)

    def call() -> None:
        keeper.request(stop=True)

    def from_a_thread() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    ways = {"call": call, "thread": from_a_thread, "signal": lambda: os.kill(os.getpid(), signal.SIGUSR1)}
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        with pytest.raises(KeyboardInterrupt):
            run(SCENARIO, keeper=keeper, report=asking(keeper, ways[how]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    resumed = run(SCENARIO, keeper=Keeper(tmp_path / "checkpoints", None, FINGERPRINT, resume=True))
    assert "resumed from" in resumed.note
    assert files_of(resumed, tmp_path / "a", SCENARIO) == files_of(run(SCENARIO), tmp_path / "b", SCENARIO)


def test_who_asks_before_the_run_begins_is_heard(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "checkpoints", None, FINGERPRINT, resume=True)
    keeper.request(stop=True)
    with pytest.raises(KeyboardInterrupt):
        run(SCENARIO, keeper=keeper)


def test_a_run_on_its_way_back_stops_at_once_and_keeps_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    interrupted(SCENARIO, folder, [300])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    keeper = Keeper(folder, None, FINGERPRINT, resume=True)
    with pytest.raises(KeyboardInterrupt):
        run(SCENARIO, keeper=keeper, report=asking(keeper, lambda: keeper.request(stop=True), when=0))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_wish_that_comes_as_the_run_ends_changes_nothing(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "checkpoints", None, FINGERPRINT, resume=True)
    outcome = run(SCENARIO, keeper=keeper, report=asking(keeper, lambda: keeper.request(stop=True), when=12))
    assert outcome.info.counts["rounds"] == 12
    assert not (tmp_path / "checkpoints").exists()


def test_the_wall_clock_of_a_resumed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny(stop={"wall_clock": "100 s", "rounds": 12})
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def pass_time(seconds: float) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            clock[0] += seconds

        return report

    with pytest.raises(KeyboardInterrupt):
        run(scenario, keeper=KeptAt(tmp_path / "c", [200], stop=True), report=pass_time(1.0))
    spent = clock[0]
    assert 0 < spent < 100
    clock[0] = 1e6
    resumed = run(scenario, keeper=KeptAt(tmp_path / "c"), report=pass_time(0.0))
    assert resumed.info.stop_reason == "rounds"
    assert resumed.info.wall_clock_s == pytest.approx(spent)
    assert not resumed.info.reproducible


SHORT, LONG = {"rounds": 3}, {"rounds": 6}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", SOME)
def test_a_run_with_a_later_end_continues_from_a_shorter_one(kind: str, tmp_path: Path) -> None:
    short, long = (
        load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop=stop, evaluate={"every": "2 rounds"}))
        for stop in (SHORT, LONG)
    )
    _, last = whole(short)
    run(short, keeper=KeptAt(tmp_path / "kept", [last]))
    longer = run(long, keeper=KeptAt(tmp_path / "kept"))
    assert "resumed from" in longer.note
    assert files_of(longer, tmp_path / "longer", long) == files_of(run(long), tmp_path / "whole", long)
