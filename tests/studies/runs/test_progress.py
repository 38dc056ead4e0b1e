"""The time that a study still takes: exact arithmetic, by a clock of the test's own."""

from __future__ import annotations

import pytest

from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.progress import Remaining, StudyRun

RUNS = {"wait": 2, "async": 2}


class Story:
    """What a watcher hears of four runs, two of each protocol, at times by ``now``."""

    def __init__(self) -> None:
        self.now = 50.0
        self.remaining = Remaining(RUNS, lambda: self.now)
        self._row = 0

    def began(self, protocol: str, seed: int) -> StudyRun:
        run = StudyRun(protocol, seed, 0, 4)
        self.remaining.began(run)
        return run

    def row(self, run: StudyRun, share: float, after: float) -> None:
        """A new row of metrics, so many seconds later."""
        self.now += after
        self._row += 1
        self.remaining.progressed(run, Progress(0.0, 0, 0, {"train_loss": self._row}, share))


def test_nothing_is_said_before_a_run_has_a_pace() -> None:
    story = Story()
    assert story.remaining.seconds(4) is None
    run = story.began("wait", 0)
    assert story.remaining.seconds(3) is None
    story.row(run, 0.0, after=2)
    assert story.remaining.seconds(3) is None
    story.row(run, 0.0, after=2)  # only a target ends it
    assert story.remaining.seconds(3) is None


def test_a_run_continues_at_its_pace_between_rows() -> None:
    story = Story()
    run = story.began("wait", 0)
    story.row(run, 0.5, after=3)  # resumed: the first half was done before
    story.row(run, 0.75, after=5)
    assert story.remaining.seconds(0) == pytest.approx(5)
    story.now += 2
    assert story.remaining.seconds(0) == pytest.approx(3)
    story.remaining.progressed(run, Progress(0.0, 0, 0, {"train_loss": story._row}, 0.99))  # training lies behind this
    assert story.remaining.seconds(0) == pytest.approx(3)
    assert story.remaining.seconds(3) == pytest.approx(3 + 3 * 20)


def test_runs_to_begin_take_as_long_as_those_of_their_protocol() -> None:
    story = Story()
    story.remaining.ended(story.began("wait", 0), 10.0)
    story.remaining.ended(story.began("async", 0), 30.0)
    assert story.remaining.seconds(2) == pytest.approx(40)
    story.remaining.ended(story.began("wait", 1), 14.0)
    assert story.remaining.seconds(1) == pytest.approx(30)
    story.remaining.ended(story.began("async", 1))  # failed
    assert story.remaining.seconds(0) == 0


def test_two_workers_share_what_is_left() -> None:
    story = Story()
    one, other = story.began("wait", 0), story.began("async", 0)
    for run in (one, other):
        story.row(run, 0.0, after=0)
    story.row(one, 0.5, after=4)
    story.row(other, 0.25, after=0)
    # 4 s and 12 s are left of 8 s and of 16 s; the next runs take 12 s on average
    assert story.remaining.seconds(1) == pytest.approx(4 + 12)
    assert story.remaining.seconds(2) == pytest.approx(12 + 12)


def test_the_time_in_which_files_are_written_counts() -> None:
    story = Story()
    run = story.began("wait", 0)
    story.now += 12
    story.remaining.ended(run, 10.0)
    assert story.remaining.seconds(1) == pytest.approx(12)


def test_what_follows_the_runs_is_left_until_the_end() -> None:
    remaining = Remaining({"wait": 1}, lambda: 0.0, after_s=3.0)
    run = StudyRun("wait", 0, 1, 1)
    remaining.began(run)
    remaining.ended(run, 10.0)
    assert remaining.seconds(0) == 3


def test_runs_end_at_the_share_at_which_a_target_has_ended_others() -> None:
    story = Story()
    first = story.began("wait", 0)
    story.row(first, 0.0, after=0)
    story.row(first, 0.25, after=10)
    story.remaining.ended(first, 10.0)
    second = story.began("wait", 1)
    story.row(second, 0.0, after=0)
    story.row(second, 0.125, after=5)
    assert story.remaining.seconds(0) == pytest.approx(5)
    story.row(second, 0.375, after=10)  # further than the other
    assert story.remaining.seconds(0) == pytest.approx((1 - 0.375) * 40)
