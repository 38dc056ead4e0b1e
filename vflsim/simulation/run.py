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

from vflsim.errors import CheckpointError, VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Executor, Handle, TimingOnlyExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.protocols.base import Protocol
from vflsim.protocols.blinded import MISSING_MASKS
from vflsim.protocols.capabilities import evaluated_splits, evaluates_wired
from vflsim.protocols.hook_checks import coroutine_of
from vflsim.results.facts import BlindingFacts, CodecFacts, Conditions, PrivacyFacts, StalledClient
from vflsim.results.store.pages import RunInfo, RunPath, cautions
from vflsim.results.store.schema import ENERGY_BY_PARTY, EVENTS, RunTables, energy_by_party
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.simulation.answers import answered
from vflsim.simulation.build import Parties, parties
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.conductor import Conductor, Course, CourseKeeper
from vflsim.simulation.info import conditions_of, measured, run_info
from vflsim.simulation.reporter import Progress
from vflsim.simulation.standstill import stalled_clients
from vflsim.simulation.variation import variation_of
from vflsim.stopping.end_rule import EndRule, RoundFacts
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.tables.arrow import numbers, words
from vflsim.vocabulary.execution_options import USUAL, Execution
from vflsim.vocabulary.on_demand import load, torch
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
    if not timing_only:
        load()
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    if not protocol.traits.runs_on_cpu:
        resolved = resolved.on(execution.device)
    if world is None:
        world = VirtualWorld(TimingOnlyExecutor() if timing_only else DeferredExecutor())
    recorder = Recorder(scenario.record.tables)
    batched = not execution.eager and isinstance(world.executor, DeferredExecutor)
    views = scenario.record.views if world.executor.values else None
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, world, recorder, batched, views)
    plan = RunPlan(scenario, name, seed, resolved, timing_only, execution)
    return EventRun(plan, nodes, report=report, keeper=keeper).play()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is run, and how: a protocol of a scenario with a seed, the ``setting`` of its parties, and the execution.

    ``conditions`` of the training are given where clients are in other processes.
    """

    scenario: Scenario
    name: str
    seed: int
    setting: Setting
    timing_only: bool = False
    execution: Execution = USUAL
    path: RunPath = "event"
    conditions: Conditions | None = None

    @property
    def protocol(self) -> Protocol:
        """The protocol of the run."""
        return self.scenario.protocols[self.name].protocol

    def rules(self, batches: int) -> tuple[EndRule, ...]:
        """Make the rules that end the run, whose epochs have so many ``batches``."""
        stop = self.scenario.stop_of(self.name)
        variation = variation_of(self.protocol, self.setting) if stop.asks_variation else None
        facts = RoundFacts.of(self.protocol.batch_plan(), len(self.setting.clients), batches, variation)
        return stop.each(facts)


class EventRun:
    """Plays the parties that have been made, until a stop rule of the scenario, and gathers what they have recorded.

    ``nodes`` may lack clients that other processes run; ``conducting`` makes what evaluates and ends such a run.
    """

    def __init__(
        self,
        plan: RunPlan,
        nodes: Parties,
        *,
        report: Callable[[Progress], None] | None = None,
        keeper: CourseKeeper | None = None,
        conducting: Callable[..., Conductor] = Conductor,
    ) -> None:
        self._plan, self._nodes, self._keeper = plan, nodes, keeper
        self._world, self._recorder = nodes.shared.world, nodes.shared.recorder
        self._rules = plan.rules(nodes.shared.sequence.per_epoch)
        self._conductor = conducting(
            nodes, self._rules, plan.scenario.evaluate_of(plan.name), evaluated_splits(plan.setting.data), report,
            wired=evaluates_wired(plan.protocol, plan.setting), metrics=plan.scenario.metric_facts,
        )  # fmt: skip
        self._stalled: list[StalledClient] = []

    def play(self) -> Outcome:
        """Run to the end. Raises ``CheckpointError`` where the keeper cannot resume."""
        plan, nodes, recorder, keeper = self._plan, self._nodes, self._recorder, self._keeper
        scope = nullcontext() if keeper is None else keeper.along(Course(self._world, nodes, recorder, self._conductor))
        settings = nullcontext() if plan.timing_only else plan.execution.settings()  # timing computes no tensor
        with settings, drawing_from(torch_seed(plan.seed, SHARED, "protocol"), alone=False), scope:
            reason, error = self._to_its_end()
        answers, error = answered(plan.scenario.evaluate_of(plan.name), nodes, plan.setting, plan.seed, error)
        tables = tables_of(recorder)
        measures, error = measured(plan.scenario.measures, plan.name, plan.seed, tables, error)
        reason = reason if error is None else None
        facts = self._facts() | ({} if plan.timing_only else facts_of_training(plan, nodes))
        info = run_info(plan.scenario, plan.name, plan.seed, error, stop_reason=reason, measures=measures, **facts)
        weights = {} if plan.timing_only else weights_of(nodes)
        notes = [self._conductor.ended_because, "" if keeper is None else keeper.note, *cautions(info)]
        notes += [rule.note(reason, recorder.rounds, self._world.now()) for rule in self._rules]
        nodes.server.learner.let_go()
        views = None if nodes.shared.views is None else nodes.shared.views.state()
        extra = recorder.own.tables() | answers
        if recorder.meter is not None:
            extra[ENERGY_BY_PARTY] = energy_by_party(recorder.meter.by_party(self._world.now()))
        return Outcome(tables, weights, info, extra, error, "; ".join(filter(None, notes)), views)

    def _to_its_end(self) -> tuple[str | None, VflsimError | None]:
        world, recorder = self._world, self._recorder
        self._conductor.start(self._begin)
        world.ending = lambda: self._stalled.extend(stalled_clients(self._nodes.clients))
        try:
            reason = world.run()
            world.conclude(self._conductor.last_row())
            if recorder.meter is not None:  # an evaluation that takes time may have ended after the last row
                recorder.recount()
            world.executor.flush()
            error = recorder.own.settle(_promised(world.executor))
        except CheckpointError:
            raise
        except VflsimError as failure:
            self._nodes.shared.close()
            recorder.own.settle()
            return None, failure
        return reason, error

    def _begin(self) -> None:
        nodes, outages = self._nodes, self._nodes.shared.outages
        server = coroutine_of(self._plan.protocol, "server", SERVER, nodes.server)
        self._world.spawn(server, "server", SERVER)
        if outages is not None:
            outages.begin(nodes.shared, {client.party: partial(self._start, client) for client in nodes.clients})
            return
        for client in nodes.clients:
            self._start(client)

    def _start(self, client: Node) -> Task:
        coroutine = coroutine_of(self._plan.protocol, "client", client.party, client)
        return self._world.spawn(coroutine, party_name(client.party), client.party)

    def _facts(self) -> dict[str, Any]:
        plan, recorder, outages = self._plan, self._recorder, self._nodes.shared.outages
        group = plan.setting.blinded_sum
        return {
            "stop_detail": self._conductor.ended_because or None,
            "timing_only": plan.timing_only,
            "path": plan.path,
            **plan.execution.facts(plan.setting.device.type, not plan.timing_only),
            "one_by_one": self._nodes.alone,
            "counts": recorder.of_run(len(recorder.events)),
            "steps": recorder.events.named_steps,
            "wall_clock_s": time.monotonic() - self._conductor.began,
            "blinding": None if group is None else BlindingFacts.of(group, recorder.own.rows.get(MISSING_MASKS, ())),
            "crashing": () if outages is None else tuple(sorted(outages.losing)),
            "stalled": tuple(self._stalled),
            **({"reproducible": False} if isinstance(self._world, RealTimeWorld) else {}),
        }


def facts_of_training(plan: RunPlan, nodes: Parties) -> dict[str, Any]:
    """Collect the fields of ``run.json`` that runs of timing alone lack."""
    data, learners = plan.setting.data, [node.learner for node in nodes.clients]
    return {
        "rows": {split: len(labels) for split, labels in data.labels.items() if len(labels)},
        "data": data.facts.stated(),
        "privacy": _privacy(plan.setting, nodes),
        "codec": _codec(nodes),
        "conditions": plan.conditions or conditions_of(plan.protocol, plan.setting, nodes.server.learner, learners),
    }


def _promised(executor: Executor) -> set[Handle[Any]] | None:
    """Return the handles that operations have promised, which a checkpoint would keep; None if there are none."""
    return {*executor.progress().kept.values()} if isinstance(executor, DeferredExecutor) else None


def _privacy(resolved: Setting, nodes: Parties) -> PrivacyFacts | None:
    """Compute the privacy of the clients' releases in this run; None without a mechanism."""
    if resolved.mechanism is None:
        return None
    return PrivacyFacts.of(resolved.mechanism, nodes.releases)


def _codec(nodes: Parties) -> CodecFacts | None:
    wires, parties = nodes.shared.wires, (nodes.server, *nodes.clients)
    counts = {party_name(node.party): node.state.wire.saturation for node in parties}
    upward = wires.codec.towards(SERVER)
    promise = upward.promise(wires.widest) if wires.widest else ""
    return CodecFacts.of(upward.kind, {name: (int(each.saturated), each.of) for name, each in counts.items()}, promise)


def weights_of(nodes: Parties) -> dict[str, torch.Tensor]:
    """Collect the weights and buffers of every party as ``<party>.<parameter>``."""
    return {
        f"{party_name(node.party)}.{key}": tensor
        for node in (nodes.server, *nodes.clients)
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
        event_columns(recorder.events) if recorder.keep == "events" else None,
    )


def event_columns(events: Events) -> dict[str, Any]:
    """Return the columns of the table of events."""
    table = events.table
    parties = max(table["party"].max(initial=0), table["peer"].max(initial=0)) + 1
    names = [party_name(party) for party in range(parties)]
    named = {"party": names, "kind": list(events.kinds), "peer": names, "outcome": OUTCOMES}

    def column(name: str) -> Any:
        values = np.ascontiguousarray(table[name])
        if name not in named:
            return values
        codes = numbers(values.astype(np.int32), values < 0)
        return pa.DictionaryArray.from_arrays(codes, words(named[name]))

    return {name: column(name) for name in EVENTS.names}
