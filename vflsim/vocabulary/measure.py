"""The base class of measures: one number about a finished run, estimated over seeds like the built-in measures.

To add one to vflsim: a final class in ``measures.py``, and its name in ``MeasureKind`` there.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import override

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import OrModule, blaming
from vflsim.vocabulary.metric import Better
from vflsim.vocabulary.quantities import Quantity
from vflsim.vocabulary.trial import ContractError, Trial, is_any

if TYPE_CHECKING:
    import pandas as pd


class MeasuredValue(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A measure of one run, as ``run.json`` has it: None where the run has no such value.

    Example: ``MeasuredValue(value=0.25, unit="s")``
    """

    value: float | None
    unit: str = ""


@dataclass(frozen=True)
class FinishedRun:
    """The tables of a run that a measure gets, as ``docs/results.md`` describes them. No method may change a table.

    ``rounds`` and ``events`` are None where the scenario's ``record`` does not keep them.

    Example: ``run.metrics["test_accuracy"].max()``
    """

    protocol: str
    seed: int
    metrics: pd.DataFrame
    rounds: pd.DataFrame | None = None
    events: pd.DataFrame | None = None


class Measure(Part, ABC):
    """A number about each finished run: a column of the summary.

    Example of a class of your own, which a scenario names by
    ``measures: {idle: {kind: module, path: "mine:LongestRound"}}``::

        class LongestRound(Measure):
            kind: Literal["longest_round"] = "longest_round"
            unit: ClassVar[str] = "s"

            def value(self, run: FinishedRun) -> float:
                return math.nan if run.rounds is None else run.rounds["end_s"].diff().max()
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    unit: ClassVar[str] = ""
    """The unit of its values; empty: none."""

    @abstractmethod
    def value(self, run: FinishedRun) -> float:
        """Return the number; NaN where the run has none. A function of the tables alone."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the metrics that it needs, so that a mistake is told before anything runs; by default none."""
        return ()

    def measured(self, run: FinishedRun) -> MeasuredValue:
        """Return the value for ``run.json``. Raises ``RunError``, with the place in the code, for any failure."""
        with blaming(f"the measure {type(self).__name__}"):
            number = as_number(self.value(run), type(self).__name__)
        return MeasuredValue(value=None if math.isnan(number) else number, unit=self.unit)

    def _contract_at(self, trial: Trial, columns: Mapping[str, Sequence[str]]) -> None:
        """Measure runs with these columns of metrics, rounds and events."""
        trial.fact("unit", is_any(str), "a text, empty for none")
        for column in self.columns:
            allowed = ", ".join(columns["metrics"])
            trial.must(
                column in columns["metrics"], f"there is no column {column!r}", allowed, "", "choose one of them"
            )
        for selection in (("metrics", "rounds", "events"), ("metrics", "rounds"), ("metrics",)):
            tables = [_table(columns[name]) if name in selection else None for name in ("metrics", "rounds", "events")]
            trial.ask("value", *tables, where="for the same tables", call=self._tried)

    def _tried(self, *tables: Any) -> float:
        return as_number(self.value(FinishedRun("trial", 0, *tables)), type(self).__name__)


def as_number(value: Any, name: str) -> float:
    """Return a measure's value as a float. Raises ValueError for anything but a number, and for infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        what = f"{name}.value returned a {type(value).__name__}; allowed: one number"
        raise ContractError(f"{what}; mend 'value' of the class") from None
    if math.isinf(number):
        raise ContractError(f"{name}.value is {number}; allowed: finite, or NaN for none; mend 'value' of the class")
    return number


_ROWS = 8


def _table(columns: Sequence[str]) -> pd.DataFrame:
    """Return a table to try measures with."""
    import numpy as np
    import pandas as pd

    texts = {"party": "server", "kind": "compute.embed", "outcome": "done", "peer": "done"}
    numbers = range(_ROWS)
    data: dict[str, list[Any]] = {}
    for name in columns:
        if name in ("used", "missing", "fresh"):  # numbers of clients
            data[name] = [np.arange(1, 3, dtype=np.int32)] * _ROWS
        elif name in texts:
            data[name] = [texts[name]] * _ROWS
        elif name in ("round", "updates"):
            data[name] = [*numbers]
        else:
            data[name] = [0.5 * (number + 1) if name.endswith("_s") else 1 / (number + 1) for number in numbers]
    return pd.DataFrame({name: pd.Series(values) for name, values in data.items()})


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
