"""What a client and the server do in a round on one batch, as data: a recurrence is composed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.world.messages import Embedding, Gradient, Message


@dataclass(frozen=True, slots=True)
class Acts:
    """The operations and messages of one client's round. They give sizes and FLOPs, and never run.

    The client does ``embed`` and sends ``up``; the server's ``serve`` ends the round, ``down`` goes back, and the
    client takes its ``steps``, all of one kind, while the server takes ``further`` ones, all of one kind. ``passed_on``
    names the tensors in ``down`` that keep the bytes with which clients have sent them.

    Example::

        learners, batch = split_learners(setting, seed=0), Batch(0, np.arange(4))
        embed = learners.clients[1].embed(batch)
        up = Embedding(batch, embed.result, round=0)
        up.sender = 1
        serve = learners.server.server_step([up])
        down = Gradient(value=serve.result.gradient_for(up), round=0)
        acts = Acts(embed, up, serve, down, (learners.clients[1].client_step(batch, down),))
        acts.embed.kind, acts.serve.kind, len(acts.steps)  # ('embed', 'server_step', 1)
    """

    embed: Operation[Any]
    up: Message
    serve: Operation[Any]
    down: Message
    steps: tuple[Operation[Any], ...]
    further: tuple[Operation[Any], ...] = ()
    passed_on: tuple[str, ...] = ()


MakeActs: TypeAlias = Callable[[Any, Mapping[int, Any], int, Batch], Acts]
"""Makes the acts of a client from the server's learner, the clients' learners, the client's number, and a batch."""


def embedding(clients: Mapping[int, Any], client: int, batch: Batch) -> tuple[Operation[Any], Embedding]:
    """Return a client's operation ``embed``, and the message with its result."""
    operation: Operation[Any] = clients[client].embed(batch)
    message = Embedding(batch, operation.result, round=0)
    message.sender = client
    return operation, message


def split_acts(server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
    """Return the acts of plain split training: an embedding up, a gradient down, and a step."""
    embed, up = embedding(clients, client, batch)
    serve = server.server_step([up])
    down = Gradient(value=serve.result.gradient_for(up), round=0)
    return Acts(embed, up, serve, down, (clients[client].client_step(batch, down),))
