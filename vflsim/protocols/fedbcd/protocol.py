"""FedBCD: the parties take Q steps on values that they exchange once (Liu et al. 2022)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits, replace
from vflsim.protocols.fedbcd.learning import BlockServer, RoundOver, block_learners, shared_values_of
from vflsim.protocols.in_flight import answered, serve_in_flight, step_further, train_in_flight
from vflsim.setting import Learners, Setting
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Answer, Embedding, Gradient
from vflsim.world.node import ClientNode, Node


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
