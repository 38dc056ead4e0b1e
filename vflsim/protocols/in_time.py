"""Rounds that do not wait for stragglers."""

from __future__ import annotations

from vflsim.world.messages import Embedding, Message
from vflsim.world.node import ClientNode, Node


async def in_time(
    node: Node, k: int, fastest: int | None, deadline: float | None, forgoing: bool = False
) -> list[Message]:
    """Server: return the embeddings that round ``k`` uses: all, the ``fastest`` few, or those before a ``deadline``.

    The deadline is in seconds from now; if none has arrived by then, the round uses the next one that comes. With
    ``forgoing``, clients that crash are not waited for.
    """
    if fastest is not None:
        return await node.gather("embedding", count=fastest, senders=node.clients, round=k)
    arrived = await node.gather("embedding", senders=node.clients, round=k, timeout=deadline, forgoing=forgoing)
    return arrived or await node.gather("embedding", count=1, round=k)


async def take_part(node: ClientNode) -> None:
    """Client, each round: embed, upload, step if the round used the embedding; then join the current round."""
    for k in node.rounds(over="gradient"):
        await node.activated()
        batch = node.batch(k)
        h = await node.compute(node.learner.embed(batch))
        await node.upload("server", Embedding(batch, h, round=k))
        gradient = await node.recv("gradient", round=k)
        if gradient.value is not None:
            await node.compute(node.learner.client_step(batch, gradient))
