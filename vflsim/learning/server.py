"""The server's side of the learning plane: the labels, the top model, and the table of latest embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from vflsim.errors import NonFiniteError
from vflsim.learning.aggregates import Aggregate
from vflsim.learning.batches import CPU, Batch, Split
from vflsim.learning.cost import flops_of
from vflsim.learning.flat import FlatModel
from vflsim.learning.joining import Joining
from vflsim.learning.operations import Handle, Operation
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.staleness import Staleness, StepFacts
from vflsim.learning.states import State, load_module, module_state, named, under
from vflsim.learning.table import EmbeddingTable
from vflsim.learning.tasks import Task


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What the server is made of: all that one process needs to play it.

    ``clients`` are the participants and ``widths`` their embedding sizes, in client order; ``labels`` maps a split to
    the task's target tensor; ``table`` says whether the server keeps the latest embedding of every training row.
    ``beside`` are the clients' FLOPs of (kind of the server's operation, rows) where their models are computed at the
    server, and None where clients are apart.
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
    beside: Callable[[str, int], float] | None = None


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
        self.device = parts.labels["train"].device
        self.staleness = Staleness(parts.clients, len(parts.labels["train"]))
        self._place = {client: j for j, client in enumerate(parts.clients)}
        self._joining = Joining(parts.aggregate, parts.widths)
        self._flops: dict[tuple[str, int], float] = {}

    @cached_property
    def model(self) -> nn.Module:
        """The server's model θ_0."""
        return self.parts.build()

    @cached_property
    def flat(self) -> FlatModel:
        """θ_0 as a vector, and its optimiser."""
        return FlatModel(self.model, self.parts.optimizer)

    @cached_property
    def _table(self) -> EmbeddingTable:
        return EmbeddingTable(len(self.parts.labels["train"]), self.parts.widths, self.parts.dtype, self.device)

    def let_go(self) -> None:
        """The run is over: give the table's memory back, whoever still holds this learner."""
        self.__dict__.pop("_table", None)

    def fill(self, messages: Sequence[Any]) -> Operation[None]:
        """Fill the table with an uploaded first pass: every training row of every client."""

        def run() -> None:
            for message in messages:
                self._table.fill(self._place[message.sender], message.value.value)

        return Operation("fill", 0, run, None, inputs=[message.value for message in messages])

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
            done = this()
            self._run_step(groups, [*ordered, *refreshed], promised, step.loss, "" if done is None else done.where)

        def commit() -> StepFacts:
            return self._commit(groups, ordered, step.loss)

        nbytes = sum(handle.nbytes for handle in promised.values())
        rows = sum(len(batch) for batch, _ in groups)
        operation = Operation(
            "server_step",
            0,
            run,
            step,
            nbytes=nbytes,
            rows=rows,
            cost=self._cost,
            commit=commit,
            counts="round",
            inputs=[message.value for message in (*ordered, *refreshed)],
            promises=(step.loss, *promised.values()),
        )
        this = ref(operation)  # which outlives its run, but only just: no cycle keeps the messages
        return operation

    def evaluate(self, split: Split, answers: Sequence[Any]) -> Operation[Handle[dict[str, float]]]:
        """Loss and metrics on a split, from the embeddings of all its rows."""
        result: Handle[dict[str, float]] = Handle()
        rows, ordered = len(self.parts.labels[split]), sorted(answers, key=_sender)

        def run() -> None:
            self.model.eval()
            target = self.parts.labels[split]
            with torch.no_grad():
                prediction = self.model(self._joining.everybody([message.value for message in ordered]))
                loss = float(self.parts.task.loss(prediction, target))
            result.set({"loss": loss, **self.parts.task.metrics(prediction, target)})

        return Operation(
            "evaluate",
            0,
            run,
            result,
            units=rows / self.parts.batch,
            rows=rows,
            cost=self._cost,
            inputs=[message.value for message in ordered],
            promises=(result,),
        )

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """What it has learnt and remembers, by name: the tensors themselves (``states``)."""
        made = vars(self)
        if "flat" in made:
            state = named("flat", self.flat.state())
        else:
            state = named("model", module_state(self.model)) if "model" in made else {}
        return {**state, **(named("table", self._table.state()) if "_table" in made else {})}

    def load(self, state: State) -> None:
        """Be as when ``state`` was taken, whatever had been made until then."""
        if flat := under("flat", state):
            self.flat.load(flat)
        elif model := under("model", state):
            load_module(self.model, model)
        if table := under("table", state):
            self._table.load(table)

    # --- what operations do -----------------------------------------------------------------------------------------

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Any]]],
        arrivals: list[Any],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
        where: str,
    ) -> None:
        flat, device = self.flat, self.device
        self.model.train()
        table = self._table if self.parts.table else None
        if table is not None:
            for message in arrivals:
                table.write(self._place[message.sender], message.batch.tensor(device), message.value.value)
        places = [[self._place[message.sender] for message in fresh] for _, fresh in groups]
        used = [self._joining.used(*group, own, table) for group, own in zip(groups, places, strict=True)]
        losses = [
            self.parts.task.loss(self.model(each.joined), self.parts.labels["train"][each.batch.tensor(device)])
            for each in used
        ]
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        mean = total.detach() / len(losses)
        if device == CPU:
            loss.set(finite_loss(mean))
        else:  # nobody waits for the device: the loss is looked at when it is read
            loss.defer(partial(finite_loss, mean, where))
        gradient, others = flat.gradients(total, [leaf for each in used for leaf in each.leaves])
        flat.step(gradient / len(losses) if len(losses) > 1 else gradient)
        for each in used:
            own, others = others[: len(each.leaves)], others[len(each.leaves) :]
            for message, received in zip(each.fresh, each.spread(own), strict=True):
                promised[id(message)].set(received)

    def _refresh(self, messages: Sequence[Any]) -> None:
        for batch, group in _groups(messages):
            self.staleness.refresh([message.sender for message in group], batch)

    def _commit(self, groups: list[tuple[Batch, list[Any]]], fresh: list[Any], loss: Handle[float]) -> StepFacts:
        used = [message.sender for message in fresh]
        total, count, oldest = 0.0, 0, 0
        for batch, group in groups:
            read = self.parts.clients if self.parts.table else [message.sender for message in group]
            own = self.staleness.row_age_sums(batch, read)
            total, count, oldest = total + own[0], count + own[1], max(oldest, own[2])
        known, ages = self.staleness, (total, count, oldest)
        facts = StepFacts(used, known.others(used), ages, known.client_ages(), known.fresh(), loss)
        self.staleness.step += 1
        return facts

    def _cost(self, kind: str, rows: int) -> float:
        if (kind, rows) not in self._flops:
            shape = (rows, self.parts.aggregate.width(self.parts.widths))
            forward, backward = flops_of(self.model, shape, self.parts.dtype, input_gradient=True)
            beside = 0.0 if self.parts.beside is None else self.parts.beside(kind, rows)
            self._flops[kind, rows] = beside + (forward + backward if kind == "server_step" else forward)
        return self._flops[kind, rows]


def finite_loss(loss: Tensor, where: str = "") -> float:
    """The loss as a number. Raises ``NonFiniteError`` if it is none."""
    value = float(loss)
    if not math.isfinite(value):
        remedy = "a smaller learning rate, or scaled features"
        raise NonFiniteError(f"the training loss became {value}", where, remedy=remedy)
    return value


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
