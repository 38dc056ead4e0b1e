"""VIM's protocols (Xie et al. 2024): VIMADMM, VIMADMM-J, VIMSGD, FDML; clients whose heads the server has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.models.server import LinearServer
from vflsim.learning.tasks import Auto, BinaryCrossEntropy, CrossEntropy, MeanSquaredError
from vflsim.protocols.answering import Answering
from vflsim.protocols.base import ROUNDS, CheckContext, Traits, UnsuitableError, replace
from vflsim.protocols.synchronous import RoundTrips
from vflsim.protocols.vim.admm import AdmmClient, AdmmServer, HeadsFirstServer, ResidualHeads
from vflsim.protocols.vim.whole import (
    Combine,
    JointAdmmClient,
    JointAdmmServer,
    LogitsServer,
    WholeClient,
    stack_whole,
    whole_clients,
)
from vflsim.setting import (
    ClientsMade,
    Learners,
    ServerPrediction,
    Setting,
    client_parts,
    prediction_of,
    server_parts,
    split_clients,
    stack_split_learners,
)
from vflsim.vocabulary.expressions import Selection, others
from vflsim.vocabulary.on_demand import Tensor
from vflsim.vocabulary.quantities import Count, PositiveNumber
from vflsim.world.messages import Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class Logits(Message):
    """A client's part of the prediction for a batch, o^k = f(x; θ_k) W_k, shape (batch, d_c)."""

    kind: ClassVar[str] = "logits"
    ordered: ClassVar[bool] = True
    embedding: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class AdmmVariables(Message):
    """What a client's local steps need: ``duals`` λ (b, d_c), ``residuals`` s^k (b, d_c) and, unless the client holds
    it, its ``head`` W_k (d_f, d_c)."""

    kind: ClassVar[str] = "admm_variables"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({"head"})


# --- linear heads -----------------------------------------------------------------------------------------------------


class LinearHeads(RoundTrips):
    """Synchronous rounds of the model Σ_k h^k W_k (VIM Eq. 2).

    A scenario gives this model by ``aggregate: concat`` and ``server: {kind: linear, bias: false}``. W_k consists of
    the rows of that layer's weight that belong to client k's embedding. Therefore initial weights equal those of any
    other protocol with these models. The paper sums over the samples of a batch; this protocol takes the mean, as the
    authors' program does. β R is the optimisers' ``weight_decay`` β, with R(θ) = ½ ‖θ‖².
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    exclude: Selection | None = None
    """These clients never take part."""
    traits: ClassVar[Traits] = replace(
        ROUNDS,
        active_features=False,
        refuses_absent_rows="each client's head and dual variables need all of its rows",
        aggregate=("concat", "{kind} has a linear head for each client, and the aggregate is {other}"),
    )

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the clients that are not excluded."""
        return others(self.exclude, {**symbols, "N": clients})

    def without(self, clients: tuple[int, ...]) -> Self:
        """Return this protocol with these clients excluded."""
        return self.model_copy(update={"exclude": clients})

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for models that are not linear heads."""
        super().check(context)
        if not self.participants(context.clients, context.symbols):
            raise ValueError(f"exclude leaves none of the {context.clients} clients; at least one must stay")
        if not isinstance(context.server, LinearServer) or context.server.bias:
            biased = " with a bias" if isinstance(context.server, LinearServer) else ""
            raise ValueError(
                f"{self.kind} has a linear head for each client, and the server's model is {context.server.kind}"
                f"{biased}; allowed: models.server: {{kind: linear, bias: false}}"
            )


class WholeModels(Answering, LinearHeads):
    """Clients hold their heads, and send logits."""

    sends: ClassVar[type[Message]] = Logits

    def heads(self, setting: Setting, learners: Learners[Any, Any]) -> dict[int, Tensor]:
        """Return the head of each client."""
        modules = {client: learner.head.module for client, learner in learners.clients.items()}
        return {client: module.get_parameter("weight").detach().T for client, module in modules.items()}

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the combined logits of the clients as a function of embeddings."""
        return prediction_of(learners.server, learners.server.combined)


class Fdml(WholeModels):
    """Round t: clients send logits of B(t), the server returns the gradient of the loss by the logits, clients step.

    They update W_k and θ_k along gradients at the old values of both. A round sends b d_c numbers up and b d_c down for
    each client.

    Example: ``{kind: fdml, combine: mean, exclude: 3}``
    """

    kind: Literal["fdml"] = "fdml"
    combine: Combine = "sum"
    """The prediction is the ``sum`` of the clients' logits, or their ``mean``."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server without a model."""
        clients = whole_clients(setting, seed, WholeClient)
        return Learners(LogitsServer(setting, self.combine), clients, stack_whole)


class VimSgd(LinearHeads):
    """Round t: clients embed B(t), the server steps its heads, clients step on gradients through the new heads.

    The server updates all W_k (Eq. 12–13) and sends ∇_{h^k} ℓ (Eq. 14), along which clients update θ_k (Eq. 15–16).

    Example: ``{kind: vimsgd, gradient_heads: old, exclude: 3}``
    """

    kind: Literal["vimsgd"] = "vimsgd"
    gradient_heads: Literal["new", "old"] = "new"
    """The heads at which the clients' gradients are taken: those after the round's step, as in Alg. 2, or those before
    it, as in the authors' program and in ``synchronous`` training."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server that may update its heads first."""
        clients = split_clients(setting, seed)
        server = HeadsFirstServer if self.gradient_heads == "new" else ServerLearner
        return Learners(server(server_parts(setting, seed)), clients)


class Admm(LinearHeads):
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

        def new_client(client: int) -> AdmmClient:
            return AdmmClient(client_parts(setting, client, seed), outputs, self.rho)

        clients = ClientsMade(AdmmClient, setting.clients, new_client)
        server = AdmmServer(server_parts(setting, seed), outputs, self.rho, self.residual_heads)
        return Learners(server, clients, partial(stack_split_learners, table=False))


class VimAdmmJ(WholeModels, Admm):
    """Round t: clients send logits of B(t), the server updates z and λ, clients take ``local_steps`` of W_k and θ_k.

    The server's updates are Eq. 17 and 18; it sends λ and s^k (Eq. 19); clients step W_k (Eq. 20) and θ_k (Eq. 21).
    A round sends b d_c numbers up and 2 b d_c down for each client.

    Example: ``{kind: vimadmm_j, rho: 2, local_steps: 20, exclude: 3}``
    """

    kind: Literal["vimadmm_j"] = "vimadmm_j"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server that keeps λ and z of every training row."""
        make = partial(JointAdmmClient, rho=self.rho)
        return Learners(JointAdmmServer(setting, self.rho), whole_clients(setting, seed, make), stack_whole)
