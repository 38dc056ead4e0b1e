"""Coded answers to queries about rows that nobody has shared before.

The paper describes training alone. Here a query repeats what a round does (FedVS Alg. 1), on new rows: every client
shares its features of them, computes on all clients' shares, and uploads. The shares of the final models have been
exchanged before the first query, since models do not change any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vflsim.learning.execution.operations import Handle, Operation, nothing
from vflsim.protocols.answering import InferenceQuery, Reply
from vflsim.protocols.fedvs.keys import CodedKeys
from vflsim.protocols.fedvs.learning.plan import CodingPlan, flops
from vflsim.world.messages import Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class QueryShare(Message):
    """A share of a client's features of the rows of query number ``round``, (rows of a segment, columns)."""

    kind: ClassVar[str] = "query_share"


async def coded_reply(keys: CodedKeys, node: Node, query: InferenceQuery) -> None:
    """Client: share the features of the rows; when all shares are here, compute on them and upload (Eq. 2, 5)."""
    plan: CodingPlan = node.learner.plan
    places, element = -(-query.rows // plan.segments), plan.quantiser.field.wire_dtype
    peers = [client for client in node.clients if client != node.party]
    await node.compute(_made(node, "share_data", plan.data_sharing_products(node.party, places)))
    await node.delay("share", keys.sharing_factor(plan), round=query.number)
    for peer in peers:
        share: Handle[Any] = Handle((places, plan.columns[node.party]), element)
        await node.send(peer, QueryShare(value=share, round=query.number))
    shares = await node.gather("query_share", senders=peers, round=query.number, forgoing=True)
    if len(shares) < len(peers):  # somebody is down for good: the sum over all cannot be computed
        await node.send("server", Reply(round=query.number))
        return
    await node.compute(_made(node, "coded_embed", plan.coded_embedding_products(places)))
    await node.upload("server", Reply(value=Handle((places, plan.embedding), element), round=query.number))


def _made(node: Node, kind: str, products: float) -> Operation[None]:
    """Make an operation of ``products`` multiplications, as its cost alone."""
    units = node.learner.plan.units(node.party, products)
    return Operation(kind, node.party, nothing, None, units=units, cost=lambda *_: flops(products), inputs=())
