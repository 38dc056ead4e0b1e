"""Rounds of split training of runs side by side, as a few tensor calls on stacks of clients and servers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vflsim.errors import NonFiniteError, RunError
from vflsim.learning.batches import Batch
from vflsim.learning.batching.kernels import whole
from vflsim.learning.batching.stack import Stack
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.programs.client_stack import ClientStack, Share
from vflsim.learning.programs.schedule import Cursor
from vflsim.streams import party_name
from vflsim.vocabulary.on_demand import Tensor, torch


class NoProgramError(RunError):
    """Rounds of a protocol, or learners of its clients, have no program: the event path trains them."""


class DivergedError(NonFiniteError):
    """A loss or a gradient of ``run`` is not finite."""

    def __init__(self, run: int, rounds: int) -> None:
        super().__init__("the training loss or a gradient is not finite", f"round {rounds}")
        self.run = run


@dataclass(slots=True)
class SplitRun:
    """A run of split training: its learners, its ``cursor``, and the losses of its server steps since a row."""

    server: ServerLearner
    clients: Sequence[ClientLearner]
    cursor: Cursor
    losses: list[Tensor | float] = field(default_factory=list)
    received: dict[int, tuple[Batch, Tensor]] = field(default_factory=dict)
    """The gradients along which clients have not stepped yet, by client number."""

    @property
    def stacks(self) -> list[Stack]:
        """The stacks of the clients, in the order of their first ones."""
        return [*dict.fromkeys(each.stack for each in self.clients if isinstance(each.stack, Stack))]


def split_run(server: PartyLearner, clients: Sequence[PartyLearner], cursor: Cursor) -> SplitRun:
    """Return the run of these learners. Raises ``NoProgramError`` with the reason if its rounds have no program."""
    if type(server) is not ServerLearner or any(type(each) is not ClientLearner for each in clients):
        raise NoProgramError("parties have learners of their own")
    split = [each for each in clients if isinstance(each, ClientLearner)]
    if not all(whole(each) and each.blinder is None for each in split):
        raise NoProgramError("clients protect their embeddings, or lack rows")
    for each in split:
        if not isinstance(each.stack, Stack):
            raise NoProgramError(f"{party_name(each.party)} is computed by itself: no stack takes its model")
    return SplitRun(server, split, cursor)


class JointProgram(ABC):
    """Plays rounds of R runs together: some clients embed, the servers step, and the clients step on their gradients.

    Each run is at a round of its own. Invariants: nothing is read from another device than the CPU, but by ``losses``;
    on the CPU, what a run learns does not depend on the others, to the bit. Runs have stacks of the same shapes.
    """

    def __init__(self, runs: Sequence[SplitRun], in_step: bool) -> None:
        self.runs = runs
        self._stacks = [ClientStack(stacks, in_step) for stacks in zip(*(run.stacks for run in runs), strict=True)]
        numbers = {id(stack): n for n, stack in enumerate(runs[0].stacks)}
        self._stack_of = [numbers[id(each.stack)] for each in runs[0].clients]
        self._places = [each.place for each in runs[0].clients]

    def settle(self, number: int) -> None:
        """Have all clients of a run step that have done so by its next row."""
        self._settle({number: self._due(self.runs[number])})

    def losses(self, number: int) -> list[float]:
        """Return and forget a run's losses since the row before; those on another device in one read."""
        run = self.runs[number]
        kept = [each for each in run.losses if isinstance(each, float)]
        fresh = [each for each in run.losses if not isinstance(each, float)]
        values = kept + (torch.stack(fresh).tolist() if fresh else [])
        if not all(map(math.isfinite, values)):
            raise DivergedError(number, run.cursor.round)
        run.losses.clear()
        return values

    def store(self, number: int, table: bool = False) -> None:
        """Bring what a run has learnt to its own learners; with ``table``, its server's table, too."""
        for stack in self._stacks:
            stack.store(number)

    def state(self, number: int) -> dict[str, Tensor]:
        """Return what a checkpoint of a run between rounds needs beside its parties' states."""
        run = self.runs[number]
        received = {f"received.{client}": each for client, (_, each) in run.received.items()}
        batches = {f"batch.{client}": torch.tensor(each.index) for client, (each, _) in run.received.items()}
        return {"round": torch.tensor(run.cursor.round), **received, **batches}

    def load(self, number: int, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned; the learners and the cursor have been restored already."""
        run = self.runs[number]
        for client, learner in enumerate(run.clients):
            if (received := state.get(f"received.{client}")) is not None:
                batch = run.cursor.batch_of(client, int(state[f"batch.{client}"]))
                run.received[client] = batch, received.clone().to(learner.parts.features["train"].device)

    @abstractmethod
    def play(self) -> None:
        """Play the next round of every run."""

    def _due(self, run: SplitRun) -> list[int]:
        """Return the clients that step until the next row, and can do so now."""
        if run.cursor.over:
            return []
        waiting = run.cursor.waiting
        return [client for client in sorted(run.received) if not waiting[client]]

    def _settle(self, clients: Mapping[int, Sequence[int]]) -> None:
        """Have some clients of each run step along what they have received."""
        batches = {n: {client: self.runs[n].received[client][0] for client in some} for n, some in clients.items()}
        for stack, shares in self._alike(clients, batches):
            received = [self.runs[share.run].received.pop(client)[1] for share, client in self._clients_of(shares)]
            stack.step(shares, torch.stack(received))

    def _alike(
        self, clients: Mapping[int, Iterable[int]], batches: Mapping[int, Mapping[int, Batch]]
    ) -> Iterator[tuple[ClientStack, list[Share]]]:
        """Yield clients that are computed together: of one stack, and with equally long batches."""
        groups: dict[tuple[int, int], dict[int, list[int]]] = {}
        for run, some in clients.items():
            for client in some:
                key = self._stack_of[client], len(batches[run][client])
                groups.setdefault(key, {}).setdefault(run, []).append(client)
        for (stack, _), by_run in groups.items():
            shares = [
                Share(run, [self._places[client] for client in some], [batches[run][client] for client in some], some)
                for run, some in by_run.items()
            ]
            yield self._stacks[stack], shares

    def _clients_of(self, shares: Sequence[Share]) -> Iterator[tuple[Share, int]]:
        return ((share, client) for share in shares for client in share.clients)

    def _note(self, losses: Mapping[int, Tensor]) -> None:
        for number, loss in losses.items():
            self.runs[number].losses.append(loss)
