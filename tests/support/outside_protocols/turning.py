"""Synchronous rounds that are answered in client order, or against it if the first client to arrive has the higher
number than the last."""

from typing import ClassVar, Literal

from outside_protocols.first import First
from vflsim.protocol import ROUNDS, Gradient, ServerNode, Traits


class Turning(First):
    kind: Literal["turning"] = "turning"  # type: ignore[assignment]
    traits: ClassVar[Traits] = ROUNDS

    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            against = embeddings[0].sender > embeddings[-1].sender
            for message in sorted(embeddings, key=lambda each: each.sender, reverse=against):
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))
