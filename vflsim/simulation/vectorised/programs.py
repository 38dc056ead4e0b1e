"""A round of training as a program: a few tensor calls on stacks of clients, without operations and promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflsim.errors import NonFiniteError, RunError, VflsimError
from vflsim.learning.batches import CPU, Batch, BatchSequence
from vflsim.learning.batching.kernels import whole
from vflsim.learning.batching.stack import Stack
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.finite import RECEIVED, finite_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.joint import Used
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols.base import Protocol
from vflsim.setting import Setting
from vflsim.simulation.build import brings_code
from vflsim.streams import SERVER, party_name
from vflsim.tracing.acts import ClientWork, ServerWork
from vflsim.tracing.trace import trace
from vflsim.world.messages import Embedding

ROUND = ("embed", "server_step", "client_step")
"""The computations of a round that has a program, in order."""


class NoProgramError(RunError):
    """Rounds of a protocol, or learners of its clients, have no program: the event path trains them."""


class SplitProgram:
    """Rounds of split training as a program: all clients embed a batch, the server steps, all step on its gradients.

    Invariants: a round calls the kernels that the event path's executor calls, in the same order, so that weights are
    equal to the last bit as long as that runs whole rounds together. ``rounds`` counts the server's steps; ``waiting``
    (M,) are the clients that have yet to step on the latest one. Nothing is read from another device than the CPU.
    Raises ``NoProgramError`` if a client is in no stack, or does not send its embeddings as they are.
    """

    def __init__(self, server: PartyLearner, clients: Sequence[PartyLearner], sequence: BatchSequence) -> None:
        if type(server) is not ServerLearner or any(type(each) is not ClientLearner for each in clients):
            raise NoProgramError("parties have learners of their own")
        split = [each for each in clients if isinstance(each, ClientLearner)]
        if not all(whole(each) and each.blinder is None for each in split):
            raise NoProgramError("clients protect their embeddings, or lack rows")
        self._stacks: dict[Stack, list[int]] = {}
        for number, learner in enumerate(split):
            if not isinstance(learner.stack, Stack):
                raise NoProgramError(f"{party_name(learner.party)} is computed by itself: no stack takes its model")
            self._stacks.setdefault(learner.stack, []).append(number)
        self._sequence = sequence
        self._server: ServerLearner = server
        self._clients = split
        coefficients = self._server.sums_of_all if self._server.embedding is None else None
        shared = len({*coefficients}) == 1 if coefficients is not None else False
        self._factor = coefficients[0] if coefficients and shared and all(each.joint for each in self._stacks) else None
        """What the sum of all embeddings is multiplied by, if the server needs no more of them."""
        self.rounds = 0
        self.losses: list[float | Tensor] = []
        """Those since somebody has taken them."""
        self.waiting: NDArray[np.bool_] = np.zeros(len(clients), bool)
        self._batch: Batch | None = None
        self._received: Sequence[Tensor] = ()
        self.between: Callable[[], None] = _nothing
        """Called between two rounds, when all clients have stepped."""

    def play(self, rounds: int, stepped: NDArray[np.bool_]) -> None:
        """Play until the server has done so many ``rounds``, and the clients ``stepped`` (M,) have done the last one.

        Raises ``NonFiniteError`` for a loss or a gradient that is not finite.
        """
        while self.rounds < rounds:
            self._step(self.waiting)
            self.between()
            self._serve()
        self._step(self.waiting & stepped)

    def _serve(self) -> None:
        """Embed the next batch at all clients, and step the server."""
        batch = self._batch = self._sequence.batch(self.rounds)
        (self._received,) = self._server.step_on([self._used(batch)], self._note)
        for learner, gradient in zip(self._clients, self._received[-len(self._clients) :], strict=False):
            if gradient.device == CPU and not torch.isfinite(gradient.sum()):
                where = f"{party_name(learner.party)}, client_step, round {self.rounds}"
                raise NonFiniteError(f"{RECEIVED} is not finite", where)
        self.rounds += 1
        self.waiting[:] = True

    def _note(self, mean: Tensor) -> None:
        on_cpu, where = mean.device == CPU, f"{party_name(SERVER)}, server_step, round {self.rounds}"
        self.losses.append(finite_loss(mean, where) if on_cpu else mean)

    def _used(self, batch: Batch) -> Used:
        if self._factor is not None:
            totals = [stack.total(range(len(whose)), batch, stack.parameters) for stack, whose in self._stacks.items()]
            joined = sum(totals[1:], start=totals[0]) * self._factor
            return Used(batch, (), joined.requires_grad_(), [joined], [self._factor])
        messages: list[Received] = []
        for learner in self._clients:
            messages.append(message := Embedding(batch, Handle((len(batch), learner.width), learner.dtype)))
            message.sender = learner.party
        for stack, whose in self._stacks.items():
            for number, h in zip(whose, stack.embed(batch), strict=True):
                messages[number].value.set(h)
        (used,) = self._server.inputs_of([(batch, messages)], messages)
        return used

    def _step(self, chosen: NDArray[np.bool_]) -> None:
        """Step some of the clients that wait."""
        if self._batch is None or not chosen.any():
            return
        own = len(self._received) - len(self._clients)  # the server's own embedding comes first
        for stack, whose in self._stacks.items():
            places = [place for place, number in enumerate(whose) if chosen[number]]
            if places:
                shared = self._factor is not None
                received = [self._received[0 if shared else own + whose[place]] for place in places]
                stack.descend(places, [self._batch] * len(places), received)
        self.waiting &= ~chosen


def _nothing() -> None:
    return None


def check_rounds(protocol: Protocol, setting: Setting, seed: int) -> None:
    """Raise ``NoProgramError`` unless a round is an embedding, a server step, and a step of every client.

    A trace shows which computations there are, not every value that is sent: a protocol from outside may send others.
    """
    if brings_code(protocol, setting):
        raise NoProgramError("code from outside takes part, which may do anything in an operation")
    if setting.training.batches == "own":
        raise NoProgramError("every client draws batches of its own")
    try:
        batch = protocol.batch_plan().batches(setting.data.rows, setting.training, seed).batch(0)
        traced = trace(protocol, setting, seed, batch)
    except VflsimError as why:
        raise NoProgramError(str(why)) from why
    for acts in traced.round.values():
        works = tuple(act.operation.kind for act in acts if isinstance(act, ClientWork | ServerWork))
        if works != ROUND:
            raise NoProgramError(f"a round is {', '.join(works)}", allowed=", ".join(ROUND))
    if any(isinstance(act, ClientWork | ServerWork) for acts in traced.before.values() for act in acts):
        raise NoProgramError("parties compute before the first round")
