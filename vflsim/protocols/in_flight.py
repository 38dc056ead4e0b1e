"""Batches in flight: a client embeds the next batches while it waits for replies to earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from vflsim.errors import DisconnectedError
from vflsim.learning.batches import Batch
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import ClientNode, Node


class AnsweredBatch(NamedTuple):
    """The reply to the embedding of ``batch``; ``stale``: the client has stepped since it embedded the batch."""

    batch: Batch
    message: Message
    stale: bool


class _Waiting(NamedTuple):
    batch: Batch
    round: int
    replies: int
    """The number of replies that the client had stepped on when it embedded the batch."""


class InFlight:
    """The batches of one client that have been embedded and not been stepped on, the oldest first.

    With ``depth`` 0 the client waits for each reply before it embeds again. Otherwise up to ``depth`` batches may wait
    for their replies, and uploads follow one another beside the client's computations. ``kind`` is that of the replies.

    Invariant: replies are taken in the order of the batches, whatever the order in which they arrive.
    """

    def __init__(self, node: ClientNode, depth: int, kind: str = "gradient") -> None:
        self._node, self._depth, self._kind = node, depth, kind
        self._waiting: deque[_Waiting] = deque()
        self._uploads: deque[Message] = deque()
        self._uploading = False
        self._replies = 0

    async def upload(self, embedding: Message) -> None:
        """Send the server an embedding of a batch, which is in flight from now on."""
        assert embedding.batch is not None, "an embedding names its batch"
        self._waiting.append(_Waiting(embedding.batch, embedding.round, self._replies))
        if not self._depth:
            await self._node.upload("server", embedding)
            return
        self._uploads.append(embedding)
        if not self._uploading:
            self._uploading = True
            self._node.start(self._upload_in_turn())

    async def replies(self) -> AsyncIterator[AnsweredBatch]:
        """Yield the replies to step on before the next batch: those that are here, and those that must be awaited."""
        while self._waiting:
            batch, round_, replies = self._waiting[0]
            here = self._node.arrived(self._kind, round=round_) if self._depth else []
            if not here and len(self._waiting) <= self._depth:
                return
            reply = here[0] if here else await self._node.recv(self._kind, round=round_)
            self._waiting.popleft()
            stale, self._replies = self._replies > replies, self._replies + 1
            yield AnsweredBatch(batch, reply, stale)

    async def _upload_in_turn(self) -> None:
        while self._uploads:
            await self._node.upload("server", self._uploads.popleft())
        self._uploading = False


async def train_in_flight(node: ClientNode, depth: int, steps: int, kind: str = "gradient") -> None:
    """Client: embed and upload each batch; take ``steps`` on each reply that is here or that the window makes it await.

    If the client has stepped since it embedded a batch, the first step embeds the batch anew; the others always do.
    """
    in_flight = InFlight(node, depth, kind)
    for k in node.rounds():
        await node.activated()
        batch = node.batch(k)
        h = await node.compute(node.learner.embed(batch))
        await in_flight.upload(Embedding(batch, h, round=k))
        async for embedded, reply, stale in in_flight.replies():
            first = node.learner.step_again if stale else node.learner.client_step
            await node.compute(first(embedded, reply))
            for _ in range(steps - 1):
                await node.compute(node.learner.step_again(embedded, reply))


async def answered(node: Node[Any], client: int, message: Message) -> Message:
    """Server: send a message, and return the client's answer. Ask a client that crashes before it answers again."""
    while True:
        await node.back(client)
        await node.send(client, message)
        with suppress(DisconnectedError):
            return await node.recv("answer", round=message.round, sender=client)


async def serve_in_flight(node: Node[Any], further: int) -> None:
    """Server, batch by batch: wait for all embeddings; step and send the gradients; take ``further`` steps."""
    for k in node.rounds():
        embeddings = await node.gather("embedding", senders=node.clients, round=k)
        step = await node.compute(node.learner.server_step(embeddings))
        for embedding in embeddings:
            await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))
        await step_further(node, embeddings, further)


async def step_further(node: Node[Any], embeddings: Sequence[Message], count: int) -> None:
    """Server: take so many more steps on embeddings of a batch, which complete no round."""
    for _ in range(count):
        await node.compute(node.learner.local_step(embeddings))
