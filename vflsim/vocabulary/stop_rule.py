"""The base class of stop rules on metrics. After each row of metrics a rule decides whether the run ends, and why.

To add one to vflsim: a final class in ``stop_rules.py``, and its name in ``StopRuleKind`` there.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import OrModule, blaming
from vflsim.vocabulary.metric import Better
from vflsim.vocabulary.metrics import REPORTED, column_of
from vflsim.vocabulary.quantities import Count, NonNegativeNumber, PositiveNumber
from vflsim.vocabulary.trial import ContractError, Trial

Row: TypeAlias = Mapping[str, float]
"""A row of metrics: ``time_s``, ``round``, ``updates``, ``bytes_up``, ``train_loss`` (NaN before the first step),
``test_accuracy``, and so on, by column. Example: ``row["test_accuracy"] > 0.9``."""


class StopRule(Part, ABC):
    """Ends a run by its metrics.

    Example of a class of your own, which a scenario names by
    ``stop: {rounds: 500, rules: {diverged: {kind: module, path: "mine:Diverged", factor: 10}}}``::

        class Diverged(StopRule):
            kind: Literal["diverged"] = "diverged"
            factor: PositiveNumber

            def ends(self, rows: Sequence[Row]) -> str:
                first, last = rows[0]["test_loss"], rows[-1]["test_loss"]
                return f"test_loss is {last:.3g}" if last > self.factor * first else ""
    """

    kind: str
    """The name of this kind, as scenarios write it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads and a scenario may lack, so that a mistake is told at load; by default none."""
        return ()

    @abstractmethod
    def ends(self, rows: Sequence[Row]) -> str:
        """Return why the run ends after the last of ``rows``, in a few words; empty if it goes on.

        ``rows`` are all rows of metrics so far, at least one, the first before any step. A function of the rows alone:
        a resumed run asks again about the same rows.
        """

    def asked(self, rows: Sequence[Row]) -> str:
        """Return ``ends``. Raises ``RunError``, with the place in the code, for what goes wrong in it."""
        with blaming(f"the stop rule {type(self).__name__}"):
            return as_answer(self.ends(rows), type(self).__name__)

    def _contract_at(self, trial: Trial, columns: Sequence[str]) -> None:
        """Ask about rows with these columns."""
        names = trial.fact("columns", _are_names, "a tuple of names")
        for name in names:
            allowed = ", ".join(columns)
            trial.must(name in columns, f"there is no column {name!r}", allowed, "", "choose one of them")
        rows = [_row(columns, number) for number in range(_ROWS)]
        for number in range(_ROWS):
            trial.ask("ends", tuple(rows[: number + 1]), where="about the same rows", call=self._tried)

    def _tried(self, rows: Sequence[Row]) -> str:
        return as_answer(self.ends(rows), type(self).__name__)


_ROWS = 12


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) for each in value)


def _row(columns: Sequence[str], number: int) -> Row:
    """Return a row to try rules with."""
    values = dict.fromkeys(columns, 1 / (number + 1))
    values |= {"time_s": 0.5 * number, "round": number, "updates": 2 * number}
    return row_of(values | ({} if number else {"train_loss": math.nan}))


def as_answer(value: Any, name: str) -> str:
    """Return a rule's answer. Raises ValueError for anything but text."""
    if not isinstance(value, str):
        what = f"{name}.ends returned {value!r:.60}; allowed: a text, why the run ends, or '' if it goes on"
        raise ContractError(f"{what}; mend 'ends' of the class")
    return value


def row_of(values: Mapping[str, float]) -> Row:
    """Return a row that nobody can change."""
    return MappingProxyType(dict(values))


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
