"""The alike clients of runs side by side: their weights are one tensor a parameter, and one call moves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflsim.learning.batches import Batch
from vflsim.learning.batching.stack import Backward, Stack, same, those_at
from vflsim.learning.optimizers import JoinedOptimizer, joined
from vflsim.vocabulary.on_demand import Tensor, torch


@dataclass(frozen=True, slots=True)
class Share:
    """The work of some clients of one run: its ``run`` among those side by side, and a batch for each of ``places``.

    ``clients`` are their numbers in the run.
    """

    run: int
    places: Sequence[int]
    batches: Sequence[Batch]
    clients: Sequence[int] = ()


class ClientStack:
    """A stack of S clients in each of R runs; client ``place`` of run r is at r S + place.

    Each of ``parameters`` has the shape (R S, …). ``in_step``: all clients of a run step together. Invariants: only a
    client's own steps change its parameters; ``store`` brings what has been learnt to the run's own stack. Clients send
    their embeddings as they are.
    """

    def __init__(self, stacks: Sequence[Stack], in_step: bool) -> None:
        self.stacks, self._first, self.size = stacks, stacks[0], len(stacks[0].learners)
        self.parameters = [joined(each) for each in zip(*(stack.parameters for stack in stacks), strict=True)]
        self._optimizer = JoinedOptimizer([stack.optimizer for stack in stacks], self.parameters, in_step)
        self._graph: tuple[list[int], list[Batch], Backward] | None = None
        first = stacks[0].features
        self._features = first if all(first.equals(stack.features) for stack in stacks[1:]) else None
        """Those of all runs, if they have the same."""

    def embed(self, shares: Sequence[Share]) -> Tensor:
        """Embed equally long batches, (G, rows, width): those of all shares, one after the other."""
        where, batches = self._where(shares), [batch for share in shares for batch in share.batches]
        h, back = self._first.through(those_at(where, len(self.parameters[0]), self.parameters), self._x(shares))
        self._graph = (where, batches, back) if self._first.keeps_graph else None
        return h

    def step(self, shares: Sequence[Share], received: Tensor) -> None:
        """Step along ∂ℓ/∂h_m, (G, rows, width), in the order of the shares."""
        where, batches = self._where(shares), [batch for share in shares for batch in share.batches]
        graph = self._graph
        if graph is not None and graph[0] == where and all(map(same, graph[1], batches)):
            back = graph[2]
        else:
            back = self._first.backward(those_at(where, len(self.parameters[0]), self.parameters), self._x(shares))
        self._move(where, back(received))

    def totals(self, runs: Sequence[int], batches: Sequence[Batch]) -> tuple[Tensor, Backward]:
        """Sum the embeddings of all clients of some runs, each for the same rows: (len(runs), rows, width).

        The way back takes ∂ℓ/∂Σ and returns the gradients of all their clients.
        """
        if self._features is not None:
            x = self._features.same_rows_of(batches)
        else:
            pairs = zip(runs, batches, strict=True)
            x = torch.stack([self.stacks[run].features.same_rows(batch) for run, batch in pairs])
        where = self._where_all(runs)
        return self._first.totals(those_at(where, len(self.parameters[0]), self.parameters), x)

    def step_all(self, runs: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step all clients of some runs along gradients that ``totals`` led to."""
        self._move(self._where_all(runs), gradients)

    def store(self, run: int) -> None:
        """Copy what a run has learnt to its own stack."""
        stack, mine = self.stacks[run], slice(run * self.size, (run + 1) * self.size)
        for parameter, joint in zip(stack.parameters, self.parameters, strict=True):
            if parameter is not joint:  # as those of a single run are
                parameter.copy_(joint[mine])
        self._optimizer.store(stack.optimizer, mine)

    def _move(self, where: list[int], gradients: Sequence[Tensor]) -> None:
        self._optimizer.step(where, gradients)
        self._graph = None

    def _x(self, shares: Sequence[Share]) -> Tensor:
        if self._features is not None:
            places = [place for share in shares for place in share.places]
            return self._features.rows_of(places, [batch for share in shares for batch in share.batches])
        parts = [self.stacks[each.run].features.rows_of(each.places, each.batches) for each in shares]
        return joined(parts)

    def _where(self, shares: Sequence[Share]) -> list[int]:
        return [share.run * self.size + place for share in shares for place in share.places]

    def _where_all(self, runs: Sequence[int]) -> list[int]:
        return [place for run in runs for place in range(run * self.size, (run + 1) * self.size)]
