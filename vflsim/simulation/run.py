"""Execute one run: one protocol of a scenario with one seed, in one world."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from vflsim.errors import CheckpointError, VflsimError
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.execution.deferred import DeferredExecutor
from vflsim.learning.execution.executor import Executor, TimingOnlyExecutor
from vflsim.learning.execution.operations import Handle
from vflsim.learning.randomness import drawing_from
from vflsim.protocols.blinded import MISSING_MASKS
from vflsim.protocols.defaults import evaluated_splits, evaluates_wired
from vflsim.protocols.made import coroutine_of
from vflsim.results.facts import BlindingFacts, CodecFacts, Conditions, PrivacyFacts, StalledClient
from vflsim.results.store.columns import ENERGY_BY_PARTY, energy_by_party
from vflsim.results.store.schema import EVENTS, RunInfo, RunPath, RunTables, cautions
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.simulation.answers import answered
from vflsim.simulation.build import Parties, parties
from vflsim.simulation.conditions import conditions_of
from vflsim.simulation.conductor import Conductor
from vflsim.simulation.execution import USUAL, Execution, patient_collector
from vflsim.simulation.info import run_info
from vflsim.simulation.measured import measured
from vflsim.simulation.reporter import Progress
from vflsim.simulation.resumable import Course, CourseKeeper
from vflsim.simulation.stalled import stalled_clients
from vflsim.simulation.variation import variation_of
from vflsim.stopping.end_rule import RoundFacts
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.world.kernel import World
from vflsim.world.node import Node
from vflsim.world.realtime import RealTimeWorld
from vflsim.world.record import OUTCOMES, Events, Recorder
from vflsim.world.run_tables import ENERGY, metrics_columns
from vflsim.world.task import Task
from vflsim.world.virtual import VirtualWorld


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run. ``error`` ended a failed run, whose tables hold the rows until then.

    ``note`` is a note for the user about the run. ``views`` are what parties have received, if the run records it.
    """

    tables: RunTables
    weights: Mapping[str, torch.Tensor]
    info: RunInfo
    extra: Mapping[str, pa.Table]
    error: VflsimError | None = None
    note: str = ""
    views: Mapping[str, torch.Tensor] | None = None


@patient_collector()
def run_protocol(
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    *,
    world: World | None = None,
    timing_only: bool = False,
    report: Callable[[Progress], None] | None = None,
    execution: Execution = USUAL,
    keeper: CourseKeeper | None = None,
) -> Outcome:
    """Run protocol ``name`` with ``seed`` in ``world`` (default: virtual time) until a stop rule of the scenario.

    A failed run keeps its tables; the outcome has the error, which names the party and the virtual time. ``keeper``,
    for training in virtual time, keeps checkpoints and resumes from them: raises ``CheckpointError`` if it cannot, and
    ``KeyboardInterrupt`` if the keeper is asked to stop.
    """
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    if not protocol.traits.runs_on_cpu:
        resolved = resolved.on(execution.device)
    if world is None:
        world = VirtualWorld(TimingOnlyExecutor() if timing_only else DeferredExecutor())
    recorder = Recorder(scenario.record.tables)
    batched = not execution.eager and isinstance(world.executor, DeferredExecutor)
    views = scenario.record.views if world.executor.values else None
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        made = parties(protocol, resolved, seed, world, recorder, batched, views)
    learners = [node.learner for node in made.clients]
    conditions = None if timing_only else conditions_of(protocol, resolved, made.server.learner, learners)
    return run_parties(
        scenario, name, seed, resolved, made, conditions, timing_only=timing_only, report=report, execution=execution,
        keeper=keeper,
    )  # fmt: skip


def run_parties(
    scenario: Scenario,
    name: str,
    seed: int,
    resolved: Setting,
    made: Parties,
    conditions: Conditions | None,
    *,
    timing_only: bool = False,
    report: Callable[[Progress], None] | None = None,
    execution: Execution = USUAL,
    keeper: CourseKeeper | None = None,
    conducting: Callable[..., Conductor] = Conductor,
    path: RunPath = "event",
) -> Outcome:
    """Run the parties that have been made, until a stop rule of the scenario, and gather what they have recorded.

    ``made`` may lack clients that other processes run; ``conducting`` makes what evaluates and ends such a run.
    """
    protocol, data = scenario.protocols[name].protocol, resolved.data
    world, recorder = made.shared.world, made.shared.recorder
    batches, clients = made.shared.sequence.per_epoch, len(resolved.clients)
    stop = scenario.stop_of(name)
    variation = variation_of(protocol, resolved) if stop.asks_variation else None
    rules = stop.each(RoundFacts.of(protocol.batch_plan(), clients, batches, variation))
    conductor = conducting(
        made,
        rules,
        scenario.evaluate_of(name),
        evaluated_splits(data),
        report,
        wired=evaluates_wired(protocol, resolved),
        metrics=scenario.metric_facts,
    )

    def start(client: Node) -> Task:
        made_of = coroutine_of(protocol, "client", client.party, client)
        return world.spawn(made_of, party_name(client.party), client.party)

    def begin() -> None:
        world.spawn(coroutine_of(protocol, "server", SERVER, made.server), "server", SERVER)
        if made.shared.outages is not None:
            made.shared.outages.begin(made.shared, {client.party: partial(start, client) for client in made.clients})
            return
        for client in made.clients:
            start(client)

    reason, error = None, None
    kept = nullcontext() if keeper is None else keeper.along(Course(world, made, recorder, conductor))
    with execution.settings(), drawing_from(torch_seed(seed, SHARED, "protocol"), alone=False), kept:
        conductor.start(begin)
        stalled: list[StalledClient] = []
        world.ending = lambda: stalled.extend(stalled_clients(made.clients))
        try:
            reason = world.run()
            world.conclude(conductor.last_row())
            if recorder.meter is not None:  # an evaluation that takes time may have ended after the last row
                recorder.recount()
            world.executor.flush()
            error = recorder.own.settle(_promised(world.executor))
            reason = reason if error is None else None
        except CheckpointError:
            raise
        except VflsimError as failure:
            error = failure
            made.shared.close()
            recorder.own.settle()
    group = resolved.blinded_sum
    blinding = None if group is None else BlindingFacts.of(group, recorder.own.rows.get(MISSING_MASKS, ()))
    codec = None if timing_only else _codec(made)
    answers, error = answered(scenario.evaluate_of(name), made, resolved, seed, error)
    tables = tables_of(recorder)
    measures, error = measured(scenario.measures, name, seed, tables, error)
    reason = reason if error is None else None
    real = {"reproducible": False} if isinstance(world, RealTimeWorld) else {}
    info = run_info(
        scenario,
        name,
        seed,
        error,
        stop_reason=reason,
        stop_detail=conductor.ended_because or None,
        measures=measures,
        timing_only=timing_only,
        path=path,
        device=resolved.device.type,
        threads=execution.threads,
        tf32=execution.tf32,
        learning_plane=None if timing_only else execution.learning_plane,
        one_by_one=made.alone,
        rows={} if timing_only else {split: len(labels) for split, labels in data.labels.items() if len(labels)},
        data={} if timing_only else data.facts.stated(),
        counts={"rounds": recorder.rounds, "updates": recorder.updates, "events": len(recorder.events)},
        wall_clock_s=time.monotonic() - conductor.began,
        privacy=None if timing_only else _privacy(resolved, made),
        blinding=blinding,
        codec=codec,
        conditions=conditions,
        crashing=() if made.shared.outages is None else tuple(sorted(made.shared.outages.losing)),
        stalled=tuple(stalled),
        **real,
    )
    weights = {} if timing_only else _weights(made)
    notes = [conductor.ended_because, "" if keeper is None else keeper.note, *cautions(info)]
    notes += [rule.note(reason, recorder.rounds, world.now()) for rule in rules]
    made.server.learner.let_go()
    seen = None if made.shared.views is None else made.shared.views.state()
    extra = recorder.own.tables() | answers
    if recorder.meter is not None:
        extra[ENERGY_BY_PARTY] = energy_by_party(recorder.meter.by_party(world.now()))
    return Outcome(tables, weights, info, extra, error, "; ".join(filter(None, notes)), seen)


def _promised(executor: Executor) -> set[Handle[Any]] | None:
    """Return the handles that operations have promised, which a checkpoint would keep; None if there are none."""
    return {*executor.progress().kept.values()} if isinstance(executor, DeferredExecutor) else None


def _privacy(resolved: Setting, made: Parties) -> PrivacyFacts | None:
    """Compute the privacy of the clients' releases in this run; None without a mechanism."""
    if resolved.mechanism is None:
        return None
    return PrivacyFacts.of(resolved.mechanism, made.releases)


def _codec(made: Parties) -> CodecFacts | None:
    """Collect the counts of saturated elements, and what the codec of uploads guarantees."""
    wires, nodes = made.shared.wires, (made.server, *made.clients)
    counts = {party_name(node.party): node.state.wire.saturation for node in nodes}
    upward = wires.codec.towards(SERVER)
    promise = upward.promise(wires.widest) if wires.widest else ""
    return CodecFacts.of(upward.kind, {name: (int(each.saturated), each.of) for name, each in counts.items()}, promise)


def _weights(made: Parties) -> dict[str, torch.Tensor]:
    """Collect the weights and buffers of every party as ``<party>.<parameter>``."""
    return {
        f"{party_name(node.party)}.{key}": tensor
        for node in (made.server, *made.clients)
        for key, tensor in node.learner.weights().items()
    }


def tables_of(recorder: Recorder) -> RunTables:
    """Return the tables of what has been recorded."""
    if recorder.meter is not None and recorder.keep != "summary":
        recorder.meter.settle()
        recorder.round_rows[ENERGY] = np.diff(recorder.meter.rounds, prepend=0.0)
    return RunTables(
        metrics_columns(recorder.metric_rows),
        None if recorder.keep == "summary" else recorder.round_rows.columns(recorder.meter is not None),
        _event_columns(recorder.events) if recorder.keep == "events" else None,
    )


def _event_columns(events: Events) -> dict[str, Any]:
    table = events.table
    parties = max(table["party"].max(initial=0), table["peer"].max(initial=0)) + 1
    names = [party_name(party) for party in range(parties)]
    words = {"party": names, "kind": list(events.kinds), "peer": names, "outcome": OUTCOMES}

    def column(name: str) -> Any:
        values = np.ascontiguousarray(table[name])
        if name not in words:
            return values
        codes = pa.array(values.astype(np.int32), mask=values < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(words[name], pa.string()))

    return {name: column(name) for name in EVENTS.names}
