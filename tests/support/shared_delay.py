"""A protocol whose clients take a part of a delay in the middle of a round."""

from __future__ import annotations

from typing import Literal

from vflsim.protocol import Embedding, Synchronous
from vflsim.world.node import ClientNode


class Sharing(Synchronous):
    """Clients wait a part of their upload delay before they embed."""

    kind: Literal["sharing"] = "sharing"  # type: ignore[assignment]

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            await node.delay("share", 0.3)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))
