"""What a client and the server do in a round on one batch, as data: a recurrence is composed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vflsim.codecs import Codec
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.streams import SERVER, SHARED
from vflsim.tracing.notes import How
from vflsim.world.messages import Embedding, Message
from vflsim.world.wire import specs_of


@dataclass(frozen=True, slots=True)
class Activated:
    """The client waits for its next activation.

    Example::

        Activated() == Activated()  # True
    """


@dataclass(frozen=True, slots=True)
class ClientWork:
    """The client performs an operation, which gives the FLOPs and never runs.

    ``by``: the clients that perform it; None: all.

    Example::

        clients = split_learners(setting, seed=0).clients
        ClientWork(clients[1].embed(Batch(0, np.arange(4)))).operation.kind  # 'embed'
    """

    operation: Operation[Any]
    by: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ClientDelay:
    """The client waits ``factor`` times a draw of its upload delay; each ``purpose`` has its own draws.

    ``round`` is the one that its event names in the first round, -1 for none.

    Example::

        ClientDelay("share", 0.5).factor  # 0.5
    """

    purpose: str
    factor: float = 1.0
    round: int = -1


@dataclass(frozen=True, slots=True)
class ClientSleep:
    """The client waits so many ``seconds``.

    Example::

        ClientSleep(2.0).seconds  # 2.0
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class ServerWork:
    """The server performs an operation, which gives the FLOPs and never runs. One that counts as a round ends it.

    It begins ``ahead`` of so many ``ToClients`` that precede it here, in the same instant.

    Example::

        server = split_learners(setting, seed=0).server
        ServerWork(server.server_step([])).operation.counts  # 'round'
    """

    operation: Operation[Any]
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class ToServer:
    """The client waits its upload delay, and sends a message, which gives the size.

    Example::

        ToServer(Embedding(round=0)).message.kind  # 'embedding'
    """

    message: Message


@dataclass(frozen=True, slots=True)
class ToPeers:
    """Every client sends each other client such a message, and does not wait until it arrives.

    Example::

        ToPeers(Embedding(round=0)).message.kind  # 'embedding'
    """

    message: Message


@dataclass(frozen=True, slots=True)
class ClientsWait:
    """Every client waits until what all others have sent it, last and before the first round, has arrived.

    Example::

        ClientsWait() == ClientsWait()  # True
    """


Late: TypeAlias = Literal["abandoned", "finished"]
"""What becomes of a client's work since it has last waited for the others, if the server goes on without it.

``abandoned``: the server's message ends it, and takes off the links what the client has sent since its activation.
``finished``: the client takes up the message when it has sent its own; if it still waits for others, it gives up.
"""


@dataclass(frozen=True, slots=True)
class ToClients:
    """The server sends every client such a message, and does not wait until it arrives.

    ``passed_on`` names the tensors in it that keep the bytes with which clients have sent them. ``late`` says what it
    does to clients for which the server has not waited; it is needed where the server has not waited for all. A client
    that is ``busy`` may still work when it comes, and takes it up afterwards.

    Example::

        ToClients(Gradient(round=0)).passed_on  # ()
    """

    message: Message
    passed_on: tuple[str, ...] = ()
    late: Late | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class ServerWaits:
    """The server waits until what clients have sent last has arrived: of all, a barrier, or of the first ``count``.

    ``how`` it waits for all: at once, for each beside the others, or for one after the other. Of a ``count`` clients
    work on since their last ``ClientsWait``, and a ``ToClients`` that says what becomes of ``late`` ones follows.

    Example::

        ServerWaits() == ServerWaits(count=None)  # True
    """

    count: int | None = None
    how: How = ""


@dataclass(frozen=True, slots=True)
class InTurn:
    """Client after client, in client order, the server and the client do these acts; the server waits for each.

    It begins with the server's acts, and ends with a message to the server.

    Example::

        turn = InTurn((ToClients(Gradient(round=0)), ToServer(Embedding(round=0))))
        [act.message.kind for act in turn.acts]  # ['gradient', 'embedding']
    """

    acts: Acts


Act: TypeAlias = (
    Activated
    | ClientWork
    | ClientDelay
    | ClientSleep
    | ServerWork
    | ToServer
    | ToClients
    | ToPeers
    | ClientsWait
    | ServerWaits
    | InTurn
)
Acts: TypeAlias = tuple[Act, ...]
"""The acts of one client and of the server in a round. Each party does its own in this order.

A message is received before the next act of its receiver, by a client at once, by the server where it waits.

Example::

    learners, batch = split_learners(setting, seed=0), Batch(0, np.arange(4))
    embed = learners.clients[1].embed(batch)
    up = Embedding(batch, embed.result, round=0)
    up.sender = 1
    serve = learners.server.server_step([up])
    down = Gradient(value=serve.result.gradient_for(up), round=0)
    step = learners.clients[1].client_step(batch, down)
    acts = (ClientWork(embed), ToServer(up), ServerWaits(), ServerWork(serve), ToClients(down), ClientWork(step))
    acts[3].operation.kind, acts[3].operation.counts  # ('server_step', 'round')
"""

MakeActs: TypeAlias = Callable[[Any, Mapping[int, Any], int, Batch], Acts]
"""Makes the acts of a client from the server's learner, the clients' learners, the client's number, and a batch.

Without clients, the number is the server's.
"""


def bytes_of(act: Act, codec: Codec, client: int) -> int:
    """Count the bytes of the message of an act, from or to a client."""
    assert isinstance(act, ToServer | ToClients | ToPeers)
    message, there, up = act.message, specs_of(act.message), codec.towards(SERVER)
    ids = 0 if message.batch is None or message.batch.origin == SHARED else len(message.batch.ids)
    towards = up if isinstance(act, ToServer) else codec.towards(client)
    names = act.passed_on if isinstance(act, ToClients) else ()
    passed_on = {name: up for name in names if name in there}
    return towards.size_of(there, ids, passed_on) if passed_on else towards.size_of(there, ids)


def embedding(clients: Mapping[int, Any], client: int, batch: Batch) -> tuple[Operation[Any], Embedding]:
    """Return a client's operation ``embed``, and the message with its result."""
    operation: Operation[Any] = clients[client].embed(batch)
    message = Embedding(batch, operation.result, round=0)
    message.sender = client
    return operation, message


def trip(
    work: Operation[Any], up: Message, serve: Operation[Any], down: Message, passed_on: tuple[str, ...] = ()
) -> Acts:
    """Return one trip: the client works and sends, the server waits for all, works, and sends."""
    return ClientWork(work), ToServer(up), ServerWaits(), ServerWork(serve), ToClients(down, passed_on)
