"""A client's side of a coded round: share the model, answer with a coded embedding of all sharers' models."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from vflsim.learning.batches import Batch
from vflsim.protocols.fedvs.exchange import ShareExchange
from vflsim.protocols.fedvs.messages import CodedEmbedding, Missing, Shared, Sharers
from vflsim.world.node import Node

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys

_number = attrgetter("number")


class CodedRounds:
    """Shares a client's model and uploads its coded embeddings, round by round.

    Invariant: until the round is over, a client answers for the latest announced sharers, and again after each
    announcement.
    """

    def __init__(self, protocol: CodedKeys, node: Node, exchange: ShareExchange) -> None:
        self._protocol, self._node, self._exchange = protocol, node, exchange

    async def share(self, k: int) -> Sharers | None:
        """Share the model with every peer (Eq. 4); return the sharers of the round's sum, None if the round is over.

        With ``sharers``, the client stops if enough others are faster (footnote 2).
        """
        node = self._node
        if self._protocol.sharers is None:
            await self._exchange.send_model(k, await self._delayed_shares(k))
            return Sharers(clients=node.clients, round=k)
        async with node.until("sharers", round=k) as decided:
            shares = await self._delayed_shares(k)
        if not decided.fired:
            await self._exchange.send_model(k, shares)
            await node.send("server", Shared(round=k))
        return await self._announced(k)

    async def answer(self, batch: Batch, k: int, sharers: Sharers | None) -> None:
        """Compute on the shares of ``sharers`` and upload, and again for each new announcement."""
        node, latest = self._node, sharers
        while sharers is not None and latest is not None:
            latest = max(latest, sharers, key=_number)  # announcements may overtake each other
            if node.party in latest.clients and not self._exchange.has_sent(k):  # it replaces clients with lost shares
                await self._exchange.send_model(k, await self._delayed_shares(k))
            async with node.until("sharers", round=k):
                await self._coded_embedding(batch, k, latest.clients)
            sharers = await self._announced(k)

    async def _delayed_shares(self, k: int) -> Mapping[int, Any]:
        node = self._node
        shares: Mapping[int, Any] = await node.compute(node.learner.share_model(k))
        await node.delay("share", self._protocol.sharing_factor(node.learner.plan), round=k)
        return shares

    async def _announced(self, k: int) -> Sharers | None:
        """Wait for the server's next announcement; None if the round is over first."""
        async with self._node.until("gradient", round=k):
            sharers = await self._node.recv("sharers", round=k)
            assert isinstance(sharers, Sharers)
            return sharers
        return None

    async def _coded_embedding(self, batch: Batch, k: int, sharers: tuple[int, ...]) -> None:
        """Wait for the shares of all ``sharers``; compute H̃ = Σ X̃[B] W̃ and upload it (Eq. 5)."""
        node = self._node
        async with node.until("gradient", round=k) as over:  # with late: finished, a wait ends with the round, too
            models = await self._exchange.models(k, sharers)
        if over.fired:
            return
        if absent := tuple(client for client in sharers if client not in models):
            await node.send("server", Missing(clients=absent, round=k))
        else:
            h = await node.compute(node.learner.coded_embed(batch, models))
            await node.upload("server", CodedEmbedding(batch, h, round=k, clients=sharers))
