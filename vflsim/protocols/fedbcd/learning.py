"""The learners of FedBCD: a server that steps repeatedly, and clients that compute their own gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from vflsim.learning.batches import Batch
from vflsim.learning.client import ClientLearner, ClientParts
from vflsim.learning.graphs import LOCAL, check_finite
from vflsim.learning.operations import Handle, Operation
from vflsim.learning.party import Received
from vflsim.learning.party_model import descend
from vflsim.learning.server import OwnEmbedding, ServerLearner, ServerParts, ServerStep
from vflsim.learning.staleness import Staleness
from vflsim.protocols.fedbcd.messages import MODEL, SharedValues
from vflsim.setting import Learners, Setting, client_parts, server_parts
from vflsim.streams import SERVER, party_name


class BlockServer(ServerLearner):
    """Steps repeatedly on the same embeddings, or computes one client's gradient without a step.

    Each of these operations costs the FLOPs of a server step.
    """

    _own: Handle[Tensor] | None = None
    """Where the running step puts the server's own embedding."""

    def local_step(self, embeddings: Sequence[Received]) -> Operation[ServerStep]:
        """Take a step of θ_0 (and of the server's own embedding model) on embeddings of one batch.

        It is a server step that completes no round. Raises ``NonFiniteError`` when it runs.
        """
        operation = self.server_step(embeddings)
        operation.kind, operation.counts, operation.commit = "local_step", None, None
        operation.cost = self._as_step
        return operation

    def sharing_step(self, embeddings: Sequence[Received]) -> Operation[dict[str, Handle[Tensor]]]:
        """Take a server step, and return what clients need for theirs, from before the step.

        It is θ_0 (and the weights of the aggregate), a vector, and the server's own embedding, if it has any.
        """
        operation: Operation[Any] = self.server_step(embeddings)
        step, weights = operation.run, self.promise(self.shared_weights)
        shared = {MODEL: weights}
        if self.embedding is not None:
            shared[party_name(SERVER)] = self.promise(len(embeddings[0].batch), self._widths[0])

        def run() -> None:
            self.top.train()  # makes the weights what the step works on
            weights.set(parameters_to_vector([w.detach() for w in self._shared]) if self._shared else torch.empty(0))
            self._own = shared.get(party_name(SERVER))
            step()

        operation.run, operation.result = run, shared
        operation.promises = (*shared.values(), *operation.promises)
        operation.nbytes += sum(handle.nbytes for handle in shared.values())
        return operation

    def _embedded(self, batch: Batch) -> OwnEmbedding:
        own = super()._embedded(batch)
        if self._own is not None:
            self._own.set(own.value.value)
            self._own = None
        return own

    @property
    def shared_weights(self) -> int:
        """The number of weights that ``sharing_step`` returns."""
        return self.top.parameters + (0 if self.mixing is None else self.mixing.parameters)

    @property
    def _shared(self) -> list[nn.Parameter]:
        return [*self.top.vector_parts, *([] if self.mixing is None else self.mixing.vector_parts)]

    def gradient_at(self, weights: Tensor, embeddings: Sequence[Received], client: int) -> Tensor:
        """Return ∂ℓ/∂h_m of ``client`` at embeddings of one batch, in party order, and at ``weights`` of the server.

        This learner is a client's copy: it takes the weights over.
        """
        vector_to_parameters(weights, self._shared)
        return self._gradient(embeddings, client)

    def gradient(self, embeddings: Sequence[Received], client: int) -> Operation[Handle[Tensor]]:
        """Compute ∂ℓ/∂h_m of ``client`` at these embeddings of one batch, and at the present θ_0."""
        ordered = sorted(embeddings, key=attrgetter("sender"))
        own = next(message for message in ordered if message.sender == client)
        result = self.promise(*own.value.shape)

        operation = self.operation(
            "gradient",
            lambda: result.set(self._gradient(ordered, client)),
            result,
            inputs=[message.value for message in ordered],
            rows=len(own.batch),
        )
        operation.cost = self._as_step
        return operation

    def _gradient(self, ordered: Sequence[Received], client: int) -> Tensor:
        own = next(message for message in ordered if message.sender == client)
        fresh = ordered if self.embedding is None else [self._embedded(own.batch), *ordered]
        used = self._joining.used(own.batch, fresh, range(len(fresh)), None)
        gradients = torch.autograd.grad(self.loss(self.top(used.joined), own.batch), used.leaves)
        return used.spread(gradients)[fresh.index(own)]

    def step_flops(self, rows: int) -> float:
        """Count the FLOPs of a server step on ``rows`` rows."""
        return self._cost("server_step", rows)

    def _as_step(self, _: str, rows: int) -> float:
        return self.step_flops(rows)


@dataclass(frozen=True, slots=True)
class HeldEmbedding:
    """An embedding of a batch, as a client holds it."""

    sender: int
    batch: Batch
    value: Handle[Tensor]


class RecomputingClient(ClientLearner):
    """Computes ∂ℓ/∂h_m itself, anew for each step: from ``SharedValues``, the server's weights and the others' h_j.

    It holds the labels of the training rows, and a copy of the server, which takes the received weights over.
    """

    def __init__(self, parts: ClientParts, server: BlockServer) -> None:
        super().__init__(parts)
        self._server = server
        self.widths = dict(zip(server.parts.clients, server.parts.widths, strict=True))
        """The widths of all embeddings that the server joins, by party."""
        server.staleness = Staleness((), 0)  # a copy completes no rounds, and needs no ages of its rows

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along ∂ℓ/∂h_m at the present h_m and at the values of ``gradient``, which are ``SharedValues``.

        The first step after an upload takes the h_m of the upload. Raises ``NonFiniteError`` when it runs.
        """
        shared = cast("SharedValues", gradient)

        def run() -> None:
            others = {m: shared[party_name(m)].value for m in self.widths if m != self.party}
            self.step_at(batch, shared[MODEL].value, others)

        operation: Operation[None] = self._operation("client_step", run, None, len(batch))
        operation.counts, operation.inputs = "update", tuple(shared.carried.values())
        return operation

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an operation on ``rows`` rows; of a step, those of the server's model, too."""
        return super().flops(kind, rows) + (self._server.step_flops(rows) if kind == "client_step" else 0.0)

    def step_at(self, batch: Batch, weights: Tensor, others: Mapping[int, Tensor]) -> None:
        """Step along ∂ℓ/∂h_m at the present h_m, at the server's ``weights`` and at the ``others``' embeddings."""
        h = self._uploaded.take(batch)
        values = {**others, self.party: h.detach()}
        embeddings = [HeldEmbedding(client, batch, _ready(values[client])) for client in sorted(values)]
        gradient = self._server.gradient_at(weights, embeddings, self.party)
        check_finite(gradient, LOCAL)
        descend([h], [gradient], [self.embedding])


def _ready(tensor: Tensor) -> Handle[Tensor]:
    handle: Handle[Tensor] = Handle(tuple(tensor.shape), tensor.dtype)
    handle.set(tensor)
    return handle


def recomputing_learners(setting: Setting, seed: int) -> Learners[BlockServer, RecomputingClient]:
    """Make a server, and clients that hold the labels and a copy of the server."""
    parts = server_parts(setting, seed)
    clients = {m: RecomputingClient(client_parts(setting, m, seed), server_copy(parts)) for m in setting.clients}
    return Learners(BlockServer(parts), clients)


def server_copy(parts: ServerParts) -> BlockServer:
    """Make a client's copy of the server: to it, the server's own embedding is one that it receives."""
    if parts.active is not None:
        clients, widths = (SERVER, *parts.clients), (parts.active.embedding, *parts.widths)
        parts = replace(parts, active=None, clients=clients, widths=widths)
    return BlockServer(parts)


def shared_shapes(setting: Setting, clients: Sequence[int], rows: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``SharedValues`` with the embeddings of ``clients``, which come last."""
    widths = dict(zip(setting.clients, setting.widths, strict=True))
    embeddings = {party_name(client): (rows, widths[client]) for client in clients}
    own = {} if setting.active_model is None else {party_name(SERVER): (rows, setting.active_model.embedding)}
    return {MODEL: (BlockServer(server_parts(setting, 0)).shared_weights,), **own, **embeddings}
