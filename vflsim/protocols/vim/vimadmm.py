"""VIMADMM: linear heads at the server, ADMM instead of gradients (VIM Alg. 1)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from vflsim.learning.losses import Auto, BinaryCrossEntropy, CrossEntropy, MeanSquaredError
from vflsim.protocols.base import CheckContext, UnsuitableError
from vflsim.protocols.capabilities import Remembering
from vflsim.protocols.vim.heads import LinearHeads
from vflsim.protocols.vim.learning.admm import AdmmClient, AdmmServer, ResidualHeads
from vflsim.protocols.vim.messages import AdmmVariables
from vflsim.setting import ClientsMade, Learners, Setting, client_parts, server_parts, stack_split_learners
from vflsim.vocabulary.quantities import Count, PositiveNumber
from vflsim.world.node import Node


class Admm(Remembering, LinearHeads):
    """The base of VIMADMM and VIMADMM-J: ρ, τ, and λ and z of every training row."""

    rho: PositiveNumber
    """ρ, the penalty factor of the augmented Lagrangian."""
    local_steps: Count
    """τ, the steps that a client takes in a round. Each is a computation of its own, and counts as an update."""

    async def server(self, node: Node) -> None:
        """Update z and λ, and the heads if they are here; send each client its ``AdmmVariables``."""
        for t in node.rounds():
            received = await node.gather(self.sends.kind, senders=node.clients, round=t)
            step = await node.compute(node.learner.server_step(received))
            for client in node.clients:
                await node.send(client, AdmmVariables(round=t, tensors=step.variables_for(client)))

    async def client(self, node: Node) -> None:
        """Send h^k of B(t), or o^k; take τ steps on the variables that come back."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", self.sends(batch, h, round=t))
            variables = await node.recv("admm_variables", round=t)
            for _ in range(self.local_steps):
                await node.compute(node.learner.client_step(batch, variables))

    def check(self, context: CheckContext) -> None:
        """Raise ``UnsuitableError`` for a loss that the z-step cannot minimise."""
        super().check(context)
        if not isinstance(context.loss, Auto | CrossEntropy | BinaryCrossEntropy | MeanSquaredError | None):
            raise UnsuitableError(
                "loss",
                f"the z-step of {self.kind} minimises the loss of a row exactly (VIM Eq. 6), by Newton's method for "
                f"the usual loss of the task, and {context.loss.kind} is another; allowed: auto; leave loss out, or "
                "give this protocol `training: {loss: auto}`",
            )

    def extra_bytes(self, setting: Setting) -> int:
        """Count the bytes of λ and z."""
        return 2 * setting.data.rows * setting.data.outputs * setting.dtype.itemsize


class VimAdmm(Admm):
    """Round t: clients embed B(t), the server updates z, λ and W_k, clients take ``local_steps`` on the sent values.

    The server's updates are Eq. 6, 7 and 8; it sends λ, s^k (Eq. 9) and W_k; clients step θ_k by SGD (Eq. 10).
    A round sends b d_f numbers up and (2b + d_f) d_c down for each client.

    Example: ``{kind: vimadmm, rho: 2, local_steps: 20, residual_heads: old, exclude: 3}``
    """

    kind: Literal["vimadmm"] = "vimadmm"
    residual_heads: ResidualHeads = "new"
    """The heads in s^k: those after the round's step (Eq. 9), or those before it, as in the authors' program."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients that take local steps, and a server that keeps λ and z of every training row."""
        outputs = setting.data.outputs

        def made(client: int) -> AdmmClient:
            return AdmmClient(client_parts(setting, client, seed), outputs, self.rho)

        clients = ClientsMade(AdmmClient, setting.clients, made)
        server = AdmmServer(server_parts(setting, seed), outputs, self.rho, self.residual_heads)
        return Learners(server, clients, partial(stack_split_learners, table=False))
