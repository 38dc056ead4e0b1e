"""The stop rules on metrics, as scenarios name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.metric import Better
from vflsim.vocabulary.metrics import REPORTED, column_of
from vflsim.vocabulary.quantities import Count, NonNegativeNumber, PositiveNumber
from vflsim.vocabulary.stop_rule import Row, StopRule


@final
class NoImprovement(StopRule):
    """Early stopping: a metric has not been better than before for some evaluations.

    Example: ``{kind: no_improvement, metric: validation_loss, better: lower, evaluations: 10, least: 0.001}``
    """

    kind: Literal["no_improvement"] = "no_improvement"
    metric: str
    """A column of the metrics, such as ``validation_loss``."""
    better: Better | None = None
    """Whether ``higher`` or ``lower`` values are better; left out: as the metric says, if every run reports it."""
    evaluations: Count = 10
    """How many evaluations in a row may be no better than the best one before them."""
    least: NonNegativeNumber = 0.0
    """By how much a value must be better to count."""

    @property
    @override
    def columns(self) -> tuple[str, ...]:
        return (self.metric,)

    @override
    def ends(self, rows: Sequence[Row]) -> str:
        sign = 1 if self._better == "higher" else -1
        values = [sign * row[self.metric] for row in rows if row[self.metric] == row[self.metric]]
        best, since = float("-inf"), 0
        for value in values:
            best, since = (value, 0) if value > best + self.least or best == float("-inf") else (best, since + 1)
        if since < self.evaluations:
            return ""
        return f"{self.metric} has not been better than {sign * best:.6g} for {since} evaluations"

    @property
    def _better(self) -> Better:
        if self.better is not None:
            return self.better
        bare = column_of(self.metric).partition("_")[2]
        if bare not in REPORTED:
            what = f"{self.metric} does not say here which direction is better"
            raise ValueError(f"{what}; allowed: better: higher, better: lower; add one of them")
        return REPORTED[bare].facts.better


@final
class Exceeds(StopRule):
    """A metric has grown beyond a multiple of what it was before any step: the run diverges, and goes on in vain.

    Example: ``{kind: exceeds, metric: test_loss, times: 10}``
    """

    kind: Literal["exceeds"] = "exceeds"
    metric: str = "test_loss"
    """A column of the metrics."""
    times: PositiveNumber = 10.0
    """The multiple of its first value."""

    @property
    @override
    def columns(self) -> tuple[str, ...]:
        return (self.metric,)

    @override
    def ends(self, rows: Sequence[Row]) -> str:
        values = [row[self.metric] for row in rows if row[self.metric] == row[self.metric]]
        if not values or values[-1] <= self.times * values[0]:
            return ""
        return (
            f"{self.metric} is {values[-1]:.6g}, {self.times:g} times the first value is {self.times * values[0]:.6g}"
        )


StopRuleKind: TypeAlias = NoImprovement | Exceeds
STOP_RULES: tuple[type[StopRule], ...] = get_args(StopRuleKind)
"""Every kind of stop rule on metrics."""

AnyStopRule = Annotated[StopRuleKind, Field(discriminator="kind"), OrModule(StopRule)]
"""A field that takes any kind of stop rule on metrics."""
