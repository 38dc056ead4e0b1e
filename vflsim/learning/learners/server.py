"""The server's side of split training: the labels, the top model, and the table of latest embeddings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from weakref import ref

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, set_loss
from vflsim.learning.learners.client import ClientParts
from vflsim.learning.learners.embedding_table import EmbeddingTable, SummedTable
from vflsim.learning.learners.inputs import PartyParts, Received, in_client_order
from vflsim.learning.learners.joint import Joining, PartyDropout, Used, arrivals_of, groups_of
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.party_model import FlatModel, descend
from vflsim.learning.learners.staleness import Staleness, StepFacts
from vflsim.learning.models.aggregates import Aggregate
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.states import State, named, under
from vflsim.learning.tasks import PredictionTask
from vflsim.streams import SERVER
from vflsim.vocabulary.on_demand import Tensor, nn, torch


@dataclass(frozen=True, slots=True)
class ServerParts:
    """Everything that one process needs to play the server.

    ``clients`` are the participants and ``widths`` their embedding sizes, in client order; ``labels`` maps a split to
    the task's target tensor; ``table`` says whether the server keeps the latest embedding of every training row.
    ``active`` has the features and the embedding model of a server that holds features, too.
    ``beside`` are the clients' FLOPs of (kind of the server's operation, rows) where their models are computed at the
    server, and None where clients are apart. ``draft`` makes a model whose weights are only counted. ``blinded_sum``
    decodes the sum of embeddings that clients blind. ``present`` says which rows the server (if active) and the clients
    hold, (rows, parties) by split; None: all. ``dropout`` leaves parties out of training steps.
    """

    clients: tuple[int, ...]
    widths: tuple[int, ...]
    labels: Mapping[Split, Tensor]
    build: Callable[[], nn.Module]
    optimizer: Optimizer
    aggregate: Aggregate
    task: PredictionTask
    batch: int
    dtype: torch.dtype
    table: bool = False
    active: ClientParts | None = None
    beside: Callable[[str, int], float] | None = None
    draft: Callable[[], nn.Module] | None = None
    blinded_sum: BlindedSum | None = None
    present: Mapping[Split, Tensor] | None = None
    dropout: PartyDropout | None = None


class ServerStep:
    """The promises of a server step: its loss, and a gradient for every embedding it used."""

    def __init__(self) -> None:
        self.loss: Handle[float] = Handle()
        self._gradients: dict[int, Handle[Tensor]] = {}

    def gradient_for(self, message: Received) -> Handle[Tensor]:
        """Return ∂ℓ/∂h_m for the embedding that came with ``message``: its own batch's loss, undivided."""
        return self._gradients[id(message)]

    def promise(
        self, message: Received, dtype: torch.dtype | None = None, shape: tuple[int, ...] | None = None
    ) -> Handle[Tensor]:
        """Promise what answers ``message``: of the shape and dtype of its embedding, unless given."""
        handle: Handle[Tensor] = Handle(message.value.shape if shape is None else shape, dtype or message.value.dtype)
        self._gradients[id(message)] = handle
        return handle


class OwnEmbedding:
    """The server's own embedding of a batch or split, read like a message; ``graph`` leads back to its model."""

    def __init__(self, graph: Tensor, batch: Batch | None = None) -> None:
        self.sender, self.batch, self.graph = SERVER, batch, graph
        self.value = Handle.of(graph.detach())


class ServerLearner(PartyLearner):
    """Makes the server's operations in split training: step on embeddings, evaluate, fill the table.

    An active server embeds its own features, too: its embedding is the first input of the aggregate, always fresh.
    Invariants: embeddings are joined in party order, never in arrival order; every gradient is taken at the
    parameters before the step (VAFL Eq. 2a, 2b); each completed step moves ``staleness`` on by one.

    Example::

        server = ServerLearner(server_parts(setting, seed=0))
        server.top.module(torch.zeros(1, 6, dtype=torch.float64)).shape  # torch.Size([1, 10])
    """

    def __init__(self, parts: ServerParts) -> None:
        self.device = parts.labels["train"].device
        super().__init__(
            PartyParts(
                party=SERVER,
                dtype=parts.dtype,
                device=self.device,
                batch=parts.batch,
                features=None if parts.active is None else parts.active.features,
                labels=parts.labels,
                task=parts.task,
                blinded_sum=parts.blinded_sum,
            )
        )
        self.parts = parts
        active = parts.active
        self._widths = parts.widths if active is None else (active.embedding, *parts.widths)
        inputs = (parts.aggregate.width(self._widths),)
        self.top = self.own(FlatModel("top", parts.build, parts.optimizer, inputs, parts.dtype, True, parts.draft))
        self.embedding = None if active is None else self.own(active.model("embedding"))
        self._flops: dict[tuple[str, int], float] = {}
        self.mixing = self._mixing()
        self._joining = Joining(
            parts.aggregate, self._widths, self.mixing, parts.blinded_sum, parts.present, parts.dropout
        )
        self.sums_rows = False
        """Whether the table keeps the sum of each row, where the aggregate is a sum, instead of adding rows up again.
        Set it before the first step."""

    @property
    def sums_of_all(self) -> Sequence[float] | None:
        """The coefficients of the sum over all parties to which each batch is joined; None if it is no such sum."""
        return self._joining.sums_of_all

    @cached_property
    def staleness(self) -> Staleness:
        """The ages of what the server has of each client; not made for copies that complete no step."""
        return Staleness(self.parts.clients, len(self.parts.labels["train"]))

    @cached_property
    def _place(self) -> dict[int, int]:
        parties = self.parts.clients if self.parts.active is None else (SERVER, *self.parts.clients)
        return {party: j for j, party in enumerate(parties)}

    @cached_property
    def table(self) -> EmbeddingTable:
        """The latest embedding of each row of each party, where the protocol keeps them."""
        rows, coefficients = len(self.parts.labels["train"]), self._joining.sums_of_all if self.sums_rows else None
        if coefficients is None:
            return EmbeddingTable(rows, self._widths, self.parts.dtype, self.device)
        return SummedTable(rows, self._widths[0], coefficients, self.parts.dtype, self.device)

    def _mixing(self) -> FlatModel | None:
        aggregate, parties, dtype = self.parts.aggregate, len(self._widths), self.parts.dtype
        draft = aggregate.module(parties)
        if draft is None:
            return None
        rule = aggregate.rule(self.parts.optimizer)
        return self.own(FlatModel("aggregate", lambda: draft.to(self.device, dtype), rule, (), dtype))

    def let_go(self) -> None:
        """Give the table's memory back: the run is over."""
        self.__dict__.pop("table", None)
        super().let_go()

    def fill(self, messages: Sequence[Received]) -> Operation[None]:
        """Fill the table with uploaded first passes: messages of (training rows, embedding), one a client."""

        def run() -> None:
            self.table.fill((self._place[message.sender], message.value.value) for message in messages)

        return self.operation("fill", run, None, inputs=[message.value for message in messages])

    def too_old(self, embeddings: Sequence[Received], bound: int | None, age: str) -> list[tuple[int, Batch]]:
        """Return (client, batch) for rows that a step on ``embeddings`` would use and that are older than ``bound``.

        ``age`` is ``client_age`` or ``row_age``, in server steps; without a bound nothing is too old. Changes nothing.
        """
        return [] if bound is None else self.staleness.older_than(bound, age, arrivals_of(groups_of(embeddings)))

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[ServerStep]:
        """Take one step of θ_0 on the embeddings that arrived, and compute ∂ℓ/∂h_m for each of them.

        There is one loss per distinct batch among them; the other clients' rows come from the table (this step's
        arrivals and ``refreshed`` answers included), or are missing where no table is kept. θ_0 steps on the mean over
        the losses. Raises ``NonFiniteError`` when it runs.

            step = await node.compute(node.learner.server_step(embeddings))
            await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))
        """
        ordered = in_client_order(embeddings)
        groups = groups_of(ordered)
        step = ServerStep()
        promised = {id(message): self.promised(step, message) for message in ordered}

        def run() -> None:
            done = this()
            self._run_step(groups, [*ordered, *refreshed], promised, step.loss, "" if done is None else done.where)

        def commit() -> StepFacts:
            arrived = arrivals_of(groups_of([*embeddings, *refreshed]) if refreshed else groups)
            read = [(batch, self.parts.clients) for batch, _ in groups] if self.parts.table else arrivals_of(groups)
            return self.staleness.complete(arrived, step.loss, [message.sender for message in ordered], read)

        operation = Operation(
            "server_step",
            SERVER,
            run,
            step,
            nbytes=sum(handle.nbytes for handle in promised.values()),
            rows=sum(len(batch) for batch, _ in groups),
            cost=self._cost,
            commit=commit,
            counts="round",
            inputs=[message.value for message in (*ordered, *refreshed)],
            promises=(step.loss, *promised.values()),
        )
        this = ref(operation)  # weak: no cycle keeps the messages
        return operation

    def promised(self, step: ServerStep, message: Received) -> Handle[Tensor]:
        """Promise ∂ℓ/∂h_m for ``message``: what a server sends back that answers in another way is another promise."""
        return step.promise(message, self.dtype)

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[dict[str, float]]]:
        """Compute the loss and the task's metrics on a split, from messages of (rows of the split, embedding)."""
        result: Handle[dict[str, float]] = Handle()
        rows, ordered = len(self.labels(split)), in_client_order(answers)

        def run() -> None:
            self.model.eval()
            with torch.no_grad():
                active = [] if self.embedding is None else [self._evaluated(split)]
                prediction = self.top(self._joining.all_of([message.value for message in (*active, *ordered)], split))
                result.set(self.scores(prediction, split))

        return Operation(
            "evaluate",
            SERVER,
            run,
            result,
            units=rows / self.parts.batch,
            rows=rows,
            cost=self._cost,
            inputs=[message.value for message in ordered],
            promises=(result,),
        )

    def predict(self, embeddings: Sequence[Tensor | None]) -> Tensor:
        """Predict from the embeddings of all parties in party order, None where one is missing: (rows, outputs).

        With a graph. Raises ValueError if all are missing.
        """
        return self.top(self._joining.combined(embeddings))

    def own_embedding(self, split: Split) -> Tensor:
        """Embed the server's own features of all rows of a split, in evaluation mode: (rows, embedding)."""
        return self._evaluated(split).value.value

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what the server has learnt and remembers, its table included."""
        return super().state() | (named("table", self.table.state()) if "table" in vars(self) else {})

    def load(self, state: State) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        if table := under("table", state):
            self.table.load(table)

    # --- what operations do -----------------------------------------------------------------------------------------

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Received]]],
        arrivals: list[Received],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
        where: str,
    ) -> None:
        used = self.inputs_of(groups, arrivals)
        for each, gradients in zip(used, self.step_on(used, partial(set_loss, loss, where=where)), strict=True):
            for message, received in zip(each.fresh, gradients, strict=True):
                if not isinstance(message, OwnEmbedding):
                    promised[id(message)].set(received)

    def inputs_of(self, groups: Sequence[tuple[Batch, list[Received]]], arrivals: Sequence[Received]) -> list[Used]:
        """Write ``arrivals`` into the table, if there is one; return the inputs of a step, one for each batch."""
        table = self.table if self.parts.table else None
        unlike: set[int] = set()
        if table is not None:
            table.write([(self._place[each.sender], each.batch, each.value.value) for each in arrivals])
            senders = Counter(each.sender for each in arrivals)
            unlike = {self._place[sender] for sender, count in senders.items() if count > 1}  # batches may share rows
            if self.embedding is not None:
                unlike.add(self._place[SERVER])  # which are never written
        used = []
        for batch, messages in groups:
            fresh = messages if self.embedding is None else [self._embedded(batch), *messages]
            used.append(self._joining.used(batch, fresh, [self._place[each.sender] for each in fresh], table, unlike))
        return used

    def step_on(
        self, used: Sequence[Used], note: Callable[[Tensor], None], loss: Callable[[Used], Tensor] | None = None
    ) -> list[Sequence[Tensor]]:
        """Step on the inputs of each batch; return ∂ℓ/∂h_m of the fresh embeddings of each, of its own loss.

        ``note`` gets the mean loss () before anything has moved; ``loss`` is the task's, unless given.
        """
        top = self.top
        top.train()
        mixed: Sequence[Tensor] = ()
        if self.mixing is not None:
            self.mixing.train()
            mixed = self.mixing.vector_parts
        loss = loss or (lambda each: self.parts.task.loss(top(each.joined), self.y(each.batch)))
        losses = [loss(each) for each in used]
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        note(total.detach() / len(losses))
        gradient, others = top.gradients(total, [*(leaf for each in used for leaf in each.leaves), *mixed])
        top.step(gradient / len(losses) if len(losses) > 1 else gradient)
        by_batch: list[Sequence[Tensor]] = []
        for each in used:
            leaves, others = others[: len(each.leaves)], others[len(each.leaves) :]
            by_batch.append(each.spread(leaves))
        if self.mixing is not None:
            self.mixing.step(others[0] / len(losses))
        if self.embedding is not None:  # whose embedding is the first of every batch
            graphs = [each.fresh[0].graph for each in used]
            descend(graphs, [gradients[0] / len(losses) for gradients in by_batch], [self.embedding])
        return by_batch

    def _embedded(self, batch: Batch) -> OwnEmbedding:
        assert self.embedding is not None
        self.embedding.train()
        return OwnEmbedding(self.embedding(self.x(batch)), batch)

    def _evaluated(self, split: Split) -> OwnEmbedding:
        assert self.embedding is not None
        self.embedding.module.eval()
        return OwnEmbedding(self.embedding(self.features(split)))

    def _cost(self, kind: str, rows: int) -> float:
        if (kind, rows) not in self._flops:
            beside = 0.0 if self.parts.beside is None else self.parts.beside(kind, rows)
            trains = kind == "server_step"
            models = [model for model in self.models.values() if model is not self.mixing]  # joining counts for nothing
            flops = [model.training_flops(rows) if trains else model.forward_flops(rows) for model in models]
            self._flops[kind, rows] = beside + sum(flops)
        return self._flops[kind, rows]
