"""The learners of VIMADMM-J: heads at the clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientParts
from vflsim.learning.learners.finite import LOCAL, check_finite, set_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party_model import PartyModel, descend
from vflsim.protocols.vim.learning.admm import AdmmStep, in_client_order
from vflsim.protocols.vim.learning.proximal import ByLogits, Duals
from vflsim.protocols.vim.learning.whole import LogitsServer, WholeClient
from vflsim.setting import Setting


class JointAdmmServer(LogitsServer):
    """Holds λ and z of every training row, and no model."""

    def __init__(self, setting: Setting, rho: float) -> None:
        super().__init__(setting)
        self.duals = Duals(self, self.task, self.outputs, rho)

    def server_step(self, messages: Sequence[Received]) -> Operation[Any]:
        """Update z and λ for the rows of the round, and compute all s^k = z − Σ_{i≠k} o^i (VIM Eq. 17–19).

        The loss is that of the predictions. Raises ``NonFiniteError`` when it runs.
        """
        ordered = in_client_order(messages)
        rows = len(ordered[0].batch)
        step = AdmmStep(self.promise(rows, self.outputs))
        step.residuals = {message.sender: self.promise(rows, self.outputs) for message in ordered}

        def run(batch: Batch, prediction: Tensor) -> None:
            set_loss(step.loss, self.task.loss(prediction, self.y(batch)).detach())
            z, duals = self.duals.update(batch, prediction)
            step.duals.set(duals)
            for message in ordered:
                step.residuals[message.sender].set(z - prediction + message.value.value)

        return self.round_step(ordered, step, step.promises, run)


class JointAdmmClient(WholeClient):
    """Computes logits, and takes local steps of its head and of its embedding model in turn."""

    def __init__(self, parts: ClientParts, head: PartyModel, outputs: int, rho: float) -> None:
        super().__init__(parts, head, outputs)
        self._gradient = ByLogits(rho)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Compute the logits of a batch: a handle of shape (batch, d_c). No gradient comes back for them."""
        return self.answer(batch, "embed")

    def client_step(self, batch: Batch, variables: Any) -> Operation[None]:
        """Take one local step of W_k, and then one of θ_k at the new W_k (VIM Eq. 20, 21; Alg. 3, lines 14, 15).

        Both are on means over the rows. The step recomputes the logits without the mechanism. Raises ``NonFiniteError``
        when it runs.
        """
        received = [variables["duals"], variables["residuals"]]

        def run() -> None:
            duals, residuals = (handle.value for handle in received)
            h = self.embedding(self.x(batch))
            o = self.head(h.detach())
            self._descend(o, self._gradient(o.detach(), duals, residuals), self.head)
            o = functional.linear(h, self.head.module.get_parameter("weight").detach())
            self._descend(o, self._gradient(o.detach(), duals, residuals), self.embedding)

        def cost() -> float:
            # ∇W_k and ∇h need different products, so W_k is applied once more than in the passes through both models.
            return (
                self.embedding.training_flops(len(batch))
                + 2 * self.head.forward_flops(len(batch))
                + (self.head.backward_flops(len(batch)))
            )

        operation = self.operation("client_step", run, None, rows=len(batch), cost=cost)
        return self.stepping_locally(operation, batch, self._gradient, received)

    def _descend(self, o: Tensor, gradient: Tensor, model: PartyModel) -> None:
        check_finite(gradient, LOCAL)
        descend([o], [gradient], [model])
