"""Rules about single values, counts and ages: each within its range, and events and rounds add up to them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from vflsim.books import BYTES, OF_RUN, ended_until, way_of
from vflsim.learning.learners.staleness import ArrivalSteps
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.run import SHOWN, broken_rows, improper_metrics
from vflsim.results.store.schema import SERVER, range_of_column
from vflsim.results.verify.frames import ROUNDING, Frames, Rule, are, begin, each, falls, lists, numbers
from vflsim.streams import party_name
from vflsim.world.run_tables import COUNTS, EPSILON, ROUNDS, SPENT

_AGES = ("row_age", "client_age")
_LISTS = tuple(column.name for column in ROUNDS if pa.types.is_list(column.type))
_NAMED = ("party", "peer")
_TEXTS = (*_NAMED, "kind", "outcome")


def _metrics_are_in_range(frames: Frames, info: RunInfo) -> Iterator[str]:
    """All that was measured is possible."""
    yield from improper_metrics(frames.metrics, info)


def _ages_are_possible(frames: Frames, info: RunInfo) -> Iterator[str]:
    """No mean exceeds the maximum, and no age the rounds until then."""
    for age in _AGES:
        mean, most = frames.metrics[f"{age}_mean"], frames.metrics[f"{age}_max"]
        yield from broken_rows(frames.metrics, f"{age}_mean", mean > most * (1 + ROUNDING), f"exceeds {age}_max")
        yield from broken_rows(
            frames.metrics, f"{age}_max", most > frames.metrics["round"], "exceeds the rounds until then"
        )


def _numbers_are_in_range(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Every number of every table lies within the range of its column."""
    for column in frames.metrics.columns:
        span = range_of_column("metrics", column)
        yield from broken_rows(
            frames.metrics, column, span.outside(frames.metrics[column].to_numpy()), f"must be {span}"
        )
    for name, rows in (("rounds", frames.rounds), ("events", frames.events)):
        for column in (key for key in rows.columns if key not in (*_LISTS, *_TEXTS)):
            span = range_of_column(name, column)
            for row in np.flatnonzero(span.outside(rows[column].to_numpy()))[:SHOWN]:
                yield f"{name}: {column} is {rows[column].iat[row]:g} in row {row}, and must be {span}"


def _steps_have_losses_and_ages(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Where some server steps have a loss, or an age, all rows with steps since the row before have one."""
    skipped = info.blinding is not None and info.blinding.missing == "skip"
    stepped = np.diff(frames.metrics["round"], prepend=0) > 0
    for column in ("train_loss", *(f"{age}_{what}" for age in _AGES for what in ("mean", "max"))):
        absent = frames.metrics[column].isna()
        if not (frames.cut or skipped or absent.all()):
            yield from broken_rows(
                frames.metrics, column, absent & stepped, "must be a number: there were steps since the row before"
            )


def _counts_only_grow(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Counts, energy and ε are at no row of metrics less than before."""
    for name in (column.name for column in (*COUNTS, SPENT) if column.grows and column.name in frames.metrics):
        yield from broken_rows(frames.metrics, name, falls(frames.metrics[name]), "is less than in the row before")


def _epsilon_is_that_of_the_run(frames: Frames, info: RunInfo) -> Iterator[str]:
    """ε ends at that of ``run.json``."""
    if EPSILON not in frames.metrics or info.privacy is None or not len(frames.metrics):
        return
    spent, whole = frames.metrics[EPSILON].to_numpy(), info.privacy.epsilon_run
    if spent[-1] > whole if frames.cut else spent[-1] != whole:
        last = np.arange(len(spent)) == len(spent) - 1
        yield from broken_rows(frames.metrics, EPSILON, last, f"is the last, and epsilon_run in run.json is {whole}")


def _counts_are_those_of_the_tables(frames: Frames, info: RunInfo) -> Iterator[str]:
    """``run.json`` counts the rounds, updates and events of the tables; metrics may have fewer after an error."""
    counts = {"events": len(frames.events)}
    if frames.has_rounds:
        counts["rounds"] = len(frames.rounds)
    if len(frames.metrics):
        for name, column in OF_RUN.items():
            counted = int(frames.metrics[column].to_numpy()[-1])
            if not frames.cut:
                counts[name] = counted
            elif info.counts.get(name, counted) < counted:
                yield f"run.json: counts.{name} is {info.counts[name]}, and the metrics have {counted}"
        for name in OF_RUN.values():
            if (first := frames.metrics[name][0]) != 0:
                yield f"metrics at {frames.metrics['time_s'][0]} s (row 0): {name} is {first:g}, and begins at 0"
    for name, count in counts.items():
        if info.counts.get(name, count) != count:
            yield f"run.json: counts.{name} is {info.counts[name]}, and the tables have {count}"


def _rounds_list_the_runs_clients(frames: Frames, info: RunInfo) -> Iterator[str]:
    """``used``, ``missing`` and ``fresh`` name participants, each once, and each participant is used or missing."""
    rounds, participants = frames.rounds, np.array(sorted(info.participants))
    flat = {name: lists(rounds, name) for name in _LISTS}
    suspicious = np.zeros(len(rounds), bool)
    for rows, clients in flat.values():
        suspicious[rows[~np.isin(clients, participants)]] = True
        suspicious[_repeated(rows, clients)] = True
    rows, clients = (np.concatenate([flat[name][part] for name in ("used", "missing")]) for part in (0, 1))
    suspicious[_repeated(rows, clients)] = True
    suspicious |= np.bincount(rows, minlength=len(rounds)) != len(participants)
    for position in np.flatnonzero(suspicious)[:SHOWN]:
        named = {name: clients[rows == position].tolist() for name, (rows, clients) in flat.items()}
        yield f"rounds: round {rounds['round'][position]}: {'; '.join(_about(named, set(info.participants)))}"


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
    transfers = frames.of("transfer.")
    sent, start = numbers(transfers, "sent_s", "start_s")
    yield from each(transfers, ~(sent >= 0), "has no sent_s within the run")
    yield from _each_value(transfers, "sent_s", sent > start, "and it starts before")
    events, others = frames.events, ~begin(frames.events, "transfer.")
    sent, size, number = numbers(events, "sent_s", "bytes", "round")
    yield from _each_value(events, "sent_s", others & ~np.isnan(sent), "and only transfers are sent")
    yield from _each_value(events, "bytes", others & (size != 0), "and only transfers have bytes")
    yield from each(events, number < -1, "belongs to a round before the first")


def _events_are_of_the_runs_parties(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Whoever acts, sends or receives is the server or a participant."""
    parties = {SERVER, *map(party_name, info.participants)}
    for column in ("party", "peer"):
        strangers = frames.events[column].notna().to_numpy() & ~are(frames.events, column, *parties)
        yield from _each_value(frames.events, column, strangers, "which does not take part in the run")


def _each_value(events: pd.DataFrame, column: str, wrong: ArrayLike, rule: str) -> Iterator[str]:
    """Yield a sentence with the value in ``column`` for the first few events that break a rule."""
    marks = np.asarray(wrong, bool)
    if not marks.any():
        return
    broken = events[marks]
    for place, value in enumerate(broken[column][:SHOWN]):
        yield from each(broken[place : place + 1], [True], f"has {column} {value}, {rule}")
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more with another {column}, {rule}"


def _repeated(rows: NDArray[Any], clients: NDArray[Any]) -> NDArray[Any]:
    """Return the rows that list a client twice."""
    order = np.lexsort((clients, rows))
    rows, clients = rows[order], clients[order]
    twice: NDArray[Any] = rows[1:][(rows[1:] == rows[:-1]) & (clients[1:] == clients[:-1])]
    return twice


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


_Bounds = tuple[NDArray[np.int64], NDArray[np.int64]]


def _until(frames: Frames, ends: NDArray[Any], amounts: NDArray[Any] | int = 1, whole: bool = True) -> _Bounds:
    """Return the least and the most ``amounts`` that have ended until each row of metrics.

    What ends exactly at the time of a row may count on either side of it. If ``whole``, the last row of a finished run
    has all.
    """
    rows = frames.metrics["time_s"].to_numpy()
    least, most = ended_until(rows, ends, amounts, "left"), ended_until(rows, ends, amounts)
    if whole and len(rows) and not frames.cut:
        least[-1] = most[-1] = np.broadcast_to(amounts, ends.shape).sum()
    return least, most


def _other_counts(frames: Frames, column: str, bounds: _Bounds, what: str) -> Iterator[str]:
    (least, most), (counted, rows) = bounds, numbers(frames.metrics, column, "time_s")
    for row in np.flatnonzero((counted < least) | (counted > most))[:SHOWN]:
        span = f"{least[row]}" if least[row] == most[row] else f"{least[row]} to {most[row]}"
        yield f"metrics at {rows[row]} s: {column} is {counted[row]}, {what} add up to {span}"


def _bytes_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The transfers until a row of metrics add up to its bytes."""
    if not frames.has_events:
        return
    transfers = frames.of("transfer.")
    yield from each(transfers, transfers["peer"].isna(), "has no receiver")
    ways = way_of(~are(transfers, "party", SERVER), ~are(transfers, "peer", SERVER))
    for place, column in enumerate(BYTES):
        ends, amounts = numbers(transfers[ways == place], "end_s", "bytes")
        bounds = _until(frames, ends, amounts)
        yield from _other_counts(frames, column, bounds, "its transfers")


def _rounds_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A row of metrics counts the rounds until then, and each ends with a computation of the server."""
    number, end = numbers(frames.rounds, "round", "end_s")
    if frames.has_rounds:
        yield from _other_counts(frames, "round", _until(frames, end), "the rounds until then")
    computes = frames.of("compute.")
    ends = computes["end_s"][are(computes, "party", SERVER) & are(computes, "outcome", "done")]
    for row in np.flatnonzero(~np.isin(end, ends))[:SHOWN] if frames.has_events else ():
        yield f"rounds: round {number[row]} ends at {end[row]} s, when the server has completed nothing"


def _updates_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A row of metrics counts the client steps until then: the computations of ``steps``."""
    if not frames.has_events or info.reference or info.path == "live":  # whose clients' steps leave no events in time
        return
    computes = frames.of("compute.")
    steps = are(computes, "kind", *info.steps) & ~are(computes, "party", SERVER) & are(computes, "outcome", "done")
    bounds = _until(frames, computes["end_s"].to_numpy()[steps], whole=False)
    yield from _other_counts(frames, "updates", bounds, "the clients' steps until then")


def _clients_have_sent_what_rounds_use(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Whoever is used, or fresh, for the k-th time has sent k messages that have arrived by the end of the round.

    Code from outside may step on a message again: there each has sent one, at least.
    """
    if not frames.has_events or info.reference or info.path == "live":
        return
    again = bool(info.installed) or any(path.endswith(".py") for path in info.inputs or {})
    transfers, (number, ends) = frames.of("transfer."), numbers(frames.rounds, "round", "end_s")
    arrived = transfers[are(transfers, "outcome", "done")]
    sent = {party: np.sort(each) for party, each in arrived.groupby("party", observed=True)["end_s"]}
    for column in ("used", "fresh"):
        rows, clients = lists(frames.rounds, column)
        order = np.argsort(clients, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(clients[order])) + 1) if len(order) else ():
            name = party_name(int(clients[places[0]]))
            messages = np.searchsorted(sent.get(name, np.empty(0)), ends[rows[places]], side="right")
            needed = np.ones(len(places), int) if again else np.arange(1, len(places) + 1)
            for place in np.flatnonzero(messages < needed)[:1]:
                text = f"{column} has {name} {place + 1} times until then, and {messages[place]} of its messages had"
                yield f"rounds: round {number[rows[places[place]]]}: {text} arrived"


def _ages_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The ages of clients since the row before are those since each was ``fresh``."""
    if not frames.has_rounds:
        return
    participants, rounds = np.array(sorted(info.participants)), frames.metrics["round"].to_numpy()
    rows, clients = lists(frames.rounds, "fresh")
    steps = np.diff(rounds, prepend=0)
    if (steps < 0).any() or not (rounds <= len(frames.rounds)).all() or not np.isin(clients, participants).all():
        return  # which has a sentence of its own
    arrivals, places = ArrivalSteps(len(participants)), np.searchsorted(participants, clients)
    bounds = np.searchsorted(rows, np.concatenate([[0], rounds]))
    for row, count in enumerate(steps.tolist()):
        some = slice(bounds[row], bounds[row + 1])
        ages = arrivals.steps(int(rounds[row]) - count, count, rows[some], places[some])
        for column, expected in (("client_age_mean", ages.mean), ("client_age_max", ages.maximum)):
            stored = float(frames.metrics[column][row])
            if not np.isclose(stored, expected, rtol=ROUNDING, atol=0, equal_nan=True):
                when = frames.metrics["time_s"][row]
                yield f"metrics at {when} s: {column} is {stored:g}, its rounds since the row before give {expected:g}"


COUNT_RULES: tuple[Rule, ...] = (
    _bytes_add_up,
    _rounds_add_up,
    _updates_add_up,
    _clients_have_sent_what_rounds_use,
    _ages_add_up,
)
