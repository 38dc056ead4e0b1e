"""Execute one run in chunks of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from vflsim.learning.data.loaded import LoadedData
from vflsim.protocols.defaults import numbers_a_round_of, records_of, recurrence_of, timed_world_of
from vflsim.recurrences.chunk import Chunk, Recurrence
from vflsim.recurrences.errors import UndecidedError
from vflsim.recurrences.stages import WIDE
from vflsim.recurrences.world import TimedWorld
from vflsim.results.facts import BlindingFacts
from vflsim.results.store.columns import ENERGY_BY_PARTY, energy_by_party
from vflsim.results.store.schema import RunTables, cautions
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.info import run_info
from vflsim.simulation.measured import measured
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, event_columns
from vflsim.simulation.variation import variation_of
from vflsim.simulation.vectorised.bookkeeping import Books
from vflsim.simulation.vectorised.energy import EnergyBooks
from vflsim.simulation.vectorised.events import EventBooks
from vflsim.simulation.vectorised.tables import RoundColumns
from vflsim.stopping.end_rule import RoundFacts, share_of
from vflsim.stopping.stretch import Tally
from vflsim.streams import BLOCK, SERVER, party_name
from vflsim.tracing.node import Untraceable
from vflsim.world.own_tables import OwnTables

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
) -> Outcome:
    """Run protocol ``name``, which has no ``obstacles``, with ``seed``: its timing only, without events.

    If only the event path can decide how the run continues, the outcome's error is an ``UndecidedError``. ``seen``
    gets every chunk of rounds, and how many of them belong to the run.
    """
    began = time.monotonic()
    protocol, stop = scenario.protocols[name].protocol, scenario.stop_of(name)
    resolved = setting(scenario, name, data)
    variation = variation_of(protocol, resolved) if stop.asks_variation else None
    plan = protocol.batch_plan()
    clients, batches = len(resolved.clients), plan.batches(resolved.data.rows, resolved.training, seed).per_epoch
    world: TimedWorld | None = None
    course: Recurrence | None = None
    energy = EnergyBooks(resolved.powers, np.array(resolved.clients, np.int64)) if resolved.powers else None
    told = EventBooks(np.array(resolved.clients, np.int64)) if scenario.record.tables == "events" else None
    rules = stop.each(RoundFacts.of(plan, clients, batches, variation))
    books = Books(rules, scenario.evaluate_of(name).every, energy)
    columns = RoundColumns(np.array(resolved.clients, np.int32))
    least = BLOCK if clients <= WIDE else _PART
    first, count = 0, least
    elements = (_ELEMENTS if told is None else _RECORDED) // max(1, numbers_a_round_of(protocol, clients))
    most = max(BLOCK, elements // BLOCK * BLOCK) if least == BLOCK else least
    error: UndecidedError | None = None
    while books.end is None:
        try:
            world = world or timed_world_of(protocol, resolved, seed, told is not None)
            course = course or recurrence_of(protocol, world)
            chunk = course.advance(first, count)
            done = books.take(chunk)
            if told is not None:
                told.add(chunk)
                following = first + count
                while books.end is not None and not told.covers(books.end):
                    told.add(course.advance(following, least))
                    following += least
                told.settle(books.end)
        except Untraceable as why:
            error = UndecidedError(str(why), remedy="leave out --path vectorised")
            break
        except UndecidedError as found:
            error = found
            break
        if scenario.record.tables != "summary":
            columns.add(chunk, done)
        if seen is not None:
            seen(chunk, done)
        first += count
        if report is not None:
            now = float(chunk.ends[-1])
            share = share_of(rules, Tally(first, books.updates, books.embeddings_used, time_s=now))
            report(Progress(now, first, books.updates, dict(books.row), share))
        count = min(2 * count, most)
        if stop.rounds is not None:
            count = min(count, -(-(stop.rounds - first) // least) * least)
    joules = None if energy is None else np.diff(books.joules)
    rounds = None if scenario.record.tables == "summary" else columns.columns(joules)
    tables = RunTables(books.columns(), rounds, None if told is None else event_columns(told.events))
    measures, failed = measured(scenario.measures, name, seed, tables, error)
    info = run_info(
        scenario,
        name,
        seed,
        failed,
        stop_reason=None if books.end is None or failed is not None else books.end.reason,
        timing_only=True,
        path="vectorised",
        measures=measures,
        blinding=None if resolved.blinded_sum is None else BlindingFacts.of(resolved.blinded_sum, ()),
        counts={"rounds": books.rounds, "updates": books.updates, "events": 0 if told is None else len(told.events)},
        wall_clock_s=time.monotonic() - began,
    )
    ends = (rule.note(info.stop_reason, books.rounds, books.row["time_s"]) for rule in rules)
    notes = [*cautions(info), *ends]
    own = OwnTables()
    for table, row in records_of(protocol, world):
        own.add(table, {"time_s": 0.0, "party": party_name(SERVER)}, row)
    extra = own.tables()
    if energy is not None:
        extra[ENERGY_BY_PARTY] = energy_by_party(energy.energy.by_party(books.row["time_s"]))
    return Outcome(tables, {}, info, extra, failed, "; ".join(filter(None, notes)))
