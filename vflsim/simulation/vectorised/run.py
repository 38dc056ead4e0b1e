"""Execute one run in chunks of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vflsim.errors import VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.capabilities import numbers_a_round_of, records_of, recurrence_of, timed_world_of
from vflsim.recurrences.chunk import Bools, Chunk, Recurrence, UndecidedError
from vflsim.recurrences.stages import WIDE
from vflsim.recurrences.world import TimedWorld
from vflsim.results.facts import BlindingFacts
from vflsim.results.store.pages import cautions
from vflsim.results.store.schema import ENERGY_BY_PARTY, LISTS_TOGETHER, RunTables, energy_by_party
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.info import measured, run_info
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, RunPlan, event_columns
from vflsim.simulation.vectorised.bookkeeping import Books
from vflsim.simulation.vectorised.energy import EnergyBooks
from vflsim.simulation.vectorised.events import EventBooks
from vflsim.stopping.end_rule import Tally, share_of
from vflsim.streams import BLOCK, SERVER, party_name
from vflsim.tables.arrow import lists
from vflsim.timing.floats import Floats
from vflsim.tracing.node import Untraceable
from vflsim.world.own_tables import OwnTables
from vflsim.world.run_tables import ROUNDS, RoundRow, values_of

_FEW = 2048
"""Most clients for whom the lists of all others are kept, for steps on single embeddings."""


class RoundColumns:
    """Collects the columns of ``rounds.parquet``, chunk by chunk."""

    def __init__(self, clients: NDArray[np.int32]) -> None:
        self._clients = clients
        self._ends: list[Floats] = []
        self._used: list[pa.Array] = []
        self._missing: list[pa.Array] = []
        self._all_fresh = False
        self._rest: Bools = np.empty((0, len(clients)), bool)

    def add(self, chunk: Chunk, count: int) -> None:
        """Add the first ``count`` rounds of ``chunk``."""
        self._ends.append(chunk.ends[:count])
        self._all_fresh = chunk.all_fresh
        if chunk.used is not None:
            used = np.concatenate([self._rest, chunk.used[:count]])
            whole = len(used) // LISTS_TOGETHER * LISTS_TOGETHER
            self._rest = used[whole:]
            self._note(used[:whole])

    def columns(self, joules: Floats | None) -> dict[str, Any]:
        """Return the columns for ``RunTables``, given the energy of each round. Call it once, after all additions."""
        ends = np.concatenate([np.empty(0), *self._ends])
        if self._used or len(self._rest):
            self._note(self._rest)
        else:
            self._note_everybody(len(ends))
        used, missing = (pa.chunked_array(some, pa.list_(pa.int32())) for some in (self._used, self._missing))
        fresh = self._everybody(len(ends)) if self._all_fresh else used
        starts = np.concatenate([[0.0], ends])[: len(ends)]
        facts = SimpleNamespace(used=used, missing=missing, fresh=fresh)
        rounds = RoundRow(np.arange(len(ends), dtype=np.int64), starts, ends, facts, joules)
        return values_of(ROUNDS, rounds, joules is not None)

    def _note(self, used: Bools) -> None:
        if not len(used):
            return
        one_each = np.count_nonzero(used) == len(used) and used.any(axis=1).all()
        if one_each and len(self._clients) <= _FEW:
            places = used.argmax(axis=1)
            self._used.append(_of_equal_length(self._clients[places][:, None]))
            self._missing.append(_of_equal_length(self._others[places]))
            return
        self._used.append(self._lists(used))
        self._missing.append(self._lists(~used))

    @cached_property
    def _others(self) -> NDArray[np.int32]:
        many = len(self._clients)
        return np.broadcast_to(self._clients, (many, many))[~np.eye(many, dtype=bool)].reshape(many, many - 1)

    def _note_everybody(self, count: int) -> None:
        if count:
            self._used = self._everybody(count).chunks
            self._missing = _same(self._lists(np.zeros((min(count, LISTS_TOGETHER), len(self._clients)), bool)), count)

    def _everybody(self, count: int) -> pa.ChunkedArray:
        """List all clients ``count`` times, in lists that share memory."""
        some = self._lists(np.ones((min(count, LISTS_TOGETHER), len(self._clients)), bool))
        return pa.chunked_array(_same(some, count), some.type)

    def _lists(self, chosen: Bools) -> pa.Array:
        """List the chosen clients of every row of ``chosen`` (n, M), in client order."""
        offsets = np.concatenate([[0], np.count_nonzero(chosen, axis=1).cumsum()]).astype(np.int32)
        members = np.broadcast_to(self._clients, chosen.shape)[chosen]
        return lists(offsets, members)


def _same(some: pa.Array, count: int) -> list[pa.Array]:
    """Repeat the ``LISTS_TOGETHER`` lists of an array up to ``count``; it has ``count`` if those are fewer."""
    whole, rest = divmod(count, LISTS_TOGETHER)
    return [some] * whole + ([some.slice(0, rest)] if rest else [])


def _of_equal_length(members: NDArray[np.int32]) -> pa.Array:
    offsets = np.arange(len(members) + 1, dtype=np.int32) * members.shape[1]
    return lists(offsets, members.reshape(-1))


class RoundSchedule(Protocol):
    """What learns of the rounds of a run, chunk by chunk, and of its rows of metrics."""

    def follow(self, chunk: Chunk) -> None:
        """Take the times of the next rounds."""

    def scored(self, now: float, rounds: int, updates: int) -> tuple[float, Mapping[str, float]]:
        """Take a row: see ``Scored``."""


_ELEMENTS = 2**18
"""Most clients × rounds of a chunk (at least one block): its arrays fit into the processor's cache."""
_RECORDED = 2**14
"""The same where events are recorded, of which an array has many times more."""
_PART = 8
"""Rounds of a chunk of very many clients, a part of a block: so many rounds of a million take 64 MB an array."""


def run_vectorised(
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    report: Callable[[Progress], None] | None = None,
    seen: Callable[[Chunk, int], None] | None = None,
    schedule: RoundSchedule | None = None,
    ages: bool = True,
) -> Outcome:
    """Time a run of protocol ``name``, which has no ``obstacles``, with ``seed``; the ``schedule`` follows it.

    If only the event path can decide how the run continues, the outcome's error is an ``UndecidedError``. ``seen``
    gets every chunk of rounds, and how many of them belong to the run. Without ``ages`` rows of metrics have none.
    """
    began = time.monotonic()
    protocol, stop, resolved = scenario.protocols[name].protocol, scenario.stop_of(name), setting(scenario, name, data)
    clients, batches = len(resolved.clients), protocol.batch_plan().batches(resolved.data.rows, resolved.training, seed)
    world: TimedWorld | None = None
    course: Recurrence | None = None
    energy = EnergyBooks(resolved.powers, np.array(resolved.clients, np.int64)) if resolved.powers else None
    log = EventBooks(np.array(resolved.clients, np.int64)) if scenario.record.tables == "events" else None
    rules = RunPlan(scenario, name, seed, resolved).rules(batches.per_epoch)
    books = Books(rules, scenario.evaluate_of(name).every, energy, None if schedule is None else schedule.scored, ages)
    columns = RoundColumns(np.array(resolved.clients, np.int32))
    least = BLOCK if clients <= WIDE else _PART
    first, count = 0, least
    elements = (_ELEMENTS if log is None else _RECORDED) // max(1, numbers_a_round_of(protocol, clients))
    most = max(BLOCK, elements // BLOCK * BLOCK) if least == BLOCK else least
    error: VflsimError | None = None
    chunk: Chunk | None = None
    while books.end is None:
        try:
            if chunk is None:
                books.begin()
            world = world or timed_world_of(protocol, resolved, seed, log is not None)
            course = course or recurrence_of(protocol, world)
            chunk = course.advance(first, count)
            if schedule is not None:
                schedule.follow(chunk)
            done = books.take(chunk)
            if log is not None:
                log.add(chunk)
                following = first + count
                while books.end is not None and not log.covers(books.end):
                    log.add(course.advance(following, least))
                    following += least
                log.settle(books.end)
        except Untraceable as why:
            error = UndecidedError(str(why), remedy="leave out --path vectorised")
            break
        except VflsimError as cause:
            error = cause
            break
        if scenario.record.tables != "summary":
            columns.add(chunk, done)
        if seen is not None:
            seen(chunk, done)
        first += count
        if report is not None:
            now = float(chunk.ends[-1])
            share = share_of(rules, Tally(first, books.counts.updates, books.embeddings_used, time_s=now))
            report(Progress(now, first, books.counts.updates, dict(books.row), share))
        count = min(2 * count, most)
        if stop.rounds is not None:
            count = min(count, -(-(stop.rounds - first) // least) * least)
    joules = None if energy is None else np.diff(books.joules)
    rounds = None if scenario.record.tables == "summary" else columns.columns(joules)
    tables = RunTables(books.columns(), rounds, None if log is None else event_columns(log.events))
    measures, failed = measured(scenario.measures, name, seed, tables, error)
    facts = {
        "stop_reason": None if books.end is None or failed is not None else books.end.reason,
        "timing_only": True,
        "path": "vectorised",
        "measures": measures,
        "blinding": None if resolved.blinded_sum is None else BlindingFacts.of(resolved.blinded_sum, ()),
        "counts": books.counts.of_run(0 if log is None else len(log.events)),
        "steps": () if log is None else log.events.named_steps,
        "wall_clock_s": time.monotonic() - began,
    }
    info = run_info(scenario, name, seed, failed, **facts)
    ends = (rule.note(info.stop_reason, books.counts.rounds, books.row["time_s"]) for rule in rules)
    notes = [*cautions(info), *ends]
    records = OwnTables()
    for table, row in records_of(protocol, world):
        records.add(table, {"time_s": 0.0, "party": party_name(SERVER)}, row)
    extra = records.tables()
    if energy is not None:
        extra[ENERGY_BY_PARTY] = energy_by_party(energy.energy.by_party(books.row["time_s"]))
    return Outcome(tables, {}, info, extra, failed, "; ".join(filter(None, notes)))
