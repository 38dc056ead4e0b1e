"""Trial of a measure on small tables with the columns of a scenario: it must give one number, and repeat it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vflsim.vocabulary.measure import FinishedRun, Measure, as_number

_ROWS = 8


def try_out(measure: Measure, columns: Mapping[str, Sequence[str]]) -> None:
    """Measure runs with these columns of metrics, rounds and events. Raises ValueError for the first mistake."""
    name, unit = type(measure).__name__, measure.unit
    if not isinstance(unit, str):
        raise ValueError(f"{name}.unit is {unit!r}; allowed: a text, empty for none; mend 'unit' of the class")
    if unknown := [each for each in measure.columns if each not in columns["metrics"]]:
        allowed = ", ".join(columns["metrics"])
        raise ValueError(f"there is no column {unknown[0]!r}; allowed: {allowed}; choose one of them")
    for has_rounds, has_events in ((True, True), (True, False), (False, False)):
        run, before = (_run(columns, has_rounds, has_events) for _ in range(2))
        first, again = (as_number(measure.value(run), name) for _ in range(2))
        if first != again and not (math.isnan(first) and math.isnan(again)):
            what = f"{name}.value is {first:g}, then {again:g} for the same tables"
            raise ValueError(f"{what}; allowed: a function of the tables alone; mend 'value' of the class")
        for table in ("metrics", "rounds", "events"):
            one, other = getattr(run, table), getattr(before, table)
            if one is not None and not one.equals(other):
                what = f"{name}.value changes the table {table}"
                raise ValueError(f"{what}; allowed: only to read it; copy it; mend 'value' of the class")


def _run(columns: Mapping[str, Sequence[str]], has_rounds: bool, has_events: bool) -> FinishedRun:
    import pandas as pd

    frames = {
        table: pd.DataFrame({name: pd.Series(_values(name)) for name in names})
        for table, names in columns.items()
        if {"metrics": True, "rounds": has_rounds, "events": has_events}[table]
    }
    return FinishedRun("trial", 0, frames["metrics"], frames.get("rounds"), frames.get("events"))


def _values(column: str) -> list[Any]:
    if column in ("used", "missing", "fresh"):  # numbers of clients
        return [np.arange(1, 3, dtype=np.int32)] * _ROWS
    if column in ("party", "kind", "outcome", "peer"):
        return ["server" if column == "party" else "compute.embed" if column == "kind" else "done"] * _ROWS
    if column.endswith("_s"):
        return [0.5 * (number + 1) for number in range(_ROWS)]
    if column in ("round", "updates"):
        return [*range(_ROWS)]
    return [1 / (number + 1) for number in range(_ROWS)]
