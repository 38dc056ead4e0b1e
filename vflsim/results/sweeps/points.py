"""Tables with a row for every point of a sweep, in which choices and the world are told apart."""

from __future__ import annotations

from collections.abc import Mapping

from vflsim.results.sweeps.sweep import Sweep
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.plain_yaml import flow


def points_table(sweep: Sweep, cells: Mapping[tuple[int, str], Cell], title: str) -> DataTable:
    """Tabulate a cell for every point, by its position, and protocol; a dash where there is none."""
    rows = [
        (*map(flow, point), *(cells.get((position, name), "—") for name in sweep.protocols))
        for position, point in enumerate(sweep.points)
    ]
    return DataTable((*key_heads(sweep), *sweep.protocols), rows, title=f"{sweep.scenario}: {title}")


def key_heads(sweep: Sweep) -> list[str]:
    """Return a column's head for each key; where keys are of both sorts, with ``choice`` or ``world`` behind it."""
    both = len({*sweep.choices}) > 1
    sorts = [" (choice)" if chosen else " (world)" for chosen in sweep.choices]
    return [axis.label + sort * both for axis, sort in zip(sweep.axes, sorts, strict=True)]
