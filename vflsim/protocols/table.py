"""The base of protocols with a table of latest embeddings: its initial values and its bound on staleness."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, ClassVar, Literal

from vflsim.analysis.cycles import Unanalysable
from vflsim.errors import DisconnectedError
from vflsim.learning.learners.server import ServerStep
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import OwnFacts
from vflsim.protocols.traits import TABLE, Traits
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.tracing.contents import Content, Contents, ids_of, single
from vflsim.vocabulary.quantities import Index
from vflsim.world.messages import Answer, Embedding, FirstFill, Gradient, Message, Query
from vflsim.world.node import ClientNode, ServerNode


class TableProtocol(OwnFacts, Protocol):
    """A server that keeps the latest row per (sample, client) and never waits for all clients.

    ``first_fill``: rows never received are ``zeros``, or come from an ``upload`` of every training row before training
    starts, whose time and bytes count. ``max_staleness``: rows about to be used that are older (in server steps) are
    re-queried at once (VAFL Sec. 2.3); ``bounds`` is the age that this limits.
    """

    first_fill: Literal["zeros", "upload"] = "zeros"
    """What stands for rows never received: ``zeros``, or an ``upload`` of every training row before training starts."""
    max_staleness: Index | None = None
    """Rows about to be used that are older than so many server steps are queried again at once."""
    bounds: Literal["client_age", "row_age"] = "client_age"
    """The age that ``max_staleness`` limits: a client's latest embedding's, or each row's."""
    traits: ClassVar[Traits] = TABLE

    def facts(self) -> Mapping[str, Any]:
        """Describe the bound on staleness, and the age that it limits."""
        return (
            {} if self.max_staleness is None else {"max_staleness": self.max_staleness, "staleness_bounds": self.bounds}
        )

    def refuse_queries(self) -> None:
        """Raise ``Unanalysable`` if the server queries clients for fresh rows."""
        if self.max_staleness is not None:
            raise Unanalysable("rows that are too old are queried again: a round depends on the ones before")

    def rare_contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return queries, and answers."""
        ids = ids_of(setting, rows)
        if self.max_staleness is None:
            return {}
        if receiver != SERVER:
            return {Query.kind: [Content(ids=ids)]}
        return {Answer.kind: [single((rows, setting.models[sender - 1].embedding), setting.uploaded, ids)]}

    async def fill_table(self, node: ServerNode) -> None:
        """Server: with ``first_fill: upload``, wait for every client's first pass."""
        if self.first_fill == "upload":
            first = await node.gather("first_fill", senders=node.clients)
            await node.free().compute(node.learner.fill(first))
            node.arrived("first_fill")  # a client that crashed and came back may have sent it twice

    async def upload_first_pass(self, node: ClientNode) -> None:
        """Client: with ``first_fill: upload``, embed and upload every training row, unless training has started."""
        if self.first_fill == "upload" and node.current_round == 0:
            h = await node.compute(node.learner.embed_split("train", "first_fill"))
            await node.upload("server", FirstFill(value=h))

    async def requery(self, node: ServerNode, fresh: list[Message]) -> list[Message]:
        """Server: query fresh embeddings of the rows about to be used that are older than ``max_staleness``."""
        stale = node.learner.too_old(fresh, self.max_staleness, self.bounds)
        asked = [self.ask(node, client, Query(batch, round=n)) for n, (client, batch) in enumerate(stale)]
        return sorted(await node.together(*asked), key=attrgetter("arrived", "sender"))

    async def ask(self, node: ServerNode, client: int, query: Query) -> Message:
        """Server: return a client's answer. Ask a client that crashes before it answers again when it is back."""
        while True:
            await node.back(client)
            await node.send(client, query)
            with suppress(DisconnectedError):
                return await node.recv("answer", round=query.round, sender=client)

    async def answer_queries(self, node: ClientNode) -> None:
        """Client: answer every query at once, concurrently with its other work."""
        while True:
            query = await node.recv("query")
            assert query.batch is not None, "a query names its batch"
            h = await node.compute(node.learner.answer(query.batch))
            await node.upload("server", Answer(query.batch, h, round=query.round))

    async def work_at_own_pace(self, node: ClientNode) -> None:
        """Client: wait for activation, embed a batch, upload it, wait for the gradient, step (VAFL Alg.

        1, lines 3–7).
        """
        while True:
            await node.activated()
            batch = node.next_batch()
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=batch.index))
            gradient = await node.recv("gradient", round=batch.index)
            await node.compute(node.learner.client_step(batch, gradient))

    async def return_gradients(self, node: ServerNode, step: ServerStep, fresh: list[Message]) -> None:
        """Server: send each client the gradient of its own batch."""
        for message in fresh:
            await node.send(message.sender, Gradient(value=step.gradient_for(message), round=message.round))
