"""The server's side of a coded round: collect the fastest answers, announce new sharers when shares are lost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from vflsim.errors import IncompleteRoundError, NoProgressError
from vflsim.learning.execution.operations import Handle, Operation, nothing
from vflsim.protocols.answering import InferenceQuery, Reply
from vflsim.protocols.fedvs.keys import CodedKeys
from vflsim.protocols.fedvs.learning.plan import CodingPlan, flops
from vflsim.protocols.fedvs.messages import Sharers
from vflsim.streams import party_name
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.record import GIVEN_UP_IN_A_ROW


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
        """Send every client the sharers of the sum."""
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
