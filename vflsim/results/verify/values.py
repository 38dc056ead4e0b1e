"""Rules about single values: metrics within their range, ε that only grows, counts that are those of the tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from vflsim.results.statistics.improper import broken_rows, improper_metrics
from vflsim.results.store.columns import range_of_column
from vflsim.results.store.schema import SERVER, RunInfo
from vflsim.results.verify.frames import ROUNDING, SHOWN, Frames, Rows, Rule, each, falls
from vflsim.streams import party_name
from vflsim.world.run_tables import COUNTS, EPSILON, ROUNDS, SPENT

_AGES = ("row_age", "client_age")
_LISTS = tuple(column.name for column in ROUNDS if pa.types.is_list(column.type))
_NAMED = ("party", "peer")
_TEXTS = (*_NAMED, "kind", "outcome")


def _metrics_are_in_range(frames: Frames, info: RunInfo) -> Iterator[str]:
    """All that was measured is possible."""
    yield from improper_metrics({name: frames.metrics[name] for name in frames.metrics.columns}, info)


def _ages_are_possible(frames: Frames, info: RunInfo) -> Iterator[str]:
    """No mean exceeds the maximum, and no age the rounds until then."""
    for age in _AGES:
        mean, most = frames.metrics[f"{age}_mean"], frames.metrics[f"{age}_max"]
        yield from _rows(frames, f"{age}_mean", mean > most * (1 + ROUNDING), f"exceeds {age}_max")
        yield from _rows(frames, f"{age}_max", most > frames.metrics["round"], "exceeds the rounds until then")


def _numbers_are_in_range(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Every number of every table lies within the range of its column."""
    for column in frames.metrics.columns:
        span = range_of_column("metrics", column)
        yield from _rows(frames, column, span.outside(frames.metrics[column]), f"must be {span}")
    kept = {"rounds": frames.rounds, "events": frames.events}
    for name, rows in {name: rows for name, rows in kept.items() if rows is not None}.items():
        for column in (own for own in rows.columns if own not in (*_LISTS, *_TEXTS)):
            span = range_of_column(name, column)
            for row in np.flatnonzero(span.outside(rows[column]))[:SHOWN]:
                yield f"{name}: {column} is {rows[column][row]:g} in row {row}, and must be {span}"


def _steps_have_losses_and_ages(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Where some server steps have a loss, or an age, all rows with steps since the row before have one."""
    skipped = info.blinding is not None and info.blinding.missing == "skip"
    stepped = np.diff(frames.metrics["round"], prepend=0) > 0
    for column in ("train_loss", *(f"{age}_{what}" for age in _AGES for what in ("mean", "max"))):
        absent = np.isnan(frames.metrics[column])
        if not (frames.cut or skipped or absent.all()):
            yield from _rows(
                frames, column, absent & stepped, "must be a number: there were steps since the row before"
            )


def _counts_only_grow(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Counts, energy and ε are at no row of metrics less than before."""
    for name in (column.name for column in (*COUNTS, SPENT) if column.grows and column.name in frames.metrics):
        yield from _rows(frames, name, falls(frames.metrics[name]), "is less than in the row before")


def _epsilon_is_that_of_the_run(frames: Frames, info: RunInfo) -> Iterator[str]:
    """ε ends at that of ``run.json``."""
    if EPSILON not in frames.metrics or info.privacy is None or not len(frames.metrics):
        return
    spent, whole = frames.metrics[EPSILON], info.privacy.epsilon_run
    if spent[-1] > whole if frames.cut else spent[-1] != whole:
        last = np.arange(len(spent)) == len(spent) - 1
        yield from _rows(frames, EPSILON, last, f"is the last, and epsilon_run in run.json is {whole}")


def _counts_are_those_of_the_tables(frames: Frames, info: RunInfo) -> Iterator[str]:
    """``run.json`` counts the rounds, updates and events of the tables; metrics may have fewer after an error."""
    found = {"events": 0 if frames.events is None else len(frames.events)}
    if frames.rounds is not None:
        found["rounds"] = len(frames.rounds)
    if len(frames.metrics):
        for name, column in (("rounds", "round"), ("updates", "updates")):
            counted = int(frames.metrics[column][-1])
            if not frames.cut:
                found[name] = counted
            elif info.counts.get(name, counted) < counted:
                yield f"run.json: counts.{name} is {info.counts[name]}, and the metrics have {counted}"
        for name in ("round", "updates"):
            if (first := frames.metrics[name][0]) != 0:
                yield f"metrics at {frames.metrics['time_s'][0]} s (row 0): {name} is {first:g}, and begins at 0"
    for name, count in found.items():
        if info.counts.get(name, count) != count:
            yield f"run.json: counts.{name} is {info.counts[name]}, and the tables have {count}"


def _rounds_list_the_runs_clients(frames: Frames, info: RunInfo) -> Iterator[str]:
    """``used``, ``missing`` and ``fresh`` name participants, each once, and each participant is used or missing."""
    if frames.rounds is None:
        return
    rounds, participants = frames.rounds, np.array(sorted(info.participants))
    flat = {name: rounds.lists(name) for name in _LISTS}
    suspicious = np.zeros(len(rounds), bool)
    for rows, clients in flat.values():
        suspicious[rows[~np.isin(clients, participants)]] = True
        suspicious[_repeated(rows, clients)] = True
    rows, clients = (np.concatenate([flat[name][part] for name in ("used", "missing")]) for part in (0, 1))
    suspicious[_repeated(rows, clients)] = True
    suspicious |= np.bincount(rows, minlength=len(rounds)) != len(participants)
    for position in np.flatnonzero(suspicious)[:SHOWN]:
        lists = {name: clients[rows == position].tolist() for name, (rows, clients) in flat.items()}
        yield f"rounds: round {rounds['round'][position]}: {'; '.join(_about(lists, set(info.participants)))}"


def _about(lists: dict[str, list[int]], participants: set[int]) -> Iterator[str]:
    used, missing, fresh = (set(lists[name]) for name in _LISTS)
    if both := used & missing:
        yield f"both used and missing: {sorted(both)}"
    if strangers := (used | missing) - participants:
        yield f"no participants of the run: {sorted(strangers)}"
    if strangers := fresh - participants:
        yield f"fresh, but no participants of the run: {sorted(strangers)}"
    if neither := participants - used - missing:
        yield f"neither used nor missing: {sorted(neither)}"
    if twice := [name for name, clients in lists.items() if len(set(clients)) < len(clients)]:
        yield f"a client is named twice: {', '.join(f'{name} {lists[name]}' for name in twice)}"


def _messages_are_sent_before_they_move(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A transfer is sent at or before its start, in the run; nothing else has a time of sending, or bytes."""
    if frames.events is None:
        return
    transfers = frames.of("transfer.")
    sent, start = transfers["sent_s"], transfers["start_s"]
    yield from each(transfers, ~(sent >= 0), "has no sent_s within the run")
    yield from _each_value(transfers, "sent_s", sent > start, "and it starts before")
    others = frames.events.where(~frames.events.names("kind").begin("transfer."))
    yield from _each_value(others, "sent_s", ~np.isnan(others["sent_s"]), "and only transfers are sent")
    yield from _each_value(others, "bytes", others["bytes"] != 0, "and only transfers have bytes")
    yield from each(frames.events, frames.events["round"] < -1, "belongs to a round before the first")


def _events_are_of_the_runs_parties(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Whoever acts, sends or receives is the server or a participant."""
    if frames.events is None:
        return
    parties = {SERVER, *map(party_name, info.participants)}
    for column in ("party", "peer"):
        strangers = frames.events.names(column).matching(lambda name: name not in parties)
        yield from _each_value(frames.events, column, strangers, "which does not take part in the run")


def _rows(frames: Frames, column: str, wrong: ArrayLike, rule: str) -> Iterator[str]:
    yield from broken_rows({name: frames.metrics[name] for name in ("time_s", "round", column)}, column, wrong, rule)


def _each_value(events: Rows, column: str, wrong: ArrayLike, rule: str) -> Iterator[str]:
    """Yield a sentence with the value in ``column`` for the first few events that break a rule."""
    broken = np.flatnonzero(wrong)
    for row in broken[:SHOWN]:
        values = events.names(column).tolist() if column in _NAMED else events[column]
        yield from each(events.where(np.array([row])), [True], f"has {column} {values[row]}, {rule}")
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more with another {column}, {rule}"


def _repeated(rows: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Return the rows that list a client twice."""
    order = np.lexsort((clients, rows))
    rows, clients = rows[order], clients[order]
    again: np.ndarray = rows[1:][(np.diff(rows) == 0) & (np.diff(clients) == 0)]
    return again


VALUE_RULES: tuple[Rule, ...] = (
    _metrics_are_in_range,
    _numbers_are_in_range,
    _ages_are_possible,
    _steps_have_losses_and_ages,
    _counts_only_grow,
    _epsilon_is_that_of_the_run,
    _counts_are_those_of_the_tables,
    _messages_are_sent_before_they_move,
    _events_are_of_the_runs_parties,
    _rounds_list_the_runs_clients,
)
