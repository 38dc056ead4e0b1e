"""The acts of rounds in which all parties take several steps on values that they exchange once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vflsim.learning.batches import Batch
from vflsim.protocols.fedbcd.messages import RoundOver, shared_values_of
from vflsim.recurrences.acts import (
    Activated,
    Acts,
    ClientWork,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToServer,
    embedding,
    trip,
)
from vflsim.streams import party_name
from vflsim.world.messages import Answer, Gradient, Message


def held_acts(server: Any, clients: Mapping[int, Any], client: int, batch: Batch, steps: int, further: int) -> Acts:
    """Return an embedding up, a gradient down, ``steps`` along it, and ``further`` ones of the server."""
    embed, up = embedding(clients, client, batch)
    serve = server.server_step([up])
    down = Gradient(value=serve.result.gradient_for(up), round=0)
    later = (ServerWork(server.local_step([up])),) * further
    return Activated(), *trip(embed, up, serve, down), *steps_on(clients[client], batch, down, steps), *later


def sharing_acts(
    server: Any,
    clients: Mapping[int, Any],
    client: int,
    batch: Batch,
    steps: int,
    further: int,
    own: bool = True,
    each: Mapping[int, int] | None = None,
) -> Acts:
    """Return an embedding up, all values down (``own``: the client's, too), and the steps of both.

    ``each`` tells how many of the ``steps`` every client takes, where they take different numbers.
    """
    sent = {each: embedding(clients, each, batch) for each in clients}
    messages = [message for _, message in sent.values()]
    serve = server.sharing_step(messages)
    passed_on = [message for message in messages if own or message.sender != client]
    down = shared_values_of(serve.result, passed_on, 0)
    operation, up = sent[client]
    names = tuple(party_name(message.sender) for message in passed_on)
    later = (ServerWork(server.local_step(messages)),) * further
    taken = steps_on(clients[client], batch, down, steps, each)
    return Activated(), *trip(operation, up, serve, down, names), *taken, *later


def turn_acts(server: Any, clients: Mapping[int, Any], client: int, batch: Batch, steps: int, further: int) -> Acts:
    """Return an embedding up; in turn a gradient down, ``steps``, and an answer up; the server's steps; the end."""
    embed, up = embedding(clients, client, batch)
    give = server.gradient([up], client)
    down = Gradient(value=give.result, round=0)
    answer = clients[client].answer(batch)
    back = Answer(batch, answer.result, round=0)
    taken = *steps_on(clients[client], batch, down, steps), ClientWork(answer), ToServer(back)
    turns = InTurn((ServerWork(give), ToClients(down), *taken))
    own = *(ServerWork(server.local_step([up])),) * further, ServerWork(server.server_step([up]))
    exchange = Activated(), ClientWork(embed), ToServer(up), ServerWaits()
    return *exchange, turns, *own, ToClients(RoundOver(round=0))


def steps_on(learner: Any, batch: Batch, received: Message, count: int, each: Mapping[int, int] | None = None) -> Acts:
    """Return a client's steps on what it has received: all but the first repeat the forward pass.

    ``each`` tells how many of the ``count`` every client takes, where they take different numbers.
    """
    first, again = ClientWork(learner.client_step(batch, received)), learner.step_again(batch, received)
    if each is None:
        return first, *(ClientWork(again),) * (count - 1)
    by = [frozenset(client for client, steps in each.items() if steps > number) for number in range(1, count)]
    return first, *(ClientWork(again, some if len(some) < len(each) else None) for some in by)
