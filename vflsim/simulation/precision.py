"""The stop rule ``precision``: a run ends when its mean round duration is precise enough."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterator
from typing import final

import numpy as np

from vflsim.intervals.steady import SteadyMean, steady_mean
from vflsim.intervals.variation import Variation, lacking
from vflsim.scenario.stop import Precision, Stop
from vflsim.timing.floats import Floats

FIRST = 200
"""Rounds before the first check."""
MOST_ROUNDS = 1e15
"""Larger estimates count as infinite."""
INDEPENDENT = 200
"""Independent rounds as which a run's rounds must count, at least, where they count like fewer than half of them."""
GROWTH = 1.5
"""Growth of the number of rounds from one check to the next."""


def checkpoints() -> Iterator[int]:
    """Yield the numbers of rounds at which the rule checks: 200, 300, 450, 675, 1013, … without end.

    They are the same in every run, and few: checking after every round would stop when chance makes the interval
    narrow, and so miss the stated confidence.
    """
    rounds = FIRST
    while True:
        yield rounds
        rounds = math.ceil(rounds * GROWTH)


def expected_rounds(precision: Precision, durations: Floats, variation: Variation | None = None) -> float:
    """Estimate after how many rounds a run ends from the durations of its first ones; inf if they are too few.

    An interval's width falls with the square root of the rounds. Slow changes have to come round often enough.
    """
    if variation is not None and variation.never:
        return math.inf
    found = steady_mean(durations, precision.confidence)
    wanted = precision.round_duration * found.mean
    if math.isnan(found.half_width) or (wanted == 0 < found.half_width):
        return math.inf
    ratio = found.half_width / wanted if found.half_width > 0 else 0.0
    if ratio > MOST_ROUNDS:  # its square may overflow
        return math.inf
    needed = found.n * ratio * ratio
    if _dependent(found):
        needed = max(needed, INDEPENDENT * found.n / found.independent)
    if variation is not None and found.mean > 0:
        needed = max(needed, variation.rounds, variation.needed_s / found.mean)
    looks = (count for count in checkpoints() if count >= needed)
    return float(next(itertools.islice(looks, int(_looks_twice(found, variation)), None)))


def not_ended(stop: Stop, variation: Variation | None, reason: str | None, rounds: int, seconds: float) -> str:
    """Say why ``stop.precision`` could not end a run of so many rounds and seconds, which ended for another reason."""
    missing = lacking(variation, rounds, seconds)
    return f"stop.precision could not end it: {missing}" if stop.precision and missing and reason != "precision" else ""


@final
class PrecisionRule:
    """Decides from the durations of a run's rounds, given in order, when to end.

    The decision depends on the durations alone, whether they come one by one or in chunks. The run ends at the first
    checkpoint at which :func:`~vflsim.intervals.steady.steady_mean` is sound (settled, batches uncorrelated,
    enough cycles of the slow changes that the scenario's ``variation`` names) and half its interval is at most
    ``round_duration`` times the mean. Where a variance may be infinite, it never ends.

    Rounds that count like fewer than half as many independent ones must count like ``INDEPENDENT``: batches that are
    shorter than the dependence vary too little now and then, and a rule that ends there misses the confidence. Such
    rounds must meet the rule at two checkpoints in a row, since a chance that ends a run seldom lasts until the next,
    unless the scenario names a slow change, which is waited for instead.
    """

    def __init__(self, precision: Precision, variation: Variation | None = None) -> None:
        self._precision, self._variation = precision, variation
        self._durations = array("d")
        self._checkpoints = checkpoints()
        self._next = next(self._checkpoints)
        self._met = False

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return len(self._durations)

    def add(self, duration: float) -> bool:
        """Add a round (seconds); return whether the run ends with it."""
        self._durations.append(duration)
        return len(self._durations) == self._next and self._look()

    def extend(self, durations: Floats) -> int | None:
        """Add rounds (n,); return after how many of them the run ends, None if it continues; ignore later ones."""
        given = np.ascontiguousarray(durations, dtype=np.float64)
        start = 0
        while start + (short := self._next - self.rounds) <= len(given):
            self._durations.frombytes(given[start : start + short].tobytes())
            start += short
            if self._look():
                return start
        self._durations.frombytes(given[start:].tobytes())
        return None

    def found(self) -> SteadyMean:
        """Return the mean so far, with the interval that the rule checks."""
        return steady_mean(np.array(self._durations), self._precision.confidence, self._variation)

    def _look(self) -> bool:
        self._next = next(self._checkpoints)
        found, before = self.found(), self._met
        precise = found.half_width <= self._precision.round_duration * found.mean
        self._met = precise and found.sound and found.independent >= min(INDEPENDENT, found.n / 2)
        return self._met and (before or not _looks_twice(found, self._variation))


def _dependent(found: SteadyMean) -> bool:
    """Whether a run's rounds count like fewer than half as many independent ones."""
    return found.independent < found.n / 2


def _looks_twice(found: SteadyMean, variation: Variation | None) -> bool:
    """Whether rounds depend on each other, and the scenario names no slow change that explains it."""
    return _dependent(found) and (variation is None or not variation.cycles)
