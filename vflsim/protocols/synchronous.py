"""Synchronous split training: the server waits for all clients (FedVS's baseline *Wait*; VAFL Alg. 2 with t = M)."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflsim.protocols.base import REFERENCE, ROUNDS, Protocol, Traits, replace
from vflsim.protocols.blinded import agree_on_keys, of_all, relay_keys
from vflsim.protocols.ignore import Ignore
from vflsim.world.messages import Embedding, Gradient
from vflsim.world.node import ClientNode, ServerNode


class Synchronous(Protocol):
    """Round k: every client embeds batch k, the server steps on all embeddings, every client steps.

    Example: ``{kind: synchronous}``

    Example of a protocol that changes one hook of it::

        class Patient(Synchronous):
            kind: Literal["patient"] = "patient"

            def describe(self, setting: Setting) -> str:
                return f"waits for all {len(setting.clients)} clients"


        Patient().describe(setting)  # 'waits for all 4 clients'
    """

    kind: Literal["synchronous"] = "synchronous"
    traits: ClassVar[Traits] = replace(ROUNDS, blindable=True, party_dropout=True)

    async def server(self, node: ServerNode) -> None:
        """Wait for all embeddings of the round; step; return the gradients."""
        await relay_keys(node)
        for k in node.rounds():
            if embeddings := await of_all(node, k):
                step = await node.compute(node.learner.server_step(embeddings))
                for embedding in embeddings:
                    await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    async def client(self, node: ClientNode) -> None:
        """Each round: embed, upload, wait for the gradient, step."""
        await agree_on_keys(node)
        for k in node.rounds():
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))

    def without(self, clients: tuple[int, ...]) -> Ignore:
        """Return synchronous rounds that ignore these clients."""
        return Ignore(exclude=clients)


class Centralised(Protocol):
    """Train with the models and batches of synchronous training, but with all features at the server and no messages.

    The server computes the whole model, the clients' parts included. A round takes the time of this one computation
    (``compute.server_step``). Counted FLOPs are those of the forward and backward passes of all models, at the server's
    rate. A sampled time of the server covers the whole computation. The difference between another protocol and this
    one is the cost of distribution. It runs the synchronous algorithm with operations and messages that take no time.

    Example: ``{kind: centralised}``
    """

    kind: Literal["centralised"] = "centralised"
    traits: ClassVar[Traits] = REFERENCE

    async def server(self, node: ServerNode) -> None:
        """Run the synchronous server with free messages."""
        await Synchronous().server(node)

    async def client(self, node: ClientNode) -> None:
        """Run the synchronous client in zero time."""
        await Synchronous().client(node)
