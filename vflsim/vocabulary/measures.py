"""The measures that a scenario may add to those of every summary."""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import AfterValidator, Field
from typing_extensions import override

from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.measure import FinishedRun, Measure
from vflsim.vocabulary.metric import Better
from vflsim.vocabulary.quantities import Quantity

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_TAKEN = re.compile(
    r"(end|plateau)(_.*)?|(time_of_)?best_(validation|test)_.*|bytes(_.*)?|rounds|updates|(time|rounds)_to_target|(steady_)?round_duration"
)


@final
class RoundQuantile(Measure):
    """A quantile of the durations of a run's rounds: how long all but the slowest take.

    Example: ``{kind: round_quantile, level: 0.95}``
    """

    kind: Literal["round_quantile"] = "round_quantile"
    unit: ClassVar[str] = "s"
    level: Annotated[float, Quantity(at_least=0, at_most=1)] = 0.95
    """The share of the rounds that are no longer."""

    @override
    def value(self, run: FinishedRun) -> float:
        if run.rounds is None or not len(run.rounds):
            return math.nan
        ends = run.rounds["end_s"]
        return float(ends.diff().fillna(ends).quantile(self.level))


@final
class BestValue(Measure):
    """The best value of a metric at any evaluation, as early stopping would find it.

    Example: ``{kind: best, metric: validation_accuracy, better: higher}``
    """

    kind: Literal["best"] = "best"
    metric: str
    """A column of the metrics."""
    better: Better
    """Whether ``higher`` or ``lower`` values are better."""

    @property
    @override
    def columns(self) -> tuple[str, ...]:
        return (self.metric,)

    @override
    def value(self, run: FinishedRun) -> float:
        if self.metric not in run.metrics:  # without training
            return math.nan
        values = run.metrics[self.metric].dropna()
        return float(values.max() if self.better == "higher" else values.min())


MeasureKind: TypeAlias = RoundQuantile | BestValue
MEASURES: tuple[type[Measure], ...] = get_args(MeasureKind)
"""Every kind of measure that a scenario may ask for."""

AnyMeasure = Annotated[MeasureKind, Field(discriminator="kind"), OrModule(Measure)]
"""A field that takes any kind of measure."""


def _measure_name(name: str) -> str:
    if not _NAME.fullmatch(name) or _TAKEN.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a measure; allowed: 1 to 32 of a-z, 0-9, _, beginning with a letter, and no name of "
            "a measure that every summary has; choose another name"
        )
    return name


MeasureName: TypeAlias = Annotated[str, AfterValidator(_measure_name)]
"""A name of a measure of the key ``measures``."""
