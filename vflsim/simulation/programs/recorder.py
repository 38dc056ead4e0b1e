"""The schedule of a run that is timed event by event: which operations complete, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle, Operation, TimingOnlyExecutor
from vflsim.learning.learners.inputs import EmbedWork, StepWork
from vflsim.learning.programs.rounds import NoProgramError
from vflsim.learning.programs.schedule import RunSchedule, ScheduledRow
from vflsim.streams import SERVER
from vflsim.vocabulary.on_demand import Tensor


class ScheduleRecorder(TimingOnlyExecutor):
    """Runs nothing, and notes who embeds, steps and serves: rounds of split training alone have a schedule.

    Invariant: ``refusal`` says why the operations so far make no schedule; empty if they do.
    """

    def __init__(self) -> None:
        self.refusal = ""
        self._number: dict[int, int] = {}
        self._state: list[Literal["", "embedded", "received"]] = []
        self._embedded: dict[Handle[Tensor], tuple[int, Batch]] = {}
        self._latest: dict[int, Handle[Tensor]] = {}
        self._gradients: dict[int, tuple[Handle[Tensor], Batch, int, int]] = {}
        self._clients: list[NDArray[np.int64]] = []
        self._batches: list[NDArray[np.int64]] = []
        self._steps: list[NDArray[np.bool_]] = []
        self._rows: list[ScheduledRow] = []

    def begin(self, clients: Sequence[int], sequences: Sequence[BatchSequence]) -> None:
        """Name the participants, in client order, and the sequences of their batches."""
        self._number = {client: number for number, client in enumerate(clients)}
        self._state, self._sequences = [""] * len(clients), sequences

    def submit(self, operation: Operation[Any]) -> None:
        """Note a completed operation."""
        if self.refusal:
            return
        if operation.party == SERVER and operation.kind == "server_step":
            self._serve(operation)
        elif operation.kind == "embed" and isinstance(operation.work, EmbedWork):
            self._embed(operation)
        elif operation.kind == "client_step" and isinstance(operation.work, StepWork):
            self._step(operation, operation.work)
        else:
            self.refusal = f"parties do more than embed and step: {operation.kind}"

    def observe(self) -> None:
        """Note the state that a row of metrics describes."""
        waiting = np.array([state == "received" for state in self._state], np.bool_)
        self._rows.append(ScheduledRow(len(self._clients), waiting))

    def schedule(self) -> RunSchedule:
        """Return what has been noted. Raises ``NoProgramError`` with the reason if it makes no schedule."""
        if self.refusal:
            raise NoProgramError(self.refusal)
        clients, batches, everybody = self._clients, self._batches, np.arange(len(self._state))
        if all(
            len(used) == len(everybody) and (its == its[0]).all() for used, its in zip(clients, batches, strict=True)
        ):
            clients, batches = [everybody] * len(clients), [its[0] for its in batches]
        return RunSchedule(
            clients, batches, self._rows, None if all(each.all() for each in self._steps) else self._steps
        )

    def _embed(self, operation: Operation[Any]) -> None:
        number, batch, h = self._number[operation.party], operation.work.rows, operation.result
        if not isinstance(batch, Batch) or batch.origin != self._sequences[number].origin:
            self.refusal = "a client embeds rows of no batch of its own sequence"
            return
        if self._state[number] == "received":  # an outage has ended the step
            _, _, rounds, place = self._gradients[number]
            self._steps[rounds][place] = False
        if number in self._latest:
            self._embedded.pop(self._latest[number], None)
        self._latest[number], self._state[number] = h, "embedded"
        self._embedded[h] = number, batch

    def _serve(self, operation: Operation[Any]) -> None:
        _, *gradients = operation.promises
        used = [self._embedded.pop(each, None) for each in operation.inputs or ()]
        known = [each for each in used if each is not None]
        if len(known) != len(used) or len(used) != len(gradients):
            self.refusal = "the server steps on what is no client's latest embedding"
            return
        order = sorted(range(len(known)), key=lambda place: known[place][0])
        for place, position in enumerate(order):
            number, batch = known[position]
            self._gradients[number] = gradients[position], batch, len(self._clients), place
            self._state[number] = "received"
        self._clients.append(np.array([known[position][0] for position in order], np.int64))
        self._batches.append(np.array([known[position][1].index for position in order], np.int64))
        self._steps.append(np.ones(len(order), np.bool_))  # also if the run ends first: a longer one goes on

    def _step(self, operation: Operation[Any], work: StepWork) -> None:
        number = self._number[operation.party]
        gradient, batch, *_ = self._gradients.get(number, (None, None))
        if self._state[number] != "received" or work.received is not gradient or work.batch != batch:
            self.refusal = "a client steps on another gradient than that of its latest embedding"
            return
        self._state[number] = ""
