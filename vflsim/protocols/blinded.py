"""Blinding in a protocol: the key agreement before the first round, and rounds whose masks do not cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vflsim.errors import IncompleteRoundError, NoProgressError
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.privacy.blinding import KEY_BYTES, public_key
from vflsim.streams import few, party_name
from vflsim.vocabulary.on_demand import Tensor, dtype, torch
from vflsim.world.messages import Gradient, Message
from vflsim.world.node import Node
from vflsim.world.record import GIVEN_UP_IN_A_ROW

MISSING_MASKS = "missing_masks"
"""The table of rounds with missing embeddings."""


@dataclass(slots=True, eq=False)
class PublicKey(Message):
    """A client's public key, 32 bytes."""

    kind: ClassVar[str] = "public_key"


@dataclass(slots=True, eq=False)
class PublicKeys(Message):
    """The public keys of all clients in client order, (clients, 32) bytes."""

    kind: ClassVar[str] = "public_keys"


def blinds(node: Node) -> bool:
    """Return whether the clients of this run blind their embeddings."""
    return node.learner.held.blinded_sum is not None


async def relay_keys(node: Node) -> None:
    """Server: with blinding, send the public keys of all clients to each client before the first round.

    A client that crashes before it receives them sends its own key again, and the server repeats its answer.
    """
    if not blinds(node):
        return
    messages = await node.gather("public_key", senders=node.clients)
    joined = await node.free().compute(join_keys(node.learner, messages))
    keys = PublicKeys(value=joined)
    for client in node.clients:
        await node.send(client, keys)
    node.start(_relay_again(node, keys))


async def _relay_again(node: Node, keys: PublicKeys) -> None:
    while True:
        late = await node.recv("public_key")
        await node.send(late.sender, keys)


async def agree_on_keys(node: Node) -> None:
    """Client: with blinding, exchange public keys through the server unless it has them.

    This takes no computing time.
    """
    blinder = node.learner.blinder
    if blinder is None or blinder.agreed:
        return
    key = await node.free().compute(make_public_key(node.learner))
    await node.upload("server", PublicKey(value=key))
    keys = await node.recv("public_keys")
    await node.free().compute(take_keys(node.learner, keys))


async def of_all(
    node: Node, k: int, arrived: Sequence[Message] | None = None, kind: str = "embedding"
) -> list[Message]:
    """Server: return the embeddings of all clients for round k; with blinding, none if the round is over without them.

    ``arrived`` are those that the round would use without blinding (default: messages of ``kind`` of all clients). If
    some are missing, the masks of the others do not cancel, and the scenario's rule ``blinding.missing`` decides what
    happens. With ``skip`` the server gives the round up, and sends every client an empty gradient. Raises
    ``IncompleteRoundError`` and ``NoProgressError`` if no later round can be, or is, completed.
    """
    group = node.learner.held.blinded_sum
    if arrived is None:
        arrived = await node.gather(kind, senders=node.clients, round=k, forgoing=group is not None)
    if group is None:
        return list(arrived)
    here = {each.sender: each for each in arrived}
    if len(here) < len(node.clients):
        here = {each.sender: each for each in node.arrived("embedding", round=k)} | here
    missing = [client for client in node.clients if client not in here]
    if not missing:
        return _summed(node, list(here.values()))
    rule = group.blinding.missing
    node.record(MISSING_MASKS, round=k, clients=missing, rule=rule)
    if rule == "wait":
        return _summed(node, [*here.values(), *await node.gather("embedding", senders=missing, round=k)])
    if rule == "stop":
        node.finish(f"masks left over in round {k}: no embedding of {_named(missing)}")
        return []
    if not here:  # no client is up: wait until one is
        await node.gather("embedding", count=1, senders=node.clients, round=k)
    _skip(node, k, missing)
    for client in node.clients:
        await node.send(client, Gradient(round=k))
    return []


def _summed(node: Node, embeddings: list[Message]) -> list[Message]:
    """Return the embeddings of all clients. Record their sum as a view of the server, which can compute it."""
    values = {each.sender: each.value for each in embeddings if each.value is not None}
    batch, group = embeddings[0].batch, node.learner.held.blinded_sum
    assert batch is not None, "an embedding names its batch"
    node.derive(
        "sum", batch, [*values.values()], lambda: group.total({sender: h.value for sender, h in values.items()})
    )
    return embeddings


def _skip(node: Node, k: int, missing: Sequence[int]) -> None:
    node.skip_round()
    if gone := sorted(node.gone.intersection(missing)):
        many = len(node.clients)
        raise IncompleteRoundError(
            f"round {k} cannot be completed, nor any later one: it needs {many} of {many} clients, and {_named(gone)} "
            "went down for good",
            remedy="give repairs in their availability, or set blinding.missing: stop, or blinding: off",
        )
    if node.given_up >= GIVEN_UP_IN_A_ROW:
        raise NoProgressError(
            f"{node.given_up:,} rounds in a row were given up, the latest without {_named(missing)}",
            allowed="rounds in which no embedding is missing, now and then",
            remedy="set blinding.missing: wait, or a longer deadline",
        )


def _named(clients: Sequence[int]) -> str:
    return few([party_name(client) for client in clients])


def make_public_key(learner: PartyLearner) -> Operation[Handle[Tensor]]:
    """Client: compute its public key, a handle of 32 bytes."""
    key, blinder = learner.promise(KEY_BYTES, dtype=dtype("uint8")), learner.blinder

    def run() -> None:
        assert blinder is not None, "the client blinds its embeddings"
        key.set(torch.frombuffer(bytearray(public_key(blinder.private)), dtype=torch.uint8))

    return learner.operation("public_key", run, key)


def join_keys(learner: PartyLearner, messages: Sequence[Received]) -> Operation[Handle[Tensor]]:
    """Server: put the clients' public keys together, in client order: a handle of (clients, 32) bytes."""
    keys = [message.value for message in sorted(messages, key=lambda message: message.sender)]
    joined = learner.promise(len(keys), KEY_BYTES, dtype=dtype("uint8"))
    return learner.operation(
        "join_keys", lambda: joined.set(torch.stack([key.value for key in keys])), joined, inputs=keys
    )


def take_keys(learner: PartyLearner, message: Received) -> Operation[None]:
    """Client: take the public keys of all clients, and so agree on a secret with each of them."""
    blinder, keys = learner.blinder, message.value
    assert blinder is not None, "the client blinds its embeddings"

    def commit() -> None:
        blinder.agreed = True

    return learner.operation("take_keys", lambda: blinder.agree(keys.value), None, inputs=[keys], commit=commit)
