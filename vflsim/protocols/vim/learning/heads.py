"""Servers with linear heads W_1 … W_M, held side by side as one layer without bias: their base, and that of VIMSGD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.finite import check_loss, set_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.server import ServerLearner, ServerStep

StepT = TypeVar("StepT", bound=ServerStep)


class HeadsServer(ServerLearner):
    """A server whose model is Σ_k h^k W_k: (b, Σ d_f) → (b, d_c) as one product.

    ``heads_step`` makes the operation of a round from what a subclass computes.
    """

    def heads_step(
        self,
        embeddings: Sequence[Received],
        step: StepT,
        promises: Sequence[Handle[Tensor]],
        run: Callable[[Batch, Tensor], None],
        products: int,
    ) -> Operation[StepT]:
        """Make a step on ``embeddings`` of one batch, in client order.

        ``run`` takes the batch and the embeddings side by side; ``products`` is how many products with all heads, of
        2 b Σ d_f d_c FLOPs each, it computes.
        """
        batch, senders = embeddings[0].batch, [message.sender for message in embeddings]

        def on_joined() -> None:
            self.top.train()
            run(batch, self._joining.all_of([message.value for message in embeddings]))

        return self.operation(
            "server_step",
            on_joined,
            step,
            inputs=[message.value for message in embeddings],
            promises=(step.loss, *promises),
            rows=len(batch),
            cost=lambda: products * self.top.forward_flops(len(batch)),
            commit=lambda: self.staleness.complete([(batch, senders)], step.loss),
            counts="round",
        )

    def loss_of(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of predictions for the rows of ``batch``."""
        return self.parts.task.loss(prediction, self.y(batch))


def in_client_order(messages: Sequence[Received]) -> list[Received]:
    """Return the messages sorted by sender."""
    return sorted(messages, key=attrgetter("sender"))


class HeadsFirstServer(HeadsServer):
    """Updates its heads, and then takes the gradients for its clients."""

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[ServerStep]:
        """Take one step of all W_k, and compute ∇_{h^k} ℓ of every client at the new heads (VIM Eq. 12–14).

        The loss is that before the step. Raises ``NonFiniteError`` when it runs.
        """
        ordered, step = in_client_order(embeddings), ServerStep()
        promised = [step.promise(message) for message in ordered]

        def run(batch: Batch, h: Tensor) -> None:
            loss = self.loss_of(self.top(h), batch)
            set_loss(step.loss, loss.detach())
            gradient, _ = self.top.gradients(loss, [])
            self.top.step(gradient)
            h.requires_grad_()
            stepped = self.loss_of(self.top(h), batch)
            check_loss(stepped.detach())
            (received,) = torch.autograd.grad(stepped, h)
            for handle, part in zip(promised, torch.split(received, list(self.parts.widths), dim=1), strict=True):
                handle.set(part)

        return self.heads_step(ordered, step, promised, run, products=4)
