"""A round of training as a program: a few tensor calls on stacks of clients, without operations and promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import NonFiniteError, RunError, VflsimError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.batching.kernels import whole
from vflsim.learning.batching.stack import Stack
from vflsim.learning.execution.operations import RECEIVED, Handle, finite_loss
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.joint import Used, groups_of
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import vectorised_by_hand
from vflsim.recurrences.stages import Ints
from vflsim.setting import Setting
from vflsim.simulation.build import Parties, brings_code
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import ClientWork, ServerWork
from vflsim.tracing.trace import trace
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import Embedding

ROUND = ("embed", "server_step", "client_step")
"""The computations of a round that has a program, in order."""


_MOST = 2**28
"""Bytes of embeddings that are computed together before they are needed."""
_NO_BATCH = Batch(-1, np.empty(0, np.int64))


class NoProgramError(RunError):
    """Rounds of a protocol, or learners of its clients, have no program: the event path trains them."""


class RoundProgram(ABC):
    """Rounds of split training as a program: some clients embed, the server steps, and they step on its gradients.

    Invariants: ``rounds`` counts the server's steps, ``updates`` the clients', and ``embedded`` the embeddings used;
    ``ends`` (M,) are the times at which clients step on what they have received (s; inf: they have). Nothing is read
    from another device than the CPU.
    Raises ``NoProgramError`` if a client is in no stack, or does not send its embeddings as they are.
    """

    def __init__(self, server: PartyLearner, clients: Sequence[PartyLearner]) -> None:
        if type(server) is not ServerLearner or any(type(each) is not ClientLearner for each in clients):
            raise NoProgramError("parties have learners of their own")
        split = [each for each in clients if isinstance(each, ClientLearner)]
        if not all(whole(each) and each.blinder is None for each in split):
            raise NoProgramError("clients protect their embeddings, or lack rows")
        self._stack_of: list[Stack] = []
        for learner in split:
            if not isinstance(learner.stack, Stack):
                raise NoProgramError(f"{party_name(learner.party)} is computed by itself: no stack takes its model")
            self._stack_of.append(learner.stack)
        self._server: ServerLearner = server
        self._clients = split
        self.rounds = self.updates = self.embedded = 0
        self.losses: list[float | Tensor] = []
        """Those since somebody has taken them."""
        self.ends: Floats = np.full(len(split), np.inf)
        self._batches: list[Batch] = [_NO_BATCH] * len(split)
        self._received: list[Tensor] = [torch.empty(0)] * len(split)
        self.between: Callable[[], None] = _nothing
        """Called between two rounds."""

    def play(self, places: Ints | None, steps: Floats, now: float) -> None:
        """Play the next n rounds, of the clients at ``places`` (n, t; None: all), who step on them at ``steps`` (n, t).

        Only those who step until ``now`` do so at once. Raises ``NonFiniteError`` for a loss or a gradient that is not
        finite.
        """
        for row, ends in enumerate(steps):
            who = np.arange(len(ends)) if places is None else places[row]
            order = np.argsort(who)
            self._prepare()
            self.between()
            self._serve(who[order], ends[order], now)
            self.embedded += len(who)

    def settle(self, chosen: NDArray[np.bool_]) -> None:
        """Have some of the clients that still have to step do so."""
        numbers = np.flatnonzero(chosen).tolist()
        for stack, some in self._alike(numbers, self._batches):
            received = [self._received[number] for number in some]
            stack.descend(self._places(some), [self._batches[number] for number in some], received)
        self.updates += len(numbers)
        self.ends[chosen] = np.inf

    def _alike(self, numbers: Sequence[int], batches: Sequence[Batch]) -> Iterator[tuple[Stack, list[int]]]:
        """Yield clients that are computed together: of one stack, and with equally long ``batches`` (M,)."""
        groups: dict[tuple[int, int], list[int]] = {}
        for number in numbers:
            groups.setdefault((id(self._stack_of[number]), len(batches[number])), []).append(number)
        for some in groups.values():
            yield self._stack_of[some[0]], some

    def _places(self, numbers: Sequence[int]) -> list[int]:
        return [self._clients[number].place for number in numbers]

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint between rounds needs beside the parties' states."""
        waiting = {f"received.{n}": each for n, each in enumerate(self._received) if self.ends[n] < np.inf}
        return {
            "ends": torch.from_numpy(self.ends),
            "counts": torch.tensor([self.rounds, self.updates, self.embedded]),
            **waiting,
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.ends[:] = state["ends"].numpy()
        self.rounds, self.updates, self.embedded = state["counts"].tolist()
        for number, learner in enumerate(self._clients):
            if (received := state.get(f"received.{number}")) is not None:
                self._received[number] = received.clone().to(learner.parts.features["train"].device)

    def _prepare(self) -> None:
        """Do what has to be done before any later round."""
        return None

    @abstractmethod
    def _serve(self, who: Ints, ends: Floats, now: float) -> None:
        """Embed at clients ``who``, ascending, and step the server; keep what they receive, to step on at ``ends``."""

    def _step_on(self, used: Sequence[Used]) -> list[Sequence[Tensor]]:
        """Step the server; return the gradients of each batch, of the clients alone."""
        own = 0 if self._server.embedding is None else 1  # whose gradient comes first
        gradients = [each[own:] for each in self._server.step_on(used, self._note)]
        for gradient in {id(each): each for some in gradients for each in some}.values():
            if gradient.device.type == "cpu" and not torch.isfinite(gradient.sum()):
                raise NonFiniteError(f"{RECEIVED} is not finite", f"client_step, round {self.rounds}")
        self.rounds += 1
        return gradients

    def _note(self, mean: Tensor) -> None:
        on_cpu, where = mean.device.type == "cpu", f"{party_name(SERVER)}, server_step, round {self.rounds}"
        self.losses.append(finite_loss(mean, where) if on_cpu else mean)

    def _embed(self, numbers: Sequence[int], batches: Sequence[Batch]) -> dict[int, Tensor]:
        """Embed their ``batches`` (M,) at some clients."""
        embedded: dict[int, Tensor] = {}
        for stack, some in self._alike(numbers, batches):
            h = stack.embedded(True, self._places(some), [batches[number] for number in some])
            embedded.update(zip(some, h, strict=True))
        return embedded

    def _message(self, number: int, batch: Batch, h: Tensor) -> Received:
        value = Handle[Tensor](tuple(h.shape), h.dtype)
        value.set(h)
        message = Embedding(batch, value)
        message.sender = self._clients[number].party
        return message


class SplitProgram(RoundProgram):
    """Rounds in which all clients embed the same batch.

    Invariant: a round calls the kernels that the event path's executor calls, in the same order, so that weights are
    equal to the last bit as long as that runs whole rounds together.
    """

    def __init__(self, server: PartyLearner, clients: Sequence[PartyLearner], sequence: BatchSequence) -> None:
        super().__init__(server, clients)
        self._sequence = sequence
        coefficients = self._server.sums_of_all if self._server.embedding is None else None
        shared = len({*coefficients}) == 1 if coefficients is not None else False
        self._factor = (
            coefficients[0] if coefficients and shared and all(each.joint for each in self._stack_of) else None
        )
        """What the sum of all embeddings is multiplied by, if the server needs no more of them."""

    def _prepare(self) -> None:
        self.settle(self.ends < np.inf)

    def _serve(self, who: Ints, ends: Floats, now: float) -> None:
        batch = self._sequence.batch(self.rounds)
        ((*received,),) = self._step_on([self._used(who, batch)])
        self._received = [*received] * (len(who) if self._factor is not None else 1)
        self._batches = [batch] * len(who)
        self.ends[who] = ends

    def _used(self, who: Ints, batch: Batch) -> Used:
        if self._factor is not None:
            stacks = dict.fromkeys(self._stack_of)
            totals = [stack.total(range(len(stack.learners)), batch, stack.parameters) for stack in stacks]
            joined = sum(totals[1:], start=totals[0]) * self._factor
            return Used(batch, (), joined.requires_grad_(), [joined], [self._factor])
        embedded = self._embed(who.tolist(), [batch] * len(who))
        messages = [self._message(number, batch, embedded[number]) for number in who.tolist()]
        (used,) = self._server.inputs_of([(batch, messages)], messages)
        return used


class TableProgram(RoundProgram):
    """Rounds of a server with a table, on embeddings of some clients, each of which walks its own batches.

    Invariants: a client has stepped on what it has received before it embeds again. When an embedding is needed, all
    clients step that do so until the next row, and all that have stepped embed their next batch, together.
    """

    def __init__(
        self, server: PartyLearner, clients: Sequence[PartyLearner], sequences: Sequence[BatchSequence]
    ) -> None:
        super().__init__(server, clients)
        self._sequences, self._number = sequences, {learner.party: n for n, learner in enumerate(clients)}
        self._begun: Ints = np.zeros(len(clients), np.int64)
        self._next = [sequence.batch(0) for sequence in sequences]
        self._h: dict[int, Tensor] = {}
        """Embeddings of the clients' next batches, of those that are computed."""

    def _serve(self, who: Ints, ends: Floats, now: float) -> None:
        numbers = who.tolist()
        if not self._h.keys() >= {*numbers}:
            due = self.ends <= now
            due[who] = self.ends[who] < np.inf
            self.settle(due)
            each = self._next[numbers[0]].ids.size * self._clients[numbers[0]].width * 8
            beside = {*np.flatnonzero(self.ends == np.inf).tolist()} - self._h.keys() - {*numbers}
            ready = sorted([*({*numbers} - self._h.keys()), *sorted(beside)[: _MOST // each]])
            self._h |= self._embed(ready, self._next)
        messages = [self._message(number, self._next[number], self._h.pop(number)) for number in numbers]
        groups = groups_of(messages)
        gradients = self._step_on(self._server.inputs_of(groups, messages))
        for (batch, some), received in zip(groups, gradients, strict=True):
            for message, gradient in zip(some, received, strict=True):
                number = self._number[message.sender]
                self._batches[number], self._received[number] = batch, gradient
                self._begun[number] += 1
                self._next[number] = self._sequences[number].batch(int(self._begun[number]))
        self.ends[who] = ends

    def state(self) -> dict[str, Tensor]:
        """Return also how many batches each client has begun, and the embeddings of the next."""
        embedded = {f"embedded.{number}": h for number, h in self._h.items()}
        return super().state() | {"begun": torch.from_numpy(self._begun)} | embedded

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self._begun[:] = state["begun"].numpy()
        for number, learner in enumerate(self._clients):
            begun, sequence = int(self._begun[number]), self._sequences[number]
            self._next[number] = sequence.batch(begun)
            if self.ends[number] < np.inf:
                self._batches[number] = sequence.batch(begun - 1)
            if (h := state.get(f"embedded.{number}")) is not None:
                self._h[number] = h.clone().to(learner.parts.features["train"].device)


def _nothing() -> None:
    return None


def program_of(protocol: Protocol, setting: Setting, seed: int, nodes: Parties) -> RoundProgram:
    """Make the program of a protocol's rounds. Raises ``NoProgramError`` with the reason if there is none.

    A trace shows which computations there are, not every value that is sent: a protocol from outside may send others.
    """
    if brings_code(protocol, setting):
        raise NoProgramError("code from outside takes part, which may do anything in an operation")
    server, clients = nodes.server.learner, [node.learner for node in nodes.clients]
    by_hand = vectorised_by_hand(protocol)
    if by_hand is not None and by_hand.trains == "own pace":
        shared, own = nodes.shared.sequence, setting.training.batches == "own"
        sequences = [shared if not own else BatchSequence(setting.data.rows, setting.training, seed, each.party)
                     for each in nodes.clients]  # fmt: skip
        return TableProgram(server, clients, sequences)
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
    return SplitProgram(server, clients, nodes.shared.sequence)
