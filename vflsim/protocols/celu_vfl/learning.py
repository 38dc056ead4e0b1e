"""The local steps of CELU-VFL: on cached exchanges, weighted by how similar they still are, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.finite import check_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party_model import descend
from vflsim.learning.learners.server import OwnEmbedding, ServerLearner, ServerStep


def weights_of(now: Tensor, cached: Tensor, least: float) -> Tensor:
    """Return each row's weight: cos(now, cached) where it is at least ``least``, else 0; (…, rows, 1).

    Both are (…, rows, width). The cosine with a row of zeros is 0. Fu et al. 2022, Sec. 4.2.
    """
    cosine = torch.nn.functional.cosine_similarity(now, cached, dim=-1).unsqueeze(-1)
    return torch.where(cosine >= least, cosine, torch.zeros_like(cosine))


@dataclass(frozen=True, slots=True)
class Weighted:
    """∂L/∂h of a client's local step: the cached gradient, weighted by the similarity of the embeddings."""

    least: float

    def __call__(self, h: Tensor, cached: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by the present embeddings ``h``; all are (…, rows, width)."""
        return gradient * weights_of(h, cached, self.least)


def cached_client_step(
    client: ClientLearner, batch: Batch, h: Handle[Tensor], gradient: Received, least: float
) -> Operation[None]:
    """Step along a cached ``gradient``, as far as the embeddings are still like ``h``, those of the exchange."""
    flops = 6.0 * client.width * len(batch)  # three sums of products a row
    return client.local_step(batch, Weighted(least), [h, gradient.value], flops)


class CachingServer(ServerLearner):
    """Steps again on embeddings of earlier exchanges."""

    def cached_step(self, embeddings: Sequence[Received], step: ServerStep, least: float) -> Operation[None]:
        """Step on cached ``embeddings`` of one batch; ``step`` is the server step of their exchange.

        A row's loss is weighted by the cosine of ∂ℓ/∂h now and then, over the embeddings of all clients side by side,
        or 0 if it is below ``least``. The loss has to be a mean over rows. Raises ``NonFiniteError`` when it runs.
        """
        ordered = sorted(embeddings, key=attrgetter("sender"))
        cached = [step.gradient_for(message) for message in ordered]
        rows, batch = len(ordered[0].batch), ordered[0].batch

        def run() -> None:
            self._step_weighted(batch, ordered, torch.cat([handle.value for handle in cached], 1), least)

        inputs = [*(message.value for message in ordered), *cached]
        flops = self._cost("server_step", rows) + 6.0 * sum(self.parts.widths) * rows
        return self.operation("local_step", run, None, inputs=inputs, rows=rows, cost=lambda: flops)

    def _step_weighted(self, batch: Batch, ordered: Sequence[Received], cached: Tensor, least: float) -> None:
        self.top.train()
        mixed = []
        if self.mixing is not None:
            self.mixing.train()
            mixed = self.mixing.vector_parts
        embeddings = [] if self.embedding is None else [self._embedded(batch)]
        fresh = [*embeddings, *ordered]
        used = self._joining.used(batch, fresh, [self._place[each.sender] for each in fresh], None)
        prediction = self.top(used.joined)
        loss = self.parts.task.loss(prediction, self.y(batch))
        check_loss(loss.detach())
        (by_prediction,) = torch.autograd.grad(loss, prediction, retain_graph=True)
        now = used.spread(torch.autograd.grad(prediction, used.leaves, by_prediction, retain_graph=True))
        weights = weights_of(torch.cat(list(now[len(embeddings) :]), 1), cached, least)
        # A row's loss depends on that row of the prediction alone, so weighting ∂ℓ/∂prediction weights the losses.
        weighted = (prediction * (by_prediction * weights)).sum()
        gradient, others = self.top.gradients(weighted, [*used.leaves, *mixed])
        self.top.step(gradient)
        if self.mixing is not None:
            self.mixing.step(others[len(used.leaves)])
        if self.embedding is not None:
            mine: OwnEmbedding = embeddings[0]
            descend([mine.graph], [used.spread(others[: len(used.leaves)])[0]], [self.embedding])
