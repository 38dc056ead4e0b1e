"""Training of timed runs, side by side: rounds until the next row of any run, then its evaluation."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from vflsim.errors import VflsimError
from vflsim.learning.execution.operations import Operation, run_together
from vflsim.learning.models.build import drawing_from
from vflsim.learning.optimizers import StackedOptimizer
from vflsim.learning.programs.lockstep import SumProgram, sum_alone
from vflsim.learning.programs.own_pace import OwnPaceProgram
from vflsim.learning.programs.rounds import DivergedError, JointProgram, SplitRun
from vflsim.learning.programs.servers import Uploaded
from vflsim.protocols.capabilities import evaluated_splits
from vflsim.protocols.hook_checks import checked_score
from vflsim.results.store.pages import cautions
from vflsim.results.store.schema import RunTables
from vflsim.simulation.checkpoints.files import Checkpoint
from vflsim.simulation.checkpoints.keeper import Keeper
from vflsim.simulation.checkpoints.snapshot import Position, Snapshot, packed, unpacked
from vflsim.simulation.checkpoints.values import TensorReader, TensorWriter, load_states, states_of
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.info import measured
from vflsim.simulation.programs.timing import TimedRun
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, facts_of_training, weights_of
from vflsim.stopping.end_rule import EndRule, Tally, share_of
from vflsim.streams import SHARED, torch_seed
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.run_tables import AGES

_LOSS, _PROGRAM = "train_loss", "program"


@dataclass(slots=True)
class TrainedRun:
    """A timed run in training: its rows of metrics so far, each with the loss and the scores.

    ``keeper`` keeps checkpoints between rounds. ``seconds`` is its share of the time that it took with others.
    """

    timed: TimedRun
    report: Callable[[Progress], None] | None = None
    keeper: Keeper | None = None
    rows: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    state: Mapping[str, Tensor] = field(default_factory=dict)
    """What the program has to restore."""
    rules: Sequence[EndRule] | None = None
    """What ends it, for the share that is done."""

    @property
    def split(self) -> SplitRun:
        """What is trained."""
        return self.timed.split

    def shapes(self) -> tuple[Any, ...]:
        """Return what runs have in common that are trained as one program."""
        split = self.split
        stacks = [
            (type(stack), type(stack.optimizer), stack.optimizer.slots, *map(_outline, stack.parameters))
            for stack in split.stacks
        ]
        top, server = split.server.top, split.server
        top.train()
        rule = top.optimizer.slots if isinstance(top.optimizer, StackedOptimizer) else ()
        layers = [repr(module) for module in top.module.modules()]
        rows = len(server.parts.labels["train"]), server.parts.task.name, type(server.parts.task.own_loss)
        return (
            *stacks, tuple(each.place for each in split.clients), type(top.optimizer), rule, *layers, rows,
            tuple(server.sums_of_all or ()), server.parts.table, sum_alone(split),
        )  # fmt: skip

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go to the place of a checkpoint."""
        snapshot, tensors = checkpoint.snapshot, TensorReader(checkpoint.snapshot.tensors, checkpoint.storages)
        journal = unpacked(snapshot.journal, tensors[snapshot.numbers])
        self.rows = [entry for entry in journal if isinstance(entry, dict)]
        self.split.losses = [entry for entry in journal if not isinstance(entry, dict)]
        states = {
            owner: {name: tensors.borrowed(number) for name, number in state.items()}
            for owner, state in snapshot.states.items()
        }
        self.state = states.pop(_PROGRAM)
        load_states(self.timed.nodes, states)
        self.split.cursor.at(int(self.state["round"]), len(self.rows))
        self.seconds = snapshot.elapsed_s

    def write_row(self, losses: Sequence[float]) -> None:
        """Evaluate, add a row, and report it."""
        loss = sum(losses) / len(losses) if losses else math.nan
        scores = self._scores()
        self.rows.append({_LOSS: loss, **scores})
        self.split.cursor.row += 1
        if self.report is not None:
            table, place = self.timed.outcome.tables.metrics, len(self.rows) - 1
            now, rounds, updates = (table[name][place].as_py() for name in ("time_s", "round", "updates"))
            plan = self.timed.plan
            if self.rules is None:
                self.rules = plan.rules(self.timed.nodes.shared.sequence.per_epoch)
            share = share_of(self.rules, Tally(rounds, updates, 0, time_s=now))
            self.report(Progress(now, rounds, updates, scores, share))

    def keep(self, program: JointProgram, number: int) -> None:
        """Write a checkpoint that is due. Raises ``KeyboardInterrupt`` if the run is to stop."""
        if self.keeper is not None and self.keeper.due:
            program.store(number, table=True)
            with suppress(DivergedError):  # the next row will tell
                losses = program.losses(number)
                self.keeper.keep(partial(self._snapshot, program.state(number), losses))

    def outcome(self, together: int) -> Outcome:
        """Return the outcome of the run, whose weights are those of its learners."""
        plan, nodes, before = self.timed.plan, self.timed.nodes, self.timed.outcome
        columns = {name: before.tables.metrics[name] for name in before.tables.metrics.column_names}
        ages = {column.name for column in AGES}
        scores = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}
        metrics = {name: column for name, column in columns.items() if name not in ages} | scores
        metrics |= {name: column for name, column in columns.items() if name in ages}
        tables = RunTables(metrics, before.tables.rounds, before.tables.events)
        measures, error = measured(plan.scenario.measures, plan.name, plan.seed, tables, None)
        facts = {
            "timing_only": False,
            **plan.execution.facts(plan.setting.device.type, True),
            **({"together": together} if "together" in type(before.info).model_fields else {}),
            "one_by_one": nodes.alone,
            "measures": measures,
            "wall_clock_s": before.info.wall_clock_s + self.seconds,
            **facts_of_training(plan, nodes),
            **({} if error is None else {"status": "failed", "error": str(error), "stop_reason": None}),
        }
        info = before.info.model_copy(update=facts)
        notes = ["" if self.keeper is None else self.keeper.note, *before.note.split("; "), *cautions(info)]
        note = "; ".join(dict.fromkeys(filter(None, notes)))
        return replace(before, tables=tables, weights=weights_of(nodes), info=info, error=error, note=note)

    def _scores(self) -> dict[str, float]:
        """Evaluate the models as they are now."""
        nodes, plan = self.timed.nodes, self.timed.plan
        server, scores = self.split.server, dict[str, float]()
        for split in evaluated_splits(plan.setting.data):
            operations = [learner.embed_split(split) for learner in self.split.clients]
            kernels: dict[int, list[Operation[Any]]] = {}
            for operation in operations:
                kernels.setdefault(id(operation.kernel), []).append(operation)
            for some in kernels.values():
                run_together(some)
            parties = [node.party for node in nodes.clients]
            uploads = zip(parties, operations, strict=True)
            evaluated = server.evaluate(split, [Uploaded(party, None, each.result) for party, each in uploads])
            evaluated.run()
            known = plan.scenario.metric_facts
            values = checked_score(evaluated.result.value, type(server).__name__, known, ())
            scores |= {f"{split}_{name}": value for name, value in values.items()}
        return scores

    def _snapshot(self, state: Mapping[str, Tensor], losses: Sequence[float]) -> tuple[Snapshot, Mapping[str, Tensor]]:
        self.split.losses = [*losses]
        tensors = TensorWriter()
        journal, numbers = packed([*self.rows, *losses])
        states = {
            owner: {name: tensors.add(tensor) for name, tensor in its.items()}
            for owner, its in {**states_of(self.timed.nodes), _PROGRAM: dict(state)}.items()
        }
        counts = {"rounds": self.split.cursor.round}
        now = self.timed.outcome.tables.metrics["time_s"][max(0, len(self.rows) - 1)].as_py()
        position = Position(events=len(self.rows), time_s=now, counts=counts, recorded="")
        snapshot = Snapshot(
            position=position, elapsed_s=self.seconds, ran={}, journal=journal, numbers=tensors.add(numbers), kept=[],
            shared={}, states=states, tensors=tensors.places,
        )  # fmt: skip
        return snapshot, tensors.storages


def _outline(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype


def trained(runs: Sequence[TrainedRun]) -> Iterator[tuple[int, Outcome | VflsimError]]:
    """Train runs of equal ``shapes`` side by side; yield the place and the outcome of each as it ends.

    A run that diverges ends with the error in place of an outcome: the event path has its rows, party and round.
    Raises ``KeyboardInterrupt`` after checkpoints of all runs that have been asked for one.
    """
    first = runs[0].timed.plan
    with ExitStack() as scopes:
        scopes.enter_context(patient_collector())
        scopes.enter_context(first.execution.settings())
        scopes.enter_context(drawing_from(torch_seed(first.seed, SHARED, "protocol"), alone=False))
        for run in runs:
            checkpoint = None if run.keeper is None else scopes.enter_context(run.keeper.at_rounds())
            if checkpoint is not None:
                run.resume(checkpoint)
        left = dict(enumerate(runs))
        while left:
            program = _program([*left.values()])
            for place, outcome in _until_one_ends(program, left, len(runs)):
                del left[place]
                yield place, outcome


def _until_one_ends(
    program: JointProgram, left: Mapping[int, TrainedRun], together: int
) -> Iterator[tuple[int, Outcome | VflsimError]]:
    """Train until a run ends; yield those that have ended, and bring what the others have learnt to their learners."""
    places, runs = [*left], [*left.values()]
    began = time.monotonic()

    def settle_time() -> None:
        nonlocal began
        now = time.monotonic()
        for run in runs:
            run.seconds += (now - began) / len(runs)
        began = now

    ended: deque[tuple[int, Outcome | VflsimError]] = deque()
    while not ended:
        for number, run in enumerate(runs):
            cursor = run.split.cursor
            try:
                while not cursor.over and not cursor.ahead:
                    program.settle(number)
                    losses = program.losses(number)
                    program.store(number)
                    run.write_row(losses)
                if cursor.over:
                    _check_finite(run)
                    settle_time()
                    ended.append((places[number], run.outcome(together)))
            except DivergedError as error:
                ended.append((places[number], error))
        settle_time()
        if not ended:  # a run with a later end does not have the last row
            _keep_all(program, runs)
            program.play()
    done = {place for place, _ in ended}
    for number, (place, run) in enumerate(zip(places, runs, strict=True)):
        if place not in done:
            program.store(number, table=True)
            run.state = program.state(number)
    yield from ended


def _keep_all(program: JointProgram, runs: Sequence[TrainedRun]) -> None:
    interrupt: KeyboardInterrupt | None = None
    for number, run in enumerate(runs):
        try:
            run.keep(program, number)
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _program(runs: Sequence[TrainedRun]) -> JointProgram:
    kind = OwnPaceProgram if sum_alone(runs[0].split) is None else SumProgram
    program = kind([run.split for run in runs])
    for number, run in enumerate(runs):
        if run.state:
            run.split.received = {}
            program.load(number, run.state)
    return program


def _check_finite(run: TrainedRun) -> None:
    """Raise ``DivergedError`` if the last gradients were not finite, which no loss has shown."""
    tensors = [*run.split.server.top.vector_parts, *(each for stack in run.split.stacks for each in stack.parameters)]
    if not all(bool(torch.isfinite(each).all()) for each in tensors):
        raise DivergedError(0, run.split.cursor.round)
