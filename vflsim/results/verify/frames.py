"""The tables of a finished run as rules take them: marks of events, and the outages among them."""

from collections.abc import Callable, Iterator
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from vflsim.results.events import downtime
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.run import SHOWN
from vflsim.results.store.schema import EVENTS, RunTables, rounds_schema
from vflsim.timing.floats import Floats

ROUNDING = 1e-12
"""Tolerance of a sum of times, relative to 1 s + the time."""


class Frames:
    """The frames of one run's tables and the run's end (NaN: no metrics row).

    What was not recorded is empty; ``has_rounds`` and ``has_events`` tell. ``cut``: the run ended in an error, without
    a last row of metrics. Its end is then that of whatever ended last.
    """

    def __init__(self, tables: RunTables, cut: bool = False) -> None:
        self.cut, self.has_rounds, self.has_events = cut, tables.rounds is not None, tables.events is not None
        self.metrics: pd.DataFrame = tables.metrics.to_pandas()
        self.rounds: pd.DataFrame = _frame(tables.rounds, rounds_schema(()))
        self.events: pd.DataFrame = _frame(tables.events, EVENTS)
        self.end = float(self.metrics["time_s"].iat[-1]) if len(self.metrics) else float("nan")
        for rows in (self.rounds, self.events) if cut else ():
            self.end = float(np.fmax(self.end, rows["end_s"].max()))
        self._of: dict[str, pd.DataFrame] = {}

    def of(self, prefix: str) -> pd.DataFrame:
        """Select the events whose kind begins with ``prefix``; every caller gets the same frame."""
        if prefix not in self._of:
            self._of[prefix] = self.events[begin(self.events, prefix)]
        return self._of[prefix]

    @cached_property
    def downtime(self) -> "Downtime":
        """The outages of all parties."""
        return Downtime(self.events)


def _frame(table: pa.Table | None, schema: pa.Schema) -> pd.DataFrame:
    frame: pd.DataFrame = (schema.empty_table() if table is None else table).to_pandas()
    return frame


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""A rule yields one sentence for every violation."""
Marks = NDArray[np.bool_]


def _texts(events: pd.DataFrame, column: str) -> Any:
    """Return a column of names as codes and categories."""
    return events[column].array


def _marked(meant: list[bool], texts: Any) -> Marks:
    """Mark texts whose category is meant; null, whose code is -1, never is."""
    marks: Marks = np.array([*meant, False])[texts.codes]
    return marks


def begin(events: pd.DataFrame, prefix: str) -> Marks:
    """Mark events whose kind begins with ``prefix``, (events,)."""
    kinds = _texts(events, "kind")
    meant = [str(kind).startswith(prefix) for kind in kinds.categories]
    return _marked(meant, kinds)


def are(events: pd.DataFrame, column: str, *names: str) -> Marks:
    """Mark events with one of these names in a column, (events,)."""
    texts = _texts(events, column)
    return _marked([text in names for text in texts.categories], texts)


def numbers(rows: pd.DataFrame, *columns: str) -> tuple[Floats, ...]:
    """Return columns as arrays, (rows,) each."""
    return tuple(rows[column].to_numpy() for column in columns)


def lists(rounds: pd.DataFrame, column: str) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Flatten a column of lists of clients; return the row of each client, and the clients."""
    members = [np.empty(0, np.int32), *rounds[column]]
    return np.repeat(np.arange(len(rounds)), np.array([*map(len, members[1:])], np.intp)), np.concatenate(members)


class Numbers(NamedTuple):
    """The indices of one party and kind: how many, how many different ones, and the last."""

    party: str
    kind: str
    events: int
    unique: int
    last: int


def numbered(events: pd.DataFrame) -> tuple[Marks, list[Numbers]]:
    """Mark ``events`` that repeat an index of their party and kind; also return the indices of each party and kind."""
    parties, kinds = (_texts(events, key) for key in ("party", "kind"))
    index = events["index"].to_numpy()
    order = np.lexsort((index, kinds.codes, parties.codes))  # which keeps the order of equal ones
    party, kind, index = parties.codes[order], kinds.codes[order], index[order]
    other = _differ(party) | _differ(kind)
    new = other | _differ(index)
    again = np.zeros(len(events), bool)
    again[order] = ~new
    first = np.flatnonzero(other)
    if not len(first):
        return again, []
    ends = np.append(first[1:], len(order))
    columns = (ends - first, np.add.reduceat(new, first, dtype=np.int64), index[ends - 1])
    names = parties.categories[party[first]], kinds.categories[kind[first]]
    return again, [*map(Numbers, *names, *(column.tolist() for column in columns))]


def _differ(values: NDArray[Any]) -> Marks:
    """Mark values that are not the one before, and the first."""
    return np.concatenate([np.ones(min(1, len(values)), bool), values[1:] != values[:-1]])


def overlapping(events: pd.DataFrame, column: str) -> pd.DataFrame:
    """Select events that begin before an earlier one with the same party in ``column`` has ended, in their order."""
    starts, ends, codes = *numbers(events, "start_s", "end_s"), _texts(events, column).codes
    ordered = np.lexsort((ends, starts))
    own = ordered[np.argsort(codes[ordered], kind="stable")]  # party by party
    reach = np.nan_to_num(ends[own], nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    early = np.zeros(len(events), bool)
    for begins, stops in pairwise([*np.flatnonzero(_differ(codes[own])), len(own)]):
        theirs = own[begins:stops]
        if codes[theirs[0]] >= 0:
            early[theirs[1:]] = starts[theirs[1:]] < np.maximum.accumulate(reach[begins : stops - 1])
    return events.iloc[ordered[early[ordered]]]


def crowded(starts: Floats, ends: Floats, most: int) -> Marks:
    """Mark spans that begin while ``most`` earlier ones go on, by ascending ``starts``, shape (spans,)."""
    going_on: list[float] = []
    marks = np.zeros(len(starts), bool)
    for place, (start, end) in enumerate(zip(starts.tolist(), np.nan_to_num(ends, nan=-np.inf).tolist(), strict=True)):
        while going_on and going_on[0] <= start:
            heappop(going_on)
        marks[place] = len(going_on) >= most
        heappush(going_on, end)
    return marks


def falls(values: ArrayLike) -> Marks:
    """Mark ``values`` that are less than the one before, shape (values,)."""
    array = np.asarray(values)
    return np.diff(array, prepend=array[:1]) < 0


def each(events: pd.DataFrame, breaking: ArrayLike, sentence: str) -> Iterator[str]:
    """Yield a sentence for each of the first few ``events`` that break a rule, and the number of the others.

    ``breaking`` marks these events, shape (events,).
    """
    marks = np.asarray(breaking, bool)
    if not marks.any():
        return
    broken = events[marks]
    for row in broken[:SHOWN].to_dict("records"):
        to = "" if pd.isna(row["peer"]) else f" to {row['peer']}"
        what = f"{row['party']}'s {row['kind']}{to} (index {row['index']}, {row['start_s']} s to {row['end_s']} s)"
        yield f"events: {what} {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"


class Downtime:
    """The outages in ``events``, by party, in order."""

    def __init__(self, events: pd.DataFrame) -> None:
        outages = events[are(events, "kind", "outage")].sort_values("start_s", kind="stable")
        parties = outages.groupby("party", observed=True, sort=False) if len(outages) else ()
        self.of = {str(party): rows for party, rows in parties}
        self._down = downtime(outages["party"].to_numpy(object), *numbers(outages, "start_s", "end_s"))

    def seconds(self, events: pd.DataFrame) -> Floats:
        """Return the seconds of each event during which its party was down, shape (events,)."""
        seconds = np.zeros(len(events))
        for party, down in self._down.items():
            theirs = are(events, "party", party)
            seconds[theirs] = down.between(*numbers(events[theirs], "start_s", "end_s"))
        return seconds

    def during(self, events: pd.DataFrame, who: str, since: str, *, ends: bool = False) -> Marks:
        """Mark events that overlap an outage of the party in column ``who``, or (with ``ends``) touch its ends.

        An event counts from the time in column ``since`` to its end. Shape (events,).
        """
        inside = np.zeros(len(events), bool)
        for party, outages in self.of.items():
            theirs = are(events, who, party)
            (start, end), (down, up) = numbers(events[theirs], since, "end_s"), numbers(outages, "start_s", "end_s")
            # the last outage that begins before the event ends
            last = np.searchsorted(down, end, side="right" if ends else "left") - 1
            inside[theirs] = (last >= 0) & ((start < up[last]) | (ends & (start == up[last])))
        return inside
