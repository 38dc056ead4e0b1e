"""Input and output of the rules about a finished run: the rows of its tables, and sentences about broken rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vflsim.results.store.schema import RunInfo, RunTables
from vflsim.results.verify.rows import Rows

ROUNDING = 1e-12
"""Tolerance of a sum of times, relative to 1 s + the time."""
SHOWN = 3
"""Examples shown per broken rule; the rest are counted."""


class Frames:
    """The rows of one run's tables (None: not recorded) and the run's end (NaN: no metrics row).

    ``cut``: the run ended in an error, without a last row of metrics. Its end is then that of whatever ended last.
    """

    def __init__(self, tables: RunTables, cut: bool = False) -> None:
        self.cut = cut
        self.metrics = Rows(tables.metrics)
        self.rounds = None if tables.rounds is None else Rows(tables.rounds)
        self.events = None if tables.events is None else Rows(tables.events)
        self.end = float(self.metrics["time_s"][-1]) if len(self.metrics) else float("nan")
        for rows in (self.rounds, self.events) if cut else ():
            if rows is not None and len(rows):
                self.end = float(np.fmax(self.end, np.fmax.reduce(rows["end_s"])))
        self._of: dict[str, Rows] = {}

    def of(self, prefix: str) -> Rows:
        """Select the events whose kind begins with ``prefix``; events must have been recorded."""
        found = self._of.get(prefix)
        if found is None:
            assert self.events is not None
            found = self._of[prefix] = self.events.where(self.events.names("kind").begin(prefix))
        return found


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""A rule yields one sentence for every violation."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The indices of one party's activities of one kind: count, number of distinct ones, highest."""

    party: str
    kind: str
    count: int
    distinct: int
    highest: int


def numbered(events: Rows) -> tuple[NDArray[np.bool_], list[Numbers]]:
    """Mark ``events`` that repeat an index of their party and kind; also return the indices of each party and kind."""
    parties, kinds, numbers = events.names("party"), events.names("kind"), events["index"]
    party, kind = parties.codes, kinds.codes
    order = np.lexsort((numbers, kind, party))  # stable: the first of equal ones stays first
    others = np.flatnonzero((np.diff(party[order]) != 0) | (np.diff(kind[order]) != 0)) + 1
    again, found = np.zeros(len(events), bool), []
    for own in np.split(order, others) if len(order) else ():
        again[own[1:]] = np.diff(numbers[own]) == 0
        who, what = (str(names.at(own[0])) for names in (parties, kinds))
        found.append(Numbers(who, what, len(own), len(own) - int(again[own].sum()), int(numbers[own[-1]])))
    return again, found


def overlapping(events: Rows, column: str) -> NDArray[np.bool_]:
    """Mark ``events`` that begin before an earlier one with the same party in ``column`` has ended."""
    codes, start, end = events.names(column).codes, events["start_s"], events["end_s"]
    order = np.lexsort((end, start, codes))  # stable
    found = np.zeros(len(events), bool)
    for own in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(own) > 1 and codes[own[0]] >= 0:
            found[own[1:]] = start[own[1:]] < np.fmax.accumulate(end[own])[:-1]
    return found


def falls(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark ``values`` that are less than the one before, shape (values,)."""
    marks = np.zeros(len(values), bool)
    marks[1:] = values[1:] < values[:-1]
    return marks


def each(events: Rows, breaking: ArrayLike, sentence: str) -> Iterator[str]:
    """Yield a sentence for each of the first few ``events`` that break a rule, and the number of the others.

    ``breaking`` marks these events, shape (events,).
    """
    broken = np.flatnonzero(breaking)
    if not len(broken):
        return
    numbers = [events[name] for name in ("index", "start_s", "end_s")]
    party, kind, peer = (events.names(name) for name in ("party", "kind", "peer"))
    for row in broken[:SHOWN]:
        to = "" if peer.at(row) is None else f" to {peer.at(row)}"
        index, start, end = (values[row] for values in numbers)
        yield f"events: {party.at(row)}'s {kind.at(row)}{to} (index {index}, {start} s to {end} s) {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"
