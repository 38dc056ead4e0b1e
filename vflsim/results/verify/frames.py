"""Input and output of the rules about a finished run: its tables as frames, and sentences about broken rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from vflsim.results.store.schema import RunInfo, RunTables

ROUNDING = 1e-12
"""Tolerance of a sum of times, relative to 1 s + the time."""
SHOWN = 3
"""Examples shown per broken rule; the rest are counted."""


class Frames:
    """The tables of one run as pandas frames (None: not recorded) and the run's end (NaN: no metrics row).

    ``cut``: the run ended in an error, without a last row of metrics. Its end is then that of whatever ended last.
    """

    def __init__(self, tables: RunTables, cut: bool = False) -> None:
        self.cut = cut
        self.metrics: pd.DataFrame = tables.metrics.to_pandas()
        self.rounds: pd.DataFrame | None = None if tables.rounds is None else tables.rounds.to_pandas()
        self.events: pd.DataFrame | None = None if tables.events is None else tables.events.to_pandas()
        self.end = float(self.metrics["time_s"].iloc[-1]) if len(self.metrics) else float("nan")
        for table in (self.rounds, self.events) if cut else ():
            self.end = float(np.fmax(self.end, np.nan if table is None else table["end_s"].max()))
        self._of: dict[str, pd.DataFrame] = {}

    def of(self, prefix: str) -> pd.DataFrame:
        """Select the events whose kind begins with ``prefix``; events must have been recorded."""
        found = self._of.get(prefix)
        if found is None:
            assert self.events is not None
            found = self._of[prefix] = self.events[begins(self.events["kind"], prefix)]
        return found


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""A rule yields one sentence for every violation."""


def begins(kinds: pd.Series, prefix: str) -> NDArray[np.bool_]:
    """Mark which of ``kinds`` (a categorical column) begin with ``prefix``."""
    return matching(kinds, lambda kind: str(kind).startswith(prefix))


def matching(values: pd.Series, meant: Callable[[object], bool]) -> NDArray[np.bool_]:
    """Mark which of ``values`` (a categorical column) are ``meant``; null never is."""
    marks = np.array([*(meant(value) for value in values.cat.categories), False])
    return marks[values.cat.codes.to_numpy()]  # code −1 (null) selects the last


@dataclass(frozen=True, slots=True)
class Numbers:
    """The indices of one party's activities of one kind: count, number of distinct ones, highest."""

    party: str
    kind: str
    count: int
    distinct: int
    highest: int


def numbered(events: pd.DataFrame) -> tuple[NDArray[np.bool_], list[Numbers]]:
    """Mark ``events`` that repeat an index of their party and kind; also return the indices of each party and kind."""
    parties, kinds, numbers = events["party"], events["kind"], events["index"].to_numpy()
    party, kind = parties.cat.codes.to_numpy(), kinds.cat.codes.to_numpy()
    order = np.lexsort((numbers, kind, party))  # stable: the first of equal ones stays first
    others = np.flatnonzero((np.diff(party[order]) != 0) | (np.diff(kind[order]) != 0)) + 1
    again, found = np.zeros(len(events), bool), []
    for own in np.split(order, others) if len(order) else ():
        again[own[1:]] = np.diff(numbers[own]) == 0
        who, what = (str(names.iat[own[0]]) for names in (parties, kinds))
        found.append(Numbers(who, what, len(own), len(own) - int(again[own].sum()), int(numbers[own[-1]])))
    return again, found


def overlapping(events: pd.DataFrame, column: str) -> NDArray[np.bool_]:
    """Mark ``events`` that begin before an earlier one with the same party in ``column`` has ended."""
    codes, start, end = events[column].cat.codes.to_numpy(), events["start_s"].to_numpy(), events["end_s"].to_numpy()
    order = np.lexsort((end, start, codes))  # stable
    found = np.zeros(len(events), bool)
    for own in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(own) > 1 and codes[own[0]] >= 0:
            found[own[1:]] = start[own[1:]] < np.fmax.accumulate(end[own])[:-1]
    return found


def each(events: pd.DataFrame, breaking: ArrayLike, sentence: str) -> Iterator[str]:
    """Yield a sentence for each of the first few ``events`` that break a rule, and the number of the others.

    ``breaking`` marks these events, shape (events,).
    """
    wrong = np.asarray(breaking, bool)
    if not wrong.any():
        return
    broken = events[wrong]
    for _, event in broken.head(SHOWN).iterrows():
        to = f" to {event['peer']}" if isinstance(event["peer"], str) else ""
        span = f"{event['start_s']} s to {event['end_s']} s"
        yield f"events: {event['party']}'s {event['kind']}{to} (index {event['index']}, {span}) {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"
