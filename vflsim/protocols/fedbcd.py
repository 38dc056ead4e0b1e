"""FedBCD: the parties take Q steps on values that they exchange once (Liu et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import LOCAL, Handle, Operation, check_finite
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.party_model import descend
from vflsim.learning.learners.server import OwnEmbedding, ServerLearner, ServerParts, ServerStep
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits
from vflsim.protocols.in_flight import answered, serve_in_flight, step_further, train_in_flight
from vflsim.setting import Learners, Setting, client_parts, server_parts, split_clients
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.on_demand import Tensor, nn, torch
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Answer, Embedding, Gradient, Message
from vflsim.world.node import ClientNode, Node

MODEL = "model"
"""The name of the server's weights in ``SharedValues``, a vector."""


@dataclass(slots=True, eq=False)
class SharedValues(Message):
    """The server's weights, and the parties' embeddings of a batch, by name: all values that a client's step needs."""

    kind: ClassVar[str] = "shared_values"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({MODEL})


def shared_values_of(values: Mapping[str, Handle[Any]], embeddings: Sequence[Message], round: int) -> SharedValues:
    """Return the message with the server's ``values`` and these embeddings, in client order."""
    theirs = {party_name(each.sender): each.value for each in in_client_order(embeddings) if each.value is not None}
    return SharedValues(round=round, tensors={**values, **theirs})


@dataclass(slots=True, eq=False)
class RoundOver(Message):
    """The server announces that its turn is over and the next batch begins. The message carries no tensor."""

    kind: ClassVar[str] = "round_over"
    ordered: ClassVar[bool] = True


class BlockServer(ServerLearner):
    """Steps repeatedly on the same embeddings, or computes one client's gradient without a step.

    Each of these operations costs the FLOPs of a server step.
    """

    _embedding_handle: Handle[Tensor] | None = None
    """The handle that receives the server's own embedding in the running step."""

    def local_step(self, embeddings: Sequence[Received]) -> Operation[ServerStep]:
        """Take a step of θ_0 (and of the server's own embedding model) on embeddings of one batch.

        It is a server step that completes no round. Raises ``NonFiniteError`` when it runs.
        """
        operation = self.server_step(embeddings)
        operation.kind, operation.counts, operation.commit = "local_step", None, None
        operation.cost = lambda _, rows: self.step_flops(rows)
        return operation

    def sharing_step(self, embeddings: Sequence[Received]) -> Operation[dict[str, Handle[Tensor]]]:
        """Take a server step, and return the values from before the step that clients need for their steps.

        They are θ_0 (with the weights of the aggregate) as a vector, and the server's own embedding, if it has any.
        """
        operation: Operation[Any] = self.server_step(embeddings)
        step, weights = operation.run, self.promise(self.shared_weights)
        shared = {MODEL: weights}
        if self.embedding is not None:
            shared[party_name(SERVER)] = self.promise(len(embeddings[0].batch), self._widths[0])

        def run() -> None:
            self.top.train()  # sets the weights on which the step works
            weights.set(
                nn.utils.parameters_to_vector([w.detach() for w in self._shared]) if self._shared else torch.empty(0)
            )
            self._embedding_handle = shared.get(party_name(SERVER))
            step()

        operation.run, operation.result = run, shared
        operation.promises = (*shared.values(), *operation.promises)
        operation.nbytes += sum(handle.nbytes for handle in shared.values())
        return operation

    def _embedded(self, batch: Batch) -> OwnEmbedding:
        embedding = super()._embedded(batch)
        if self._embedding_handle is not None:
            self._embedding_handle.set(embedding.value.value)
            self._embedding_handle = None
        return embedding

    @property
    def shared_weights(self) -> int:
        """The number of weights that ``sharing_step`` returns."""
        return self.top.parameters + (0 if self.mixing is None else self.mixing.parameters)

    @property
    def _shared(self) -> list[nn.Parameter]:
        return [*self.top.vector_parts, *([] if self.mixing is None else self.mixing.vector_parts)]

    def gradient_at(self, weights: Tensor, embeddings: Sequence[Received], client: int) -> Tensor:
        """Return ∂ℓ/∂h_m of ``client`` at embeddings of one batch, in party order, and at ``weights`` of the server.

        This learner is a client's copy of the server; it replaces its own weights by ``weights``.
        """
        nn.utils.vector_to_parameters(weights, self._shared)
        return self._gradient(embeddings, client)

    def gradient(self, embeddings: Sequence[Received], client: int) -> Operation[Handle[Tensor]]:
        """Compute ∂ℓ/∂h_m of ``client`` at these embeddings of one batch, and at the present θ_0."""
        ordered = in_client_order(embeddings)
        embedding = next(message for message in ordered if message.sender == client)
        result = self.promise(*embedding.value.shape)

        rows = len(embedding.batch)
        return self.operation(
            "gradient", lambda: result.set(self._gradient(ordered, client)), result,
            inputs=[message.value for message in ordered], rows=rows, cost=lambda: self.step_flops(rows),
        )  # fmt: skip

    def _gradient(self, ordered: Sequence[Received], client: int) -> Tensor:
        embedding = next(message for message in ordered if message.sender == client)
        fresh = ordered if self.embedding is None else [self._embedded(embedding.batch), *ordered]
        used = self._joining.used(embedding.batch, fresh, range(len(fresh)), None)
        gradients = torch.autograd.grad(self.loss(self.top(used.joined), embedding.batch), used.leaves)
        return used.spread(gradients)[fresh.index(embedding)]

    def step_flops(self, rows: int) -> float:
        """Count the FLOPs of a server step on ``rows`` rows."""
        return self._cost("server_step", rows)


# --- clients that recompute the loss ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldEmbedding:
    """An embedding of a batch, as a client holds it."""

    sender: int
    batch: Batch
    value: Handle[Tensor]


class RecomputingClient(ClientLearner):
    """Computes ∂ℓ/∂h_m itself for each step, from ``SharedValues``: the server's weights and the others' h_j.

    It holds the labels of the training rows, and a copy of the server that adopts the received weights.
    """

    def __init__(self, parts: ClientParts, server: BlockServer) -> None:
        super().__init__(parts)
        self._server = server

    @cached_property
    def widths(self) -> dict[int, int]:
        """The widths of all embeddings that the server joins, by party. Made when needed: there are M² of them."""
        return dict(zip(self._server.parts.clients, self._server.parts.widths, strict=True))

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along ∂ℓ/∂h_m at the current h_m and at the values of ``gradient``, which are ``SharedValues``.

        The first step after an upload uses the uploaded h_m. Raises ``NonFiniteError`` when it runs.
        """
        shared = cast("SharedValues", gradient)

        def run() -> None:
            others = {m: shared[party_name(m)].value for m in self.widths if m != self.party}
            self.step_at(batch, shared[MODEL].value, others)

        operation: Operation[None] = self._operation("client_step", run, None, len(batch))
        operation.counts, operation.inputs = "update", tuple(shared.carried.values())
        return operation

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an operation on ``rows`` rows; those of a step include the server's model."""
        return super().flops(kind, rows) + (self._server.step_flops(rows) if kind == "client_step" else 0.0)

    def step_at(self, batch: Batch, weights: Tensor, others: Mapping[int, Tensor]) -> None:
        """Step along ∂ℓ/∂h_m at the current h_m, the server's ``weights`` and the ``others``' embeddings."""
        h = self._uploaded.take(batch)
        values = {**others, self.party: h.detach()}
        embeddings = [HeldEmbedding(client, batch, Handle.of(values[client])) for client in sorted(values)]
        gradient = self._server.gradient_at(weights, embeddings, self.party)
        check_finite(gradient, LOCAL)
        descend([h], [gradient], [self.embedding])


def block_learners(setting: Setting, seed: int, recomputed: bool = False) -> Learners[BlockServer, ClientLearner]:
    """Make a server, and the clients of split training; or such that hold the labels and a copy of the server."""
    parts = server_parts(setting, seed)
    if not recomputed:
        return Learners(BlockServer(parts), split_clients(setting, seed))
    clients = {m: RecomputingClient(client_parts(setting, m, seed), server_copy(parts)) for m in setting.clients}
    return Learners(BlockServer(parts), clients)


def server_copy(parts: ServerParts) -> BlockServer:
    """Make a client's copy of the server, which treats the server's own embedding as a received one."""
    if parts.active is not None:
        clients, widths = (SERVER, *parts.clients), (parts.active.embedding, *parts.widths)
        parts = replace(parts, active=None, clients=clients, widths=widths)
    return BlockServer(parts)


class FedBcd(Protocol):
    """Round t: the parties exchange their values for B(t) once.

    Then each takes Q steps while the others' values stay fixed.

    ``parallel``: all parties step at the same time. ``sequential``: the clients step one after another, then the
    server; each uses the new values of the parties before it.

    Example: ``{kind: fedbcd, local_steps: 5, order: sequential, server_steps: 1, gradients: held}``
    """

    kind: Literal["fedbcd"] = "fedbcd"
    local_steps: Count
    """Q, the steps of a party for each exchange. Each is a computation; a client's counts as an update."""
    order: Literal["parallel", "sequential"] = "parallel"
    """``parallel`` (FedBCD-p) or ``sequential`` (FedBCD-s)."""
    server_steps: Count | None = None
    """The server's steps for each exchange: ``local_steps`` unless given. VIM's experiments have 1."""
    gradients: Literal["held", "recomputed"] = "held"
    """The ∂ℓ/∂h_m of a client's steps: the server's, ``held`` for all Q steps; or ``recomputed`` by the client in each
    step, at its present h_m, from the server's weights, the others' embeddings, and labels that it has."""
    traits: ClassVar[Traits] = replace(ROUNDS, awaited_replies=("answer",))

    async def server(self, node: Node[BlockServer]) -> None:
        """Send each client ∂ℓ/∂h_m of B(t); take Q steps of θ_0 with all h_m fixed, the first before sending.

        ``recomputed``: send θ_0 from before the step, and the others' h_j.
        """
        if self.order == "sequential":
            await self.sequential_server(node)
        elif self.gradients == "held":
            await serve_in_flight(node, self.further_steps)
        else:
            for t in node.rounds():
                embeddings = await node.gather("embedding", senders=node.clients, round=t)
                values = await node.compute(node.learner.sharing_step(embeddings))
                for client in node.clients:
                    others = [embedding for embedding in embeddings if embedding.sender != client]
                    await node.send(client, shared_values_of(values, others, t))
                await step_further(node, embeddings, self.further_steps)

    async def client(self, node: ClientNode) -> None:
        """Send h_m of B(t); take Q steps of θ_m with ∂ℓ/∂h_m fixed: a window of no batch in flight."""
        if self.order == "sequential":
            await self.sequential_client(node)
        else:
            reply = "gradient" if self.gradients == "held" else "shared_values"
            await train_in_flight(node, 0, self.local_steps, reply)

    # --- in turn ----------------------------------------------------------------------------------------------------

    async def sequential_server(self, node: Node[BlockServer]) -> None:
        """Client by client: send ∂ℓ/∂h_m at the latest values, receive the new h_m. Then take Q steps of θ_0."""
        for t in node.rounds():
            latest = {each.sender: each for each in await node.gather("embedding", senders=node.clients, round=t)}
            for client in node.clients:
                gradient = await node.compute(node.learner.gradient([*latest.values()], client))
                latest[client] = await answered(node, client, Gradient(value=gradient, round=t))
            await step_further(node, [*latest.values()], self.further_steps)
            await node.compute(node.learner.server_step([*latest.values()]))
            for client in node.clients:
                await node.send(client, RoundOver(round=t))

    async def sequential_client(self, node: ClientNode) -> None:
        """Send h_m of B(t). In the client's turn, take Q steps of θ_m with ∂ℓ/∂h_m fixed, and send the new h_m."""
        for t in node.rounds():
            async with node.until("round_over", round=t):  # a client that crashed after its turn gets no other
                await node.activated()
                batch = node.batch(t)
                h = await node.compute(node.learner.embed(batch))
                await node.upload("server", Embedding(batch, h, round=t))
                gradient = await node.recv("gradient", round=t)
                await node.compute(node.learner.client_step(batch, gradient))
                for _ in range(self.local_steps - 1):
                    await node.compute(node.learner.step_again(batch, gradient))
                h = await node.compute(node.learner.answer(batch))
                await node.upload("server", Answer(batch, h, round=t))
            await node.recv("round_over", round=t)

    # --- facts that need no run --------------------------------------------------------------------------------

    @property
    def further_steps(self) -> int:
        """The number of server steps for each exchange, without the one that completes the round."""
        return (self.server_steps or self.local_steps) - 1

    @property
    def labels_at_clients(self) -> bool:
        """Return whether clients compute their gradients, for which they need labels."""
        return self.gradients == "recomputed"

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if clients compute their gradients in sequential rounds."""
        super().check(context)
        if self.gradients == "recomputed" and self.order == "sequential":
            raise ValueError(
                "gradients: recomputed is for clients that step in parallel; "
                "allowed: gradients: held, or order: parallel"
            )

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make a server that can step repeatedly on the same embeddings, and clients."""
        return block_learners(setting, seed, self.gradients == "recomputed")
