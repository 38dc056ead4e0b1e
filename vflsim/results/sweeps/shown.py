"""Sweeps and tunings as users hold them: with tables, which notebooks show, and answers."""

from __future__ import annotations

import pandas as pd

from vflsim.results.sweeps.answers import answers_frame
from vflsim.results.sweeps.frame import sweep_frame
from vflsim.results.sweeps.sweep import Sweep
from vflsim.results.sweeps.table import sweep_tables
from vflsim.results.sweeps.tuning import Tuning
from vflsim.results.sweeps.tuning_table import tuning_table
from vflsim.text_table import TextTable


class SweepResults(Sweep):
    """The finished part of a sweep, with tables and frames.

    Example: ``SweepResults.open("results/batches").tables()``
    """

    def tables(self, metric: str | None = None) -> list[TextTable]:
        """Make the tables that ``vflsim sweep`` prints: what was measured, and what the sweep answers.

        ``metric`` is shown alone: a metric, a measure, or a percentile of the rounds such as ``p99``.
        """
        return sweep_tables(self, metric)

    def runs(self) -> pd.DataFrame:
        """Return a row per run: see :func:`~vflsim.results.sweeps.frame.sweep_frame`."""
        return sweep_frame(self)

    def answers(self) -> pd.DataFrame:
        """Say which values are best: see :func:`~vflsim.results.sweeps.answers.answers_frame`."""
        return answers_frame(self)

    def _repr_html_(self) -> str:
        return "\n".join(table._repr_html_() for table in self.tables())


class TuningResults(Tuning):
    """A finished tuning, with its table."""

    def table(self) -> TextTable:
        """Make the table that ``vflsim tune`` prints."""
        return tuning_table(self)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
