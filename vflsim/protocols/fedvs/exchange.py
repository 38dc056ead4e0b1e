"""The exchange of shares between clients, which also works if some clients crash during it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from vflsim.learning.batches import Batch
from vflsim.protocols.fedvs.messages import (
    CodedEmbedding,
    DataRequest,
    DataShare,
    Missing,
    ModelRequest,
    ModelShare,
    Returned,
    Shared,
    Sharers,
)
from vflsim.world.node import Node

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys


class ShareExchange:
    """One client's traffic of shares with its peers: all other clients of the run.

    Invariants: every peer gets the data shares once, unless they get lost. A client reports that it has been down:
    peers that lack its data shares ask for them, and it asks peers and server for missed messages. Repeated shares are
    equal, since their masks are. Without crashes there are no requests.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.peers = tuple(client for client in node.clients if client != node.party)
        self._sent: tuple[int, Mapping[int, Any]] | None = None
        self._received: tuple[int, dict[int, Any]] = (-1, {})
        self._returned = node.returned

    async def share_data(self) -> None:
        """Send every peer its share of this client's data, unless done before a crash (FedVS Alg. 1, 2–10)."""
        node = self._node
        if not node.learner.given:
            shares = await node.compute(node.learner.share_data())
            for peer in self.peers:
                await node.send(peer, DataShare(value=shares[peer]))
        node.start(self._answer_for_data())
        node.start(self._answer_for_models())
        for peer in self.peers if self._returned else ():
            await node.send(peer, Returned())
            if peer not in node.learner.data_shares:
                await node.send(peer, DataRequest())

    async def catch_up(self, k: int) -> None:
        """Ask for missed messages of round ``k``, if this client has just been down."""
        if self._returned:
            self._returned = False
            await self._node.send("server", Missing(round=k))
            for peer in self.peers:
                await self._node.send(peer, ModelRequest(round=k))

    def has_sent(self, k: int) -> bool:
        """Return whether this client has sent its model shares of round ``k``."""
        return self._sent is not None and self._sent[0] == k

    async def send_model(self, k: int, shares: Mapping[int, Any]) -> None:
        """Send every peer its share of this client's model of round ``k`` (FedVS Alg. 1, 18)."""
        self._sent = k, shares
        for peer in self.peers:
            await self._node.send(peer, ModelShare(value=shares[peer], round=k))

    async def models(self, k: int, sharers: Collection[int]) -> dict[int, Any]:
        """Gather the model shares of round ``k``, its own included, of ``sharers`` whose data shares have arrived.

        Waits for all of them that are up.
        """
        node, shares = self._node, self._shares(k)
        peers = [client for client in sharers if client != node.party]
        await self._complete_data(peers)
        lacking = [peer for peer in peers if peer not in shares]
        for share in await node.gather("model_share", senders=lacking, round=k, forgoing=True):
            shares[share.sender] = share.value
        return {client: shares[client] for client in sharers if client in shares and client in node.learner.data_shares}

    def _shares(self, k: int) -> dict[int, Any]:
        """Return the received shares of round ``k``, and this client's own."""
        if self._received[0] != k:
            self._received = k, {}
        if self._sent is not None and self.has_sent(k):
            self._received[1][self._node.party] = self._sent[1][self._node.party]
        return self._received[1]

    async def _complete_data(self, peers: Collection[int]) -> None:
        node, store = self._node, self._node.learner
        while True:
            for back in node.arrived("returned"):
                if back.sender not in store.data_shares:  # its shares may be lost
                    node.start(self._ask_for_data(back.sender))  # beside: the round's end must not cancel it
            without = [peer for peer in peers if peer not in store.data_shares]
            if not without:
                return
            async with node.until("returned") as returned:
                for message in await node.gather("data_share", senders=without, forgoing=True):
                    store.keep(message)
            if not returned.fired:
                return

    async def _ask_for_data(self, peer: int) -> None:
        await self._node.send(peer, DataRequest())

    async def _answer_for_data(self) -> None:
        while True:
            request = await self._node.recv("data_request")
            share = self._node.learner.given[request.sender]
            await self._node.send(request.sender, DataShare(value=share))

    async def _answer_for_models(self) -> None:
        while True:
            request = await self._node.recv("model_request")
            if self._sent is not None and self.has_sent(request.round):  # else ``send_model`` will send it
                share = self._sent[1][request.sender]
                await self._node.send(request.sender, ModelShare(value=share, round=request.round))


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
