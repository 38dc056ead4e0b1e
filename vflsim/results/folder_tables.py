"""Tables for ``vflsim compare``: a comparison, quantiles, or those of a sweep or a tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError
from vflsim.results.layout import TextTable
from vflsim.results.quantiles import quantile_table
from vflsim.results.read import Results
from vflsim.results.report import comparison_table
from vflsim.results.sweep import Sweep
from vflsim.results.sweep_table import sweep_tables
from vflsim.results.tuning import TUNING, Tuning
from vflsim.results.tuning_table import tuning_table
from vflsim.results.write import SWEEP


def tables_of(
    folder: Path, quantiles: bool = False, targets: Mapping[str, Any] | None = None, pairing: bool = False
) -> list[TextTable]:
    """Make the tables of a folder: the comparison or ``quantiles`` of results, a sweep's tables, or a tuning's scores.

    ``targets`` and ``pairing`` are those of :func:`~vflsim.results.report.comparison_table`.
    Raises ResultsError for any other folder, and for quantiles of a sweep (they are of one value).
    """
    if not (folder / SWEEP).is_file():
        results = Results.open(folder)
        return [quantile_table(results) if quantiles else comparison_table(results, targets, pairing)]
    sweep = Sweep.open(folder, targets)
    if quantiles:
        allowed = ", ".join(str(found.folder) for found in sweep.results)
        raise ResultsError("quantiles are of one value of a sweep", str(folder), allowed, "name one of its folders")
    return [tuning_table(Tuning.open(folder))] if (folder / TUNING).is_file() else sweep_tables(sweep)
