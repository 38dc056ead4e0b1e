"""The server of VIMSGD."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.finite import check_loss, set_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.server import ServerStep
from vflsim.protocols.vim.learning.heads import HeadsServer, in_client_order


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
