"""Measures of the tests' own, as users write them: some work, and some break their contract, each in one way."""

import math
import random
from typing import Any, ClassVar, Literal

from vflsim.protocol import FinishedRun, Measure


class LongestRound(Measure):
    kind: Literal["longest_round"] = "longest_round"
    unit: ClassVar[str] = "s"

    def value(self, run: FinishedRun) -> float:
        return math.nan if run.rounds is None else (run.rounds["end_s"] - run.rounds["start_s"]).max()


class Messages(Measure):
    """How many events of one kind the run has."""

    kind: Literal["messages"] = "messages"
    of: str = "upload"

    def value(self, run: FinishedRun) -> float:
        return math.nan if run.events is None else int((run.events["kind"] == self.of).sum())


class Text(LongestRound):
    def value(self, run: FinishedRun) -> Any:
        return "long"


class Infinite(LongestRound):
    def value(self, run: FinishedRun) -> float:
        return math.inf


class Random(LongestRound):
    def value(self, run: FinishedRun) -> float:
        return random.random()


class Writes(LongestRound):
    def value(self, run: FinishedRun) -> float:
        run.metrics["time_s"] = 0.0
        return 0.0


class F9(LongestRound):
    def value(self, run: FinishedRun) -> float:
        return run.metrics["test_f9"].max()


class Column(LongestRound):
    @property
    def columns(self) -> tuple[str, ...]:
        return ("test_f9",)


class NoUnit(LongestRound):
    unit: ClassVar[Any] = None


class NeedsRounds(LongestRound):
    def value(self, run: FinishedRun) -> float:
        return len(run.rounds)  # type: ignore[arg-type]


class LateFailure(LongestRound):
    def value(self, run: FinishedRun) -> float:
        if run.rounds is not None and len(run.rounds) > 8:
            raise LookupError("many rounds")
        return 0.0
