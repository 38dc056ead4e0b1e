"""The acts of rounds in which all parties take several steps on values that they exchange once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vflsim.learning.batches import Batch
from vflsim.tracing.acts import (
    Activated,
    Acts,
    ClientWork,
    ServerWork,
    embedding,
    trip,
)
from vflsim.world.messages import Gradient, Message


def held_acts(server: Any, clients: Mapping[int, Any], client: int, batch: Batch, steps: int, further: int) -> Acts:
    """Return an embedding up, a gradient down, ``steps`` along it, and ``further`` ones of the server."""
    embed, up = embedding(clients, client, batch)
    serve = server.server_step([up])
    down = Gradient(value=serve.result.gradient_for(up), round=0)
    later = (ServerWork(server.local_step([up])),) * further
    return Activated(), *trip(embed, up, serve, down), *steps_on(clients[client], batch, down, steps), *later


def steps_on(learner: Any, batch: Batch, received: Message, count: int, each: Mapping[int, int] | None = None) -> Acts:
    """Return a client's steps on what it has received: all but the first repeat the forward pass.

    ``each`` tells how many of the ``count`` every client takes, where they take different numbers.
    """
    first, again = ClientWork(learner.client_step(batch, received)), learner.step_again(batch, received)
    if each is None:
        return first, *(ClientWork(again),) * (count - 1)
    by = [frozenset(client for client, steps in each.items() if steps > number) for number in range(1, count)]
    return first, *(ClientWork(again, some if len(some) < len(each) else None) for some in by)
