"""A first protocol: synchronous rounds."""

from typing import ClassVar, Literal

from vflsim.protocol import ROUNDS, ClientNode, Embedding, Gradient, Protocol, ServerNode, Traits


class First(Protocol):
    kind: Literal["first"] = "first"
    traits: ClassVar[Traits] = ROUNDS

    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            for message in embeddings:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            h = await node.compute(node.learner.embed(node.batch(k)))
            await node.upload("server", Embedding(node.batch(k), h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(node.batch(k), gradient))
