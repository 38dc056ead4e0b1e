"""Training along rounds whose times are arrays: what it adds to the rows of metrics, and its checkpoints."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import RunError, VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import finite_loss
from vflsim.learning.models.build import drawing_from
from vflsim.protocols.capabilities import evaluated_splits, evaluates_wired
from vflsim.recurrences.chunk import Chunk, UndecidedError, undecided
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import Parties, parties
from vflsim.simulation.checkpoints.files import Checkpoint
from vflsim.simulation.checkpoints.keeper import Keeper
from vflsim.simulation.checkpoints.snapshot import Position, Snapshot, packed, unpacked
from vflsim.simulation.checkpoints.values import TensorReader, TensorWriter, load_states, states_of
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.conductor import Conductor
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, RunPlan, facts_of_training, weights_of
from vflsim.simulation.vectorised.programs import program_of
from vflsim.simulation.vectorised.run import run_vectorised
from vflsim.stopping.end_rule import Tally, share_of
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.vocabulary.execution_options import Execution
from vflsim.vocabulary.on_demand import Tensor, load, torch
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

_LOSS, _PROGRAM = "train_loss", "program"


class ProgramRun:
    """Plays a ``RoundProgram`` along chunks of rounds, and evaluates it for each row of metrics.

    ``keeper`` keeps checkpoints between rounds; a run resumes with the rows that the checkpoint has, and trains on from
    its round. Raises ``NoProgramError`` with the reason.
    """

    def __init__(self, plan: RunPlan, nodes: Parties, report: Callable[[Progress], None] | None = None) -> None:
        self.plan, self.nodes, self._report = plan, nodes, report
        self.program = program_of(plan.protocol, plan.setting, plan.seed, nodes)
        self.rounds = 0
        """The rounds before the latest row that was asked for."""
        self.began = time.monotonic()
        self._world = nodes.shared.world
        self._conductor = Conductor(
            nodes, (), plan.scenario.evaluate_of(plan.name), evaluated_splits(plan.setting.data),
            wired=evaluates_wired(plan.protocol, plan.setting), metrics=plan.scenario.metric_facts,
        )  # fmt: skip
        self._rules = plan.rules(nodes.shared.sequence.per_epoch)
        self._keeper: Keeper | None = None
        self._chunk: Chunk | None = None
        self._rows: list[dict[str, float]] = []
        self._recalled: deque[dict[str, float]] = deque()
        self._now = 0.0

    def follow(self, chunk: Chunk) -> None:
        """Take the times of the next rounds."""
        if self._chunk is not None and not self._recalled:
            before = self._chunk
            self._play(before.first + len(before.ends), float(before.ends[-1]))
        self._chunk = chunk

    def scored(self, now: float, rounds: int, updates: int) -> tuple[float, Mapping[str, float]]:
        """Train until ``now``: see ``Scored``. Raises ``UndecidedError`` if it cannot tell who has stepped."""
        self.rounds = rounds
        if self._recalled:
            row = dict(self._recalled.popleft())
        else:
            self._now = now
            self._play(rounds, now)
            self._settle(now, updates)
            losses, self.program.losses = self._losses(), []
            self._world.conclude(self._evaluate(now))
            row = {_LOSS: sum(losses) / len(losses) if losses else math.nan, **self._scores}
        self._rows.append(row)
        scores = {name: value for name, value in row.items() if name != _LOSS}
        if self._report is not None:
            share = share_of(self._rules, Tally(rounds, updates, self.program.embedded, time_s=now))
            self._report(Progress(now, rounds, updates, scores, share))
        return row[_LOSS], scores

    def _play(self, rounds: int, now: float) -> None:
        """Play until the server has done so many ``rounds``, all of which are over ``now``."""
        if self._chunk is None or rounds <= self.program.rounds:
            return
        some = slice(self.program.rounds - self._chunk.first, rounds - self._chunk.first)
        places = next((moves.places for moves in self._chunk.after if moves.direction == "down"), None)
        try:
            self.program.play(None if places is None else places[some], _steps(self._chunk)[some], now)
        except VflsimError:
            raise
        except Exception as error:  # PyTorch's, of rates that no float holds
            raise RunError(f"training failed: {error}", f"round {self.program.rounds}") from error

    def _settle(self, now: float, updates: int) -> None:
        """Have those clients step that have done so ``now``, when there have been so many ``updates``."""
        ends, left = self.program.ends, updates - self.program.updates
        for chosen in (ends <= now, ends < now, np.zeros(len(ends), bool)):
            if np.count_nonzero(chosen) == left:
                self.program.settle(chosen)
                return
        raise undecided("clients step as a row is due", self.rounds - 1, now)

    def _losses(self) -> list[float]:
        """Return the losses since the row before; those on another device in one read."""
        where = f"{party_name(SERVER)}, server_step, before round {self.program.rounds}"
        kept = [each for each in self.program.losses if isinstance(each, float)]
        away = [each for each in self.program.losses if not isinstance(each, float)]
        return [*kept, *(finite_loss(each, where) for each in (torch.stack(away).cpu() if away else ()))]

    async def _evaluate(self, now: float) -> None:
        await self._world.pause(now - self._world.now(), "the evaluation")
        self._scores = await self._conductor.evaluated()

    @property
    def note(self) -> str:
        """A note for the user about checkpoints."""
        return "" if self._keeper is None else self._keeper.note

    def facts(self) -> dict[str, Any]:
        """Return the fields of ``run.json`` that runs of timing alone lack."""
        execution = self.plan.execution.facts(self.plan.setting.device.type, True)
        return {**execution, "one_by_one": self.nodes.alone, **facts_of_training(self.plan, self.nodes)}

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights of all parties at the end of the run."""
        return weights_of(self.nodes)

    # --- being interrupted ------------------------------------------------------------------------------------------

    def along(self, keeper: Keeper, checkpoint: Checkpoint | None) -> None:
        """Have checkpoints kept between rounds, and resume from the ``checkpoint``."""

        def between() -> None:
            if keeper.due:
                keeper.keep(self._snapshot)

        self._keeper, self.program.between = keeper, between
        if checkpoint is None:
            return
        snapshot, tensors = checkpoint.snapshot, TensorReader(checkpoint.snapshot.tensors, checkpoint.storages)
        journal = unpacked(snapshot.journal, tensors[snapshot.numbers])
        self._recalled.extend(entry for entry in journal if isinstance(entry, dict))
        self.program.losses = [entry for entry in journal if not isinstance(entry, dict)]
        states = {owner: {name: tensors.borrowed(number) for name, number in state.items()}
                  for owner, state in snapshot.states.items()}  # fmt: skip
        self.program.load(states.pop(_PROGRAM))
        load_states(self.nodes, states)
        self.began -= snapshot.elapsed_s

    def _snapshot(self) -> tuple[Snapshot, Mapping[str, Tensor]]:
        tensors, losses = TensorWriter(), self._losses()
        journal, numbers = packed([*self._rows, *losses])
        states = {owner: {name: tensors.add(tensor) for name, tensor in state.items()}
                  for owner, state in {**states_of(self.nodes), _PROGRAM: self.program.state()}.items()}  # fmt: skip
        counts = {"rounds": self.program.rounds}
        position = Position(events=len(self._rows), time_s=self._now, counts=counts, recorded="")
        snapshot = Snapshot(
            position=position, elapsed_s=time.monotonic() - self.began, ran={}, journal=journal,
            numbers=tensors.add(numbers), kept=[], shared={}, states=states, tensors=tensors.places,
        )  # fmt: skip
        return snapshot, tensors.storages


def _steps(chunk: Chunk) -> NDArray[Any]:
    return chunk.steps if chunk.steps.ndim == 2 else chunk.steps[:, -1]


@patient_collector()
def run_trained(
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    execution: Execution,
    report: Callable[[Progress], None] | None = None,
    keeper: Keeper | None = None,
) -> Outcome:
    """Run protocol ``name``, which has no obstacles, with ``seed``: times by arrays, training by a program.

    Times are computed alone first: what only the event path can decide shows before anything is trained. Raises
    ``NoProgramError`` with the reason if there is none, and as ``run_protocol``.
    """
    alone = run_vectorised(scenario, name, seed, data)
    if isinstance(alone.error, UndecidedError):
        return alone
    load()
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data).on(execution.device)
    recorder = Recorder("summary")
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, VirtualWorld(DeferredExecutor()), recorder, batched=True)
    plan = RunPlan(scenario, name, seed, resolved, execution=execution, path="vectorised")
    training = ProgramRun(plan, nodes, report)
    scope = nullcontext() if keeper is None else keeper.at_rounds()
    with execution.settings(), drawing_from(torch_seed(seed, SHARED, "protocol"), alone=False), scope as checkpoint:
        if keeper is not None:
            training.along(keeper, checkpoint)
        return run_vectorised(scenario, name, seed, data, training=training)
