"""The tables of a finished run as rules take them, sentences about broken rules, and rules about events and rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from vflsim.results.store.pages import RunInfo
from vflsim.results.store.run import SHOWN
from vflsim.results.store.schema import EVENTS, RunTables, rounds_schema
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

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

    def of(self, prefix: str) -> pd.DataFrame:
        """Select the events whose kind begins with ``prefix``."""
        return self.events[begin(self.events, prefix)]


def _frame(table: pa.Table | None, schema: pa.Schema) -> pd.DataFrame:
    frame: pd.DataFrame = (schema.empty_table() if table is None else table).to_pandas()
    return frame


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""A rule yields one sentence for every violation."""
Marks = NDArray[np.bool_]


def begin(events: pd.DataFrame, prefix: str) -> Marks:
    """Mark events whose kind begins with ``prefix``, (events,)."""
    meant = [str(kind).startswith(prefix) for kind in events["kind"].cat.categories]
    return np.array([*meant, False])[events["kind"].cat.codes]


def are(events: pd.DataFrame, column: str, *names: str) -> Marks:
    """Mark events with one of these names in a column, (events,)."""
    return events[column].isin(names).to_numpy()


def numbers(rows: pd.DataFrame, *columns: str) -> tuple[Floats, ...]:
    """Return columns as arrays, (rows,) each."""
    return tuple(rows[column].to_numpy() for column in columns)


def lists(rounds: pd.DataFrame, column: str) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Flatten a column of lists of clients; return the row of each client, and the clients."""
    members = [np.empty(0, np.int32), *rounds[column]]
    return np.repeat(np.arange(len(rounds)), np.array([*map(len, members[1:])], np.intp)), np.concatenate(members)


def numbered(events: pd.DataFrame) -> tuple[Marks, pd.DataFrame]:
    """Mark ``events`` that repeat an index of their party and kind; also return the indices of each party and kind.

    Of these the columns are ``count``, ``nunique`` and ``max``.
    """
    keys = ["party", "kind"]
    indices = events.groupby(keys, observed=True)["index"].agg(["count", "nunique", "max"])
    return events.duplicated([*keys, "index"]).to_numpy(), indices.reset_index()


def overlapping(events: pd.DataFrame, column: str) -> pd.DataFrame:
    """Select events that begin before an earlier one with the same party in ``column`` has ended, in their order."""
    ordered = events.sort_values(["start_s", "end_s"], kind="stable")
    parties = ordered[column]
    reach = ordered["end_s"].fillna(-np.inf).groupby(parties, observed=True).cummax()
    return ordered[ordered["start_s"] < reach.groupby(parties, observed=True).shift()]


def falls(values: ArrayLike) -> Marks:
    """Mark ``values`` that are less than the one before, shape (values,)."""
    array = np.asarray(values)
    return np.diff(array, prepend=array[:1]) < 0


def each(events: pd.DataFrame, breaking: ArrayLike, sentence: str) -> Iterator[str]:
    """Yield a sentence for each of the first few ``events`` that break a rule, and the number of the others.

    ``breaking`` marks these events, shape (events,).
    """
    broken = events[np.asarray(breaking, bool)]
    for row in broken[:SHOWN].to_dict("records"):
        to = "" if pd.isna(row["peer"]) else f" to {row['peer']}"
        what = f"{row['party']}'s {row['kind']}{to} (index {row['index']}, {row['start_s']} s to {row['end_s']} s)"
        yield f"events: {what} {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"


def _times_are_sound(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Metrics run from 0 to the end; nothing lasts a negative time; what is done has its times."""
    times = frames.metrics["time_s"].to_numpy()
    if times[0] != 0 if len(times) else not frames.cut:
        yield "metrics: the first row is not at time 0"
    if np.isnan(times).any() or falls(times).any():
        yield "metrics: time_s does not ascend"
    events = frames.events
    start, end = events["start_s"], events["end_s"]
    yield from each(events, start.isna() | end.isna(), "has no time")
    yield from each(events, end < start, "has a negative duration")
    yield from each(events, events["drawn_s"] < 0, "has drawn a negative duration")
    yield from each(events, start < 0, "starts before the run")
    yield from each(events, end > frames.end, f"ends after the run, which ended at {frames.end} s")


def _outcomes_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Every activity has a known outcome; an unfinished one ends with the run."""
    events = frames.events
    yield from each(events, ~are(events, "outcome", *OUTCOMES), f"has an outcome that is none of {', '.join(OUTCOMES)}")
    unfinished = are(events, "outcome", "unfinished") & (events["end_s"] != frames.end)
    yield from each(events, unfinished, f"is unfinished, but the run continued until {frames.end} s")
    yield from each(events, events["bytes"] < 0, "sent a negative number of bytes")


def _parties_compute_one_thing_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's compute.* activities do not overlap."""
    for party, broken in overlapping(frames.of("compute."), "party").groupby("party", observed=True, sort=False):
        yield from each(broken, np.ones(len(broken)), f"begins while {party} still computes something else")


def _staleness_is_bounded(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The age that ``max_staleness`` bounds never exceeds it."""
    if info.max_staleness is None:
        return
    column = f"{info.staleness_bounds}_max"
    ages, times = numbers(frames.metrics, column, "time_s")
    for row in np.flatnonzero(ages > info.max_staleness)[:SHOWN]:
        yield f"metrics at {times[row]} s: {column} is {ages[row]:g}, max_staleness is {info.max_staleness}"


def _rounds_are_contiguous(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Rounds are numbered without a gap; each starts at 0 or at the end of the previous round."""
    if not len(frames.rounds):
        return
    number, start, end = numbers(frames.rounds, "round", "start_s", "end_s")
    if start[0] != 0:
        yield f"rounds: the first starts at {start[0]} s instead of 0"
    if not end[-1] <= frames.end:
        yield f"rounds: the last ends at {end[-1]} s, after the run ({frames.end} s)"
    rules = {
        "does not follow the previous round": 1 + np.flatnonzero(np.diff(number) != 1),
        "does not start at the end of the previous round": 1 + np.flatnonzero(start[1:] != end[:-1]),
        "has a negative duration": np.flatnonzero(~(end >= start)),
    }
    for sentence, broken in rules.items():
        for row in broken[:SHOWN]:
            yield f"rounds: round {number[row]} ({start[row]} s to {end[row]} s) {sentence}"


EVENT_RULES: tuple[Rule, ...] = (
    _times_are_sound,
    _outcomes_are_accounted_for,
    _parties_compute_one_thing_at_a_time,
)
ORDER_RULES: tuple[Rule, ...] = (_staleness_is_bounded, _rounds_are_contiguous)
