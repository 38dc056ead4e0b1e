"""The server's side of the learning plane: the labels, the top model, and the table of latest embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from vflsim.errors import NonFiniteError
from vflsim.learning.aggregates import Aggregate
from vflsim.learning.batches import Batch
from vflsim.learning.client import Split
from vflsim.learning.cost import flops_of
from vflsim.learning.operations import Handle, Operation
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.staleness import Staleness, StepFacts
from vflsim.learning.table import EmbeddingTable
from vflsim.learning.tasks import Task


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What the server is made of: all that one process needs to play it.

    ``clients`` are the participants and ``widths`` their embedding sizes, in client order; ``labels`` maps a split to
    the task's target tensor; ``table`` says whether the server keeps the latest embedding of every training row.
    """

    clients: tuple[int, ...]
    widths: tuple[int, ...]
    labels: Mapping[Split, Tensor]
    build: Callable[[], nn.Module]
    optimizer: Optimizer
    aggregate: Aggregate
    task: Task
    batch: int
    dtype: torch.dtype
    table: bool = False


class ServerStep:
    """What a server step promises: its loss, and a gradient for every embedding it used."""

    def __init__(self) -> None:
        self.loss: Handle[float] = Handle()
        self._gradients: dict[int, Handle[Tensor]] = {}

    def gradient_for(self, message: Any) -> Handle[Tensor]:
        """∂ℓ/∂h_m for the embedding that came with ``message``: its own batch's loss, undivided."""
        return self._gradients[id(message)]

    def promise(self, message: Any) -> Handle[Tensor]:
        """The handle for ``message``'s gradient, shaped like its embedding."""
        handle: Handle[Tensor] = Handle(message.value.shape, message.value.dtype)
        self._gradients[id(message)] = handle
        return handle


class ServerLearner:
    """Makes the server's operations: they read the labels, θ_0, the table and received payloads, nothing else.

    Invariants: embeddings are joined in client order, never in arrival order; every gradient is taken at the
    parameters before the step (VAFL Eq. 2a, 2b); ``staleness`` moves one step on with each completed server step.
    """

    def __init__(self, parts: ServerParts) -> None:
        self.parts = parts
        self.staleness = Staleness(parts.clients, len(parts.labels["train"]))
        self._place = {client: j for j, client in enumerate(parts.clients)}
        self._flops: dict[tuple[str, int], float] = {}

    @cached_property
    def model(self) -> nn.Module:
        """The server's model θ_0."""
        return self.parts.build()

    @cached_property
    def _optimizer(self) -> torch.optim.Optimizer:
        return self.parts.optimizer.build(self.model.parameters())

    @cached_property
    def _table(self) -> EmbeddingTable:
        return EmbeddingTable(len(self.parts.labels["train"]), self.parts.widths, self.parts.dtype)

    def fill(self, messages: Sequence[Any]) -> Operation[None]:
        """Fill the table with an uploaded first pass: every training row of every client."""

        def run() -> None:
            for message in messages:
                self._table.fill(self._place[message.sender], message.value.value)

        return Operation("fill", 0, run, None)

    def too_old(self, embeddings: Sequence[Any], bound: int | None, age: str) -> list[tuple[int, Batch]]:
        """(client, batch) whose rows are about to be used and are older than ``bound``: to be re-queried at once."""
        if bound is None:
            return []
        self._refresh(embeddings)
        return self.staleness.older_than(bound, age, [batch for batch, _ in _groups(embeddings)])

    def server_step(self, embeddings: Sequence[Any], refreshed: Sequence[Any] = ()) -> Operation[ServerStep]:
        """One step of θ_0 on the embeddings that arrived, and ∂ℓ/∂h_m for each of them.

        One loss per distinct batch among them; the other clients' rows come from the table (this step's arrivals and
        ``refreshed`` answers included), or are missing where no table is kept. θ_0 steps on the mean over the losses.
        """
        ordered = sorted(embeddings, key=_sender)
        groups = _groups(ordered)
        step = ServerStep()
        promised = {id(message): step.promise(message) for message in ordered}
        self._refresh([*embeddings, *refreshed])

        def run() -> None:
            self._run_step(groups, [*ordered, *refreshed], promised, step.loss)

        def commit() -> StepFacts:
            return self._commit(groups, ordered, step.loss)

        nbytes = sum(handle.nbytes for handle in promised.values())
        rows = sum(len(batch) for batch, _ in groups)
        return Operation(
            "server_step",
            0,
            run,
            step,
            nbytes=nbytes,
            rows=rows,
            cost=self._cost,
            commit=commit,
            counts="round",
        )

    def evaluate(self, split: Split, answers: Sequence[Any]) -> Operation[Handle[dict[str, float]]]:
        """Loss and metrics on a split, from the embeddings of all its rows."""
        result: Handle[dict[str, float]] = Handle()
        rows = len(self.parts.labels[split])

        def run() -> None:
            self.model.eval()
            ordered = sorted(answers, key=_sender)
            target = self.parts.labels[split]
            with torch.no_grad():
                joined = self.parts.aggregate.combine([message.value.value for message in ordered], self.parts.widths)
                prediction = self.model(joined)
                loss = float(self.parts.task.loss(prediction, target))
            result.set({"loss": loss, **self.parts.task.metrics(prediction, target)})

        return Operation("evaluate", 0, run, result, units=rows / self.parts.batch, rows=rows, cost=self._cost)

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Any]]],
        arrivals: list[Any],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
    ) -> None:
        self.model.train()
        if self.parts.table:
            for message in arrivals:
                self._table.write(self._place[message.sender], message.batch.tensor(), message.value.value)
        losses, leaves = [], []
        for batch, fresh in groups:
            ids = batch.tensor()
            rows: list[Tensor | None] = [None] * len(self._place)
            if self.parts.table:
                rows = [*self._table.read(ids)]
            for message in fresh:
                leaf = message.value.value.clone().requires_grad_()
                rows[self._place[message.sender]] = leaf
                leaves.append((message, leaf))
            prediction = self.model(self.parts.aggregate.combine(rows, self.parts.widths))
            losses.append(self.parts.task.loss(prediction, self.parts.labels["train"][ids]))
        self._optimizer.zero_grad()
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        if not torch.isfinite(total):
            raise NonFiniteError(
                f"the training loss became {float(total.detach())}",
                remedy="a smaller learning rate, or scaled features",
            )
        total.backward()  # type: ignore[no-untyped-call]
        if len(losses) > 1:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= len(losses)
        self._optimizer.step()
        for message, leaf in leaves:
            # A client that the maximum never chose has a zero gradient, not none.
            promised[id(message)].set(leaf.grad if leaf.grad is not None else torch.zeros_like(leaf))
        loss.set(float(total.detach()) / len(losses))

    def _refresh(self, messages: Sequence[Any]) -> None:
        for batch, group in _groups(messages):
            self.staleness.refresh([message.sender for message in group], batch)

    def _commit(self, groups: list[tuple[Batch, list[Any]]], fresh: list[Any], loss: Handle[float]) -> StepFacts:
        used = [message.sender for message in fresh]
        total, count, oldest = 0.0, 0, 0
        for batch, group in groups:
            read = self.parts.clients if self.parts.table else [message.sender for message in group]
            ages = self.staleness.row_age_sums(batch, read)
            total, count, oldest = total + ages[0], count + ages[1], max(oldest, ages[2])
        facts = StepFacts(used, self.staleness.others(used), (total, count, oldest), self.staleness.client_ages(), loss)
        self.staleness.step += 1
        return facts

    def _cost(self, kind: str, rows: int) -> float:
        if (kind, rows) not in self._flops:
            shape = (rows, self.parts.aggregate.width(self.parts.widths))
            forward, backward = flops_of(self.model, shape, self.parts.dtype, input_gradient=True)
            self._flops[kind, rows] = forward + backward if kind == "server_step" else forward
        return self._flops[kind, rows]


_sender = attrgetter("sender")


def _groups(messages: Sequence[Any]) -> list[tuple[Batch, list[Any]]]:
    """The distinct batches among ``messages`` and whose they are, in an order independent of who came first."""
    groups: dict[tuple[int, int], tuple[Batch, list[Any]]] = {}
    for message in messages:
        batch = message.batch
        key = batch.origin, batch.index
        if key not in groups:
            groups[key] = batch, []
        groups[key][1].append(message)
    return [groups[key] for key in sorted(groups)]
