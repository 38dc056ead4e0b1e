"""The stop rule ``precision``: a run ends when its mean round duration is precise enough."""

import itertools
import math
from array import array
from collections.abc import Callable, Iterator
from typing import Annotated, Any, final

import numpy as np
from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from vflsim.books import Counts
from vflsim.intervals import SteadyMean, Variation, lacking, steady_mean
from vflsim.stopping.end_rule import UNKNOWN, End, EndRule, Plain, RoundFacts, Stretch, Tally
from vflsim.timing.floats import Floats
from vflsim.vocabulary.base import Part, Shorthand
from vflsim.vocabulary.targets import share_of
from vflsim.world.party import RunContext

FINEST = 1e-6
"""The finest precision of a mean: it takes 4 · 10¹² exponential rounds."""
FIRST = 200
"""Rounds before the first check."""
MOST_ROUNDS = 1e15
"""Larger estimates count as infinite."""
INDEPENDENT = 200
"""Independent rounds as which a run's rounds must count, at least, where they count like fewer than half of them."""
GROWTH = 1.5
"""Growth of the number of rounds from one check to the next."""


class _ShareField:
    """Annotation: reads ``1 %`` or ``0.01`` as a number above 0 and below 1."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_share)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, _PERCENT_SCHEMA]}


_PERCENT_SCHEMA: JsonSchemaValue = {"type": "string", "description": "a share of 100 %, above 0 % and below 100 %"}


def _share(value: Any, info: ValidationInfo) -> float:
    share, percent = share_of(value, (info.context or {}).get("symbols") or {})
    if not 0 < share < 1:
        remedy = f"; write {value} % if per cent are meant" if not percent and 1 <= share < 100 else ""
        raise ValueError(f"{value} is out of range; allowed: above 0 and below 1, as in 0.01 or 1 %{remedy}")
    return share


def _within_reach(share: float) -> float:
    if share < FINEST:
        raise ValueError(
            f"{share:g} is out of reach, as the rounds that a mean needs grow with the square; "
            f"allowed: at least {FINEST:g} ({100 * FINEST:g} %)"
        )
    return share


class Precision(Part):
    """Required precision of a run's mean round duration.

    Example: ``{round_duration: 1 %, confidence: 0.99}``
    """

    round_duration: Annotated[float, _ShareField(), AfterValidator(_within_reach)]
    """Half the interval's width, relative to the mean: ``1 %`` or 0.01."""
    confidence: Annotated[float, _ShareField()] = 0.95
    """Confidence of the interval."""


PrecisionField = Annotated[
    Precision,
    Shorthand(
        lambda value: {"round_duration": value} if isinstance(value, str | int | float) else value,
        {"anyOf": [{"type": "number"}, _PERCENT_SCHEMA]},
    ),
]
"""A field that takes ``1 %`` for ``{round_duration: 1 %}``."""


def checkpoints() -> Iterator[int]:
    """Yield the numbers of rounds at which the rule checks: 200, 300, 450, 675, 1013, … without end.

    They are the same in every run, and few: checking after every round would stop when chance makes the interval
    narrow, and so miss the stated confidence.
    """
    rounds = FIRST
    while True:
        yield rounds
        rounds = math.ceil(rounds * GROWTH)


@final
class PrecisionRule(EndRule):
    """Decides from the durations of a run's rounds, given in order, when to end.

    The decision depends on the durations alone, whether they come one by one or in chunks. The run ends at the first
    checkpoint at which :func:`~vflsim.intervals.steady_mean` is sound (settled, batches uncorrelated,
    enough cycles of the slow changes that the scenario's ``variation`` names) and half its interval is at most
    ``round_duration`` times the mean. Where a variance may be infinite, it never ends.

    Rounds that count like fewer than half as many independent ones must count like ``INDEPENDENT``: batches that are
    shorter than the dependence vary too little now and then, and a rule that ends there misses the confidence. Such
    rounds must meet the rule at two checkpoints in a row, since a chance that ends a run seldom lasts until the next,
    unless the scenario names a slow change, which is waited for instead.
    """

    key, by, on_arrays, asks_variation = "precision", "round", True, True
    limit: Precision

    def __init__(self, limit: Precision, facts: RoundFacts = UNKNOWN) -> None:
        super().__init__(limit, facts)
        self._variation = facts.variation
        self.durations = array("d")
        """Those of the rounds so far (s)."""
        self._checkpoints = checkpoints()
        self._next = next(self._checkpoints)
        self._met = False
        self._ended = 0.0

    @override
    def begin(self, run: RunContext, elapsed: Callable[[], float]) -> None:
        self._now = run.world.now

    @override
    def after_step(self, counts: Counts) -> bool:
        before, self._ended = self._ended, self._now()
        return self.add(self._ended - before)

    @override
    def in_chunk(self, stretch: Stretch, other: End | None) -> End | None:
        after = self.extend(stretch.durations)
        return other if after is None else stretch.after_rounds(after, self.key, other)

    @override
    def rounds_needed(self, done: Tally, durations: Floats) -> float:
        """Estimate after how many rounds a run ends; inf if its first ones are too few to tell.

        An interval's width falls with the square root of the rounds. Slow changes have to come round often enough.
        """
        known = self._variation
        if known is not None and known.never:
            return math.inf
        steady = steady_mean(durations, self.limit.confidence)
        goal = self.limit.round_duration * steady.mean
        if math.isnan(steady.half_width) or (goal == 0 < steady.half_width):
            return math.inf
        ratio = steady.half_width / goal if steady.half_width > 0 else 0.0
        if ratio > MOST_ROUNDS:  # its square may overflow
            return math.inf
        needed = steady.n * ratio * ratio
        if _dependent(steady):
            needed = max(needed, INDEPENDENT * steady.n / steady.independent)
        if known is not None and steady.mean > 0:
            needed = max(needed, known.rounds, known.needed_s / steady.mean)
        looks = (count for count in checkpoints() if count >= needed)
        return float(next(itertools.islice(looks, int(_looks_twice(steady, known)), None)))

    @override
    def note(self, reason: str | None, rounds: int, seconds: float) -> str:
        missing = lacking(self._variation, rounds, seconds)
        return f"stop.precision could not end it: {missing}" if missing and reason != self.key else ""

    @classmethod
    @override
    def later(cls, limit: Plain, before: Plain) -> bool:
        tighter = limit["round_duration"] <= before["round_duration"]
        return bool(tighter and limit["confidence"] == before["confidence"])

    def add(self, duration: float) -> bool:
        """Add a round (seconds); return whether the run ends with it."""
        self.durations.append(duration)
        return len(self.durations) == self._next and self._look()

    def extend(self, durations: Floats) -> int | None:
        """Add rounds (n,); return after how many of them the run ends, None if it continues; ignore later ones."""
        seconds = np.ascontiguousarray(durations, dtype=np.float64)
        start = 0
        while start + (short := self._next - len(self.durations)) <= len(seconds):
            self.durations.frombytes(seconds[start : start + short].tobytes())
            start += short
            if self._look():
                return start
        self.durations.frombytes(seconds[start:].tobytes())
        return None

    def so_far(self) -> SteadyMean:
        """Return the mean so far, with the interval that the rule checks."""
        return steady_mean(np.array(self.durations), self.limit.confidence, self._variation)

    def _look(self) -> bool:
        self._next = next(self._checkpoints)
        steady, before = self.so_far(), self._met
        precise = steady.half_width <= self.limit.round_duration * steady.mean
        self._met = precise and steady.sound and steady.independent >= min(INDEPENDENT, steady.n / 2)
        return self._met and (before or not _looks_twice(steady, self._variation))


def _dependent(steady: SteadyMean) -> bool:
    """Whether a run's rounds count like fewer than half as many independent ones."""
    return steady.independent < steady.n / 2


def _looks_twice(steady: SteadyMean, variation: Variation | None) -> bool:
    """Whether rounds depend on each other, and the scenario names no slow change that explains it."""
    return _dependent(steady) and (variation is None or not variation.cycles)
