"""The base class of measures: one number about a finished run, estimated over seeds like the built-in measures.

To add one to vflsim: a final class in ``measures.py``, and its name in ``MeasureKind`` there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import blaming
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
            found = as_number(self.value(run), type(self).__name__)
        return MeasuredValue(value=None if math.isnan(found) else found, unit=self.unit)

    def _contract_at(self, trial: Trial, columns: Mapping[str, Sequence[str]]) -> None:
        """Measure runs with these columns of metrics, rounds and events."""
        trial.fact("unit", is_any(str), "a text, empty for none")
        for column in self.columns:
            allowed = ", ".join(columns["metrics"])
            trial.must(
                column in columns["metrics"], f"there is no column {column!r}", allowed, "", "choose one of them"
            )
        for kept in (("metrics", "rounds", "events"), ("metrics", "rounds"), ("metrics",)):
            tables = [_table(columns[name]) if name in kept else None for name in ("metrics", "rounds", "events")]
            trial.ask("value", *tables, where="for the same tables", call=self._tried)

    def _tried(self, *tables: Any) -> float:
        return as_number(self.value(FinishedRun("trial", 0, *tables)), type(self).__name__)


def as_number(value: Any, name: str) -> float:
    """Return a measure's value as a float. Raises ValueError for anything but a number, and for infinity."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        what = f"{name}.value returned a {type(value).__name__}; allowed: one number"
        raise ContractError(f"{what}; mend 'value' of the class") from None
    if math.isinf(found):
        raise ContractError(f"{name}.value is {found}; allowed: finite, or NaN for none; mend 'value' of the class")
    return found


_ROWS = 8


def _table(columns: Sequence[str]) -> pd.DataFrame:
    """Return a table to try measures with."""
    import numpy as np
    import pandas as pd

    texts = {"party": "server", "kind": "compute.embed", "outcome": "done", "peer": "done"}
    numbers = range(_ROWS)
    made: dict[str, list[Any]] = {}
    for name in columns:
        if name in ("used", "missing", "fresh"):  # numbers of clients
            made[name] = [np.arange(1, 3, dtype=np.int32)] * _ROWS
        elif name in texts:
            made[name] = [texts[name]] * _ROWS
        elif name in ("round", "updates"):
            made[name] = [*numbers]
        else:
            made[name] = [0.5 * (number + 1) if name.endswith("_s") else 1 / (number + 1) for number in numbers]
    return pd.DataFrame({name: pd.Series(values) for name, values in made.items()})
