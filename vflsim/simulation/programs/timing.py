"""The timing of a run that a program will train: its tables without scores, its learners and its schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vflsim.errors import VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.learning.programs.rounds import NoProgramError, SplitRun, split_run
from vflsim.learning.programs.schedule import Cursor, RunSchedule
from vflsim.protocols.capabilities import vectorised_by_hand
from vflsim.recurrences.chunk import UndecidedError
from vflsim.results.store.pages import SimulationPath
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import Parties, brings_code, parties
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.programs.arrays import ArraySchedule
from vflsim.simulation.programs.recorder import ScheduleRecorder
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import EventRun, Outcome, RunPlan
from vflsim.simulation.vectorised import run_vectorised
from vflsim.streams import SHARED, torch_seed
from vflsim.tracing.acts import ClientWork, ServerWork
from vflsim.tracing.trace import trace
from vflsim.vocabulary.execution_options import Execution
from vflsim.vocabulary.on_demand import load
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

ROUND = ("embed", "server_step", "client_step")
"""The computations of a round that has a program, in order."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run whose times are known: its ``outcome`` without training, and what a program trains."""

    plan: RunPlan
    nodes: Parties
    outcome: Outcome
    split: SplitRun


@patient_collector()
def timed(
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    execution: Execution,
    by_arrays: bool,
    report: Callable[[Progress], None] | None = None,
) -> TimedRun:
    """Time a run that has no obstacles to a program: by arrays, or event by event.

    Raises ``UndecidedError`` for what only the event path can decide, and ``NoProgramError`` with the reason if the
    run's operations make no schedule, or its learners no program.
    """
    load()
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data).on(execution.device)
    if brings_code(protocol, resolved):
        raise NoProgramError("code from outside takes part, which may do anything in an operation")
    recorder = ScheduleRecorder()
    world = VirtualWorld(TimingOnlyExecutor() if by_arrays else recorder)
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, world, Recorder(scenario.record.tables), batched=True)
    clients = [node.learner for node in nodes.clients]
    sequences = [node.state.batches for node in nodes.clients]
    path: SimulationPath = "vectorised" if by_arrays else "event"
    plan = RunPlan(scenario, name, seed, resolved, timing_only=True, execution=execution, path=path)
    split = split_run(nodes.server.learner, clients, Cursor(RunSchedule((), (), ()), sequences))
    if by_arrays:
        _check_rounds(plan)
        arrays = ArraySchedule(len(clients))
        outcome = run_vectorised(scenario, name, seed, data, report, schedule=arrays)
        schedule = arrays.schedule
    else:
        recorder.begin(resolved.clients, sequences)
        outcome = EventRun(plan, nodes, report=report).play()
        schedule = recorder.schedule()
    if isinstance(outcome.error, UndecidedError):
        raise outcome.error
    if outcome.error is not None:
        raise NoProgramError(f"its timing ends in an error: {outcome.error.what}")
    split.cursor = Cursor(schedule, sequences)
    return TimedRun(replace(plan, timing_only=False), nodes, outcome, split)


def _check_rounds(plan: RunPlan) -> None:
    """Raise ``NoProgramError`` if a round is traced and more than embeddings and steps."""
    if vectorised_by_hand(plan.protocol) is not None:
        return
    try:
        rows, training = plan.setting.data.rows, plan.setting.training
        batch = plan.protocol.batch_plan().batches(rows, training, plan.seed).batch(0)
        traced = trace(plan.protocol, plan.setting, plan.seed, batch)
    except VflsimError as why:
        raise NoProgramError(str(why)) from why
    for acts in traced.round.values():
        works = tuple(act.operation.kind for act in acts if isinstance(act, ClientWork | ServerWork))
        if works != ROUND:
            raise NoProgramError(f"a round is {', '.join(works)}", allowed=", ".join(ROUND))
    if any(isinstance(act, ClientWork | ServerWork) for acts in traced.before.values() for act in acts):
        raise NoProgramError("parties compute before the first round")
