"""The server of FedBCD, which steps repeatedly on the same embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.server import OwnEmbedding, ServerLearner, ServerStep
from vflsim.protocols.fedbcd.messages import MODEL
from vflsim.streams import SERVER, party_name


class BlockServer(ServerLearner):
    """Steps repeatedly on the same embeddings, or computes one client's gradient without a step.

    Each of these operations costs the FLOPs of a server step.
    """

    _own: Handle[Tensor] | None = None
    """The handle that receives the server's own embedding in the running step."""

    def local_step(self, embeddings: Sequence[Received]) -> Operation[ServerStep]:
        """Take a step of θ_0 (and of the server's own embedding model) on embeddings of one batch.

        It is a server step that completes no round. Raises ``NonFiniteError`` when it runs.
        """
        operation = self.server_step(embeddings)
        operation.kind, operation.counts, operation.commit = "local_step", None, None
        operation.cost = self._as_step
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

        This learner is a client's copy of the server; it replaces its own weights by ``weights``.
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
