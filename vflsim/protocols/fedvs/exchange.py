"""The exchange of shares between clients, which also works if some clients crash during it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from vflsim.errors import IncompleteRoundError, NoProgressError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, nothing
from vflsim.protocols.answering import InferenceQuery, Reply
from vflsim.protocols.fedvs.keys import CodedKeys
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
from vflsim.protocols.fedvs.plan import CodingPlan, flops
from vflsim.streams import party_name
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.record import GIVEN_UP_IN_A_ROW

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


class Answers:
    """Collects the coded embeddings of each round.

    Invariant: the answers of a round are sums over the same sharers. If clients report lost shares, the server
    announces a smaller set of sharers, and collects again.
    """

    def __init__(self, protocol: CodedKeys, node: Node) -> None:
        self._protocol, self._node = protocol, node

    async def fastest(self, k: int) -> tuple[list[Message], tuple[int, ...]]:
        """Return the first R coded embeddings of the same sum (fewer at the deadline), and its sharers."""
        node, protocol = self._node, self._protocol
        until = None if protocol.deadline is None else node.now + protocol.deadline
        sharers = Sharers(clients=node.clients, round=k)
        if protocol.sharers is not None:
            shared = await node.gather("shared", protocol.sharers, node.clients, round=k, timeout=protocol.deadline)
            if len(shared) < protocol.sharers:
                return [], node.clients
            node.arrived("missing", round=k)  # the announcement answers them, too
            sharers = await self._announce(sharers, [message.sender for message in shared])
        embeddings: dict[int, Message] = {}
        while (needed := protocol.threshold - len(embeddings)) > 0:
            timeout = None if until is None else max(0.0, until - node.now)
            async with node.until("missing", round=k):
                slower = [client for client in node.clients if client not in embeddings]
                arrived = await node.gather("coded_embedding", needed, slower, round=k, timeout=timeout)
                embeddings |= {message.sender: message for message in arrived if message.clients == sharers.clients}
                if len(arrived) < needed:
                    break  # deadline
            for message in node.arrived("missing", round=k):
                if not set(message.clients).isdisjoint(sharers.clients):
                    others = [client for client in sharers.clients if client not in message.clients]
                    sharers = await self._announce(sharers, others or node.clients)
                    embeddings.clear()
                elif not message.clients and sharers.number > 0:
                    await node.send(message.sender, sharers)
        return list(embeddings.values()), sharers.clients

    async def _announce(self, before: Sharers, clients: Collection[int]) -> Sharers:
        node = self._node
        sharers = Sharers(clients=tuple(sorted(clients)), round=before.round, number=before.number + 1)
        node.record("sharers", round=sharers.round, sharers=list(sharers.clients))
        for client in node.clients:
            await node.send(client, sharers)
        return sharers

    def give_up(self, k: int, embeddings: Collection[Message]) -> None:
        """End the run, or skip the round. Raises RunErrors if no later round can be, or is, completed."""
        node, protocol = self._node, self._protocol
        node.record("given_up", round=k, responders=len(embeddings), threshold=protocol.threshold)
        if protocol.too_few == "stop":
            node.finish("too few survivors")
            return
        needed = max(protocol.threshold, protocol.sharers or 0)
        if len(node.clients) - len(node.gone) < needed:
            raise IncompleteRoundError(
                f"round {k} cannot be completed, nor any later one: it needs {needed} of {len(node.clients)} clients, "
                f"and {', '.join(map(party_name, sorted(node.gone)))} went down for good",
                remedy="give repairs in their availability, lower K, T or sharers, or set too_few: stop",
            )
        node.skip_round()
        if node.given_up >= GIVEN_UP_IN_A_ROW:
            raise NoProgressError(
                f"{node.given_up:,} rounds in a row were given up, the latest after deadline: {protocol.deadline:g} s "
                f"with {len(embeddings)} of {protocol.threshold} answers",
                allowed="a deadline that some rounds meet",
                remedy="a longer deadline",
            )


# --- replies of clients -----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class QueryShare(Message):
    """A share of a client's features of the rows of query number ``round``, (rows of a segment, columns)."""

    kind: ClassVar[str] = "query_share"


async def coded_reply(keys: CodedKeys, node: Node, query: InferenceQuery) -> None:
    """Client: share the features of the rows; when all shares are here, compute on them and upload (Eq. 2, 5)."""
    plan: CodingPlan = node.learner.plan
    places, element = -(-query.rows // plan.segments), plan.quantiser.field.wire_dtype
    peers = [client for client in node.clients if client != node.party]
    await node.compute(_operation(node, "share_data", plan.data_sharing_products(node.party, places)))
    await node.delay("share", keys.sharing_factor(plan), round=query.number)
    for peer in peers:
        share: Handle[Any] = Handle((places, plan.columns[node.party]), element)
        await node.send(peer, QueryShare(value=share, round=query.number))
    shares = await node.gather("query_share", senders=peers, round=query.number, forgoing=True)
    if len(shares) < len(peers):  # somebody is down for good: the sum over all cannot be computed
        await node.send("server", Reply(round=query.number))
        return
    await node.compute(_operation(node, "coded_embed", plan.coded_embedding_products(places)))
    await node.upload("server", Reply(value=Handle((places, plan.embedding), element), round=query.number))


def _operation(node: Node, kind: str, products: float) -> Operation[None]:
    """Make an operation of ``products`` multiplications, as its cost alone."""
    units = node.learner.plan.units(node.party, products)
    return Operation(kind, node.party, nothing, None, units=units, cost=lambda *_: flops(products), inputs=())
