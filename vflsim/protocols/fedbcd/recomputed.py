"""Clients that compute their own gradients from what the server shares: FedBCD's `recomputed`, C-VFL, EF-VFL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.finite import LOCAL, check_finite
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party_model import descend
from vflsim.learning.learners.server import ServerParts
from vflsim.protocols.fedbcd.learning import BlockServer
from vflsim.protocols.fedbcd.messages import MODEL, SharedValues
from vflsim.setting import Learners, Setting, client_parts, server_parts
from vflsim.streams import SERVER, party_name


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
    """Make a client's copy of the server, which treats the server's own embedding as a received one."""
    if parts.active is not None:
        clients, widths = (SERVER, *parts.clients), (parts.active.embedding, *parts.widths)
        parts = replace(parts, active=None, clients=clients, widths=widths)
    return BlockServer(parts)
