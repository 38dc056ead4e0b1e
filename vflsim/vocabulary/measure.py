"""The base class of measures: one number about a finished run, estimated over seeds like the built-in measures.

To add one to vflsim: a final class in ``measures.py``, and its name in ``MeasureKind`` there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from vflsim.errors import RunError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import origin, reason

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
        try:
            found = as_number(self.value(run), type(self).__name__)
        except Exception as error:  # the user's code may raise anything
            what = f"the measure {type(self).__name__} fails: {reason(error)}"
            raise RunError(what, remedy=f"mend it; raised in {origin(error)}") from error
        return MeasuredValue(value=None if math.isnan(found) else found, unit=self.unit)


def as_number(value: Any, name: str) -> float:
    """Return a measure's value as a float. Raises ValueError for anything but a number, and for infinity."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        what = f"{name}.value returned a {type(value).__name__}; allowed: one number"
        raise ValueError(f"{what}; mend 'value' of the class") from None
    if math.isinf(found):
        raise ValueError(f"{name}.value is {found}; allowed: finite, or NaN for none; mend 'value' of the class")
    return found
