"""Tables for ``vflsim compare``: one of all studies, and those of every sweep or tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError
from vflsim.results.joined import JoinedResults
from vflsim.results.read import Results
from vflsim.results.statistics.quantiles import quantile_table
from vflsim.results.store.write import SWEEP
from vflsim.results.sweeps.sweep import Sweep
from vflsim.results.sweeps.table import sweep_tables
from vflsim.results.sweeps.tuning import TUNING, Tuning, tuning_table
from vflsim.results.tables.comparison import comparison_table
from vflsim.text_table import TextTable


def opened(
    folders: Sequence[Path], baseline: str | None = None, targets: Mapping[str, Any] | None = None
) -> tuple[Results | None, list[Path]]:
    """Open the results among some folders, joined if there are several; also return the folders of sweeps.

    ``baseline`` is the protocol that the others are compared with, ``targets`` replaces the scenario's. Raises
    ResultsError for an unknown baseline, for one if there are only sweeps, and for a folder of anything else.
    """
    sweeps = [folder for folder in folders if (folder / SWEEP).is_file()]
    results = united([Results.open(folder) for folder in folders if folder not in sweeps], baseline)
    return None if results is None else results.with_targets(targets), sweeps


def united(studies: Sequence[Results], baseline: str | None) -> Results | None:
    """Return the only results, or several joined, compared with a baseline; None without any.

    Raises ResultsError for an unknown baseline, for one without results, and for a study named twice.
    """
    if studies:
        return (studies[0] if len(studies) == 1 else JoinedResults.of(studies)).against(baseline)
    if baseline is not None:
        raise ResultsError("the tables of a sweep have no baseline", "--baseline", "with the results of a scenario")
    return None


def table_of(
    results: Results, quantiles: bool = False, targets: Mapping[str, Any] | None = None, pairing: bool = False
) -> TextTable:
    """Make the comparison of results, or their ``quantiles``; see ``comparison_table`` for the other parameters."""
    return quantile_table(results) if quantiles else comparison_table(results, targets, pairing)


def tables_of(
    folder: Path,
    quantiles: bool = False,
    targets: Mapping[str, Any] | None = None,
    pairing: bool = False,
    metric: str | None = None,
) -> list[TextTable]:
    """Make the tables of a folder: the comparison or ``quantiles`` of results, a sweep's tables, or a tuning's scores.

    ``targets`` and ``pairing`` are those of :func:`~vflsim.results.tables.comparison.comparison_table`, ``metric`` that
    of :func:`~vflsim.results.sweeps.table.sweep_tables`. Raises ResultsError for any other folder.
    """
    if not (folder / SWEEP).is_file():
        return [table_of(Results.open(folder), quantiles, targets, pairing)]
    return tables_of_sweep(Sweep.open(folder, targets), metric, quantiles)


def tables_of_sweep(sweep: Sweep, metric: str | None = None, quantiles: bool = False) -> list[TextTable]:
    """Make the tables of a sweep, or without a ``metric`` or ``quantiles`` a tuning's scores. Raises ResultsError."""
    if (sweep.folder / TUNING).is_file() and metric is None and not quantiles:
        return [tuning_table(Tuning.open(sweep.folder))]
    return sweep_tables(sweep, metric, quantiles)
