"""Ways of messages: to the server, which emulates them, and between clients, whose bytes go directly."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from vflsim.errors import ProtocolError
from vflsim.protocol import SERVER, Message, party_name
from vflsim.remote.channel import MOST_WAITING, Channel
from vflsim.remote.control import Control, ControlError, Dropped, IsDue, Passing, Withdrawn
from vflsim.remote.frames import extra_fields
from vflsim.worlds import Transfer, Transport, World


class Outbox(Transport):
    """A client's end of the network: messages leave at once, and the server's process emulates their way.

    Messages to another client go to it by ``to_peer`` (receiver, body), if there are connections; the server gets to
    know what it needs to time them, and no content. Invariant: messages have the numbers, from ``first`` on, that the
    server counts.
    """

    def __init__(
        self,
        channel: Channel,
        pack: Callable[[Message], bytes],
        to_peer: Callable[[int, bytes], None] | None = None,
        first: int = 0,
    ) -> None:
        self._channel, self._pack, self._to_peer = channel, pack, to_peer
        self._sent = first

    @override
    def send(self, message: Message, size: int, deliver: Callable[[Message], None]) -> Transfer:
        transfer = Transfer()
        transfer.message, transfer.size, transfer.state = message, size, "moving"
        transfer.place = self._sent
        self._sent += 1
        if message.receiver == SERVER:
            self._channel.message(self._pack(message), timed=True)
        else:
            self._pass(message, size, transfer.place)
        return transfer

    def _pass(self, message: Message, size: int, number: int) -> None:
        if self._to_peer is None:
            raise unconnected(message)
        passing = Passing(to=message.receiver, message=message.kind, round=message.round, size=size, at=message.sent)
        self._channel.control(passing)
        self._to_peer(message.receiver, numbered(number, self._pack(message)))

    @override
    def abandon(self, transfer: Transfer) -> None:
        if transfer.under_way:
            transfer.state = "abandoned"
            self._channel.control(Withdrawn(number=transfer.place))

    @override
    def shut(self, party: int) -> None:
        """Do nothing: the server's end of the network loses what is sent from and to a party that is down."""

    open = lose = shut

    @override
    def close(self) -> None:
        """Do nothing: the server accounts for what the end of the run cuts short."""

    @override
    def under_way(self) -> Iterator[Message]:
        return iter(())


def unconnected(message: Message) -> ProtocolError:
    """Return the error for a message to another client in a protocol that says nothing of such messages."""
    what = f"a {message.kind!r} message to {party_name(message.receiver)}, to which there is no connection"
    return ProtocolError(what, allowed="messages to the server; with the capability Peering also to clients")


MOST_UNDER_WAY = 64
"""Messages of a client that may be under way to each of the other parties."""


class ClientTransfers:
    """Puts what clients send on its emulated way, in the order in which each of them has sent it.

    ``arrive`` takes a message for the server that has arrived; ``tell`` sends a client a control message: of a message
    between clients, whose bytes go directly, when it is due, or that it is not. ``crashes`` counts those of each
    client. Invariants: what a client has sent before a crash, and what comes after it, is lost, with its draw; at most
    ``MOST_UNDER_WAY`` messages to a party are under way from a client, on average.
    """

    def __init__(
        self,
        world: World,
        transport: Transport,
        clients: tuple[int, ...],
        crashes: Mapping[int, int],
        arrive: Callable[[Message], None],
        tell: Callable[[int, Control], None],
    ) -> None:
        self._world, self._transport, self._crashes, self._arrive, self._tell = world, transport, crashes, arrive, tell
        self._under_way: dict[int, dict[int, Transfer]] = {client: {} for client in clients}
        self._count = dict.fromkeys(clients, 0)
        self._lives = dict.fromkeys(clients, 0)

    def carry(self, message: Message, size: int) -> None:
        """Put a message that a client has sent now on its way: to the server, or to another client."""
        client = message.sender
        message.sent = self._world.instant
        under_way, number = self._under_way[client], self._count[client]
        for old in [old for old, transfer in under_way.items() if not transfer.under_way]:
            del under_way[old]
        if len(under_way) >= (most := MOST_UNDER_WAY * len(self._count)):
            what = (
                f"{party_name(client)} sent a {message.kind!r} message of round {message.round}, and {most} before it"
            )
            raise ControlError(f"{what} are under way", allowed=f"{most} messages under way")
        if self._lives[client] < self._crashes.get(client, 0):
            transfer = self._transport.send_lost(message, size)
        else:
            arrive = self._arrive if message.receiver == SERVER else partial(self._is_due, number)
            transfer = self._transport.send(message, size, arrive)
        under_way[number] = transfer
        self._count[client] += 1
        if transfer.state == "lost":
            self._drop(number, message)

    def under_way(self) -> Iterator[Message]:
        """Yield the messages under way from clients."""
        for under_way in self._under_way.values():
            yield from (transfer.message for transfer in under_way.values() if transfer.under_way)

    def withdraw(self, client: int, number: int) -> None:
        """Abandon the ``number``-th message of a client if it is still under way."""
        transfer = self._under_way[client].pop(number, None)
        if transfer is None:
            return
        self._transport.abandon(transfer)
        if transfer.state == "abandoned":
            self._drop(number, transfer.message)

    def drop_lost(self) -> None:
        """Tell clients which messages between them a crash has lost."""
        for under_way in self._under_way.values():
            for number in [number for number, transfer in under_way.items() if transfer.state == "lost"]:
                self._drop(number, under_way.pop(number).message)

    def next_life(self, client: int) -> None:
        """Note that a client has crashed: what it sends from now on is of its next life."""
        self._lives[client] += 1

    def begin_again(self, client: int, first: int) -> None:
        """Count a client's messages from ``first``: another process has taken the place of the former one."""
        self._under_way[client].clear()
        self._count[client], self._lives[client] = first, self._crashes.get(client, 0)

    def _is_due(self, number: int, message: Message) -> None:
        """Tell a client that a message has arrived, which it has got directly."""
        self._tell(message.receiver, IsDue(sender=message.sender, number=number, at=self._world.instant))

    def _drop(self, number: int, message: Message) -> None:
        """Tell a client that a message will not arrive, which it gets directly."""
        if message.receiver != SERVER:
            self._tell(message.receiver, Dropped(sender=message.sender, number=number))


def stand_in(passing: Passing, sender: int, kinds: Mapping[str, type[Message]], clients: frozenset[int]) -> Message:
    """Return a message without content in place of one that goes to another of the ``clients`` directly.

    Raises ``ControlError`` for a message that cannot be.
    """
    made_of = kinds.get(passing.message)
    if made_of is None or passing.to not in clients - {sender}:
        what = f"a {passing.message!r} message to party {passing.to}, of which only the time is asked"
        raise ControlError(what, allowed="a kind of this protocol, to another client")
    fields: dict[str, Any] = {field.name: 0 for field in extra_fields(made_of)}
    message = made_of(round=passing.round, **fields)
    message.sender, message.receiver = sender, passing.to
    return message


_NUMBER = struct.Struct("<Q")
"""Before a message to another client: its number among all that its sender has sent in the run."""


LIFE = 2**32
"""The n-th new process of a client numbers its messages from n times this on."""


Key = tuple[int, int]
"""Sender and number of a message."""


def numbered(number: int, body: bytes) -> bytes:
    """Return the body of a frame to another client."""
    return _NUMBER.pack(number) + body


class PeerMail:
    """Messages from other clients that wait for their emulated time, or hand on at once what is not ``emulated``.

    ``read`` gives the message from a sender in a body, and its sender's instant (s); ``deliver`` takes it at an
    instant, ``deliver_free`` one that takes no time. Invariants: a message is handed on once, when both its bytes and
    its time have come; one that was abandoned on its emulated way is never handed on; at most ``MOST_WAITING`` bytes
    of a sender wait for their time. What a sender's former process has left without a time is forgotten when the server
    speaks of its new one's messages.
    """

    def __init__(
        self,
        read: Callable[[int, bytes], tuple[Message, float]],
        deliver: Callable[[Message, float], None],
        deliver_free: Callable[[Message, float], None],
        emulated: bool,
    ) -> None:
        self._read, self._deliver, self._deliver_free, self._emulated = read, deliver, deliver_free, emulated
        self._waiting: dict[Key, tuple[Message, int]] = {}
        self._bytes: Counter[int] = Counter()
        self._known: dict[Key, float | None] = {}
        self._latest: dict[int, int] = {}
        self._lives: dict[int, int] = {}

    def came(self, sender: int, timed: bool, body: bytes) -> None:
        """Take a frame from another client. Raises ``ControlError`` and ``DataError`` for what cannot be used."""
        if not timed:
            self._deliver_free(*self._read(sender, body))
            return
        if len(body) < _NUMBER.size:
            raise ControlError(f"a message of {len(body)} bytes between clients")
        (number,) = _NUMBER.unpack_from(body)
        latest = self._latest.get(sender, -1)
        if number <= latest:
            raise ControlError(f"message {number} after message {latest}", allowed="ascending numbers")
        self._latest[sender] = number
        message, at = self._read(sender, body[_NUMBER.size :])
        key = sender, number
        if not self._emulated:
            self._deliver(message, at)
        elif key in self._known:
            if (due := self._known.pop(key)) is not None:
                self._deliver(message, due)
        else:
            self._waiting[key] = message, len(body)
            self._bytes[sender] += len(body)
            if self._bytes[sender] > MOST_WAITING:
                raise ControlError(f"{self._bytes[sender]} bytes wait for their time", allowed=f"{MOST_WAITING}")

    def crash(self) -> None:
        """Lose the messages that have arrived in emulated time, and whose bytes are still to come."""
        self._known = dict.fromkeys(self._known)

    def take(self, word: IsDue | Dropped) -> None:
        """Take the server's word on a message from another client."""
        key, at = (word.sender, word.number), word.at if isinstance(word, IsDue) else None
        if (life := word.number // LIFE) > self._lives.get(word.sender, 0):
            self._forget_before(word.sender, life)
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            self._known[key] = at
            return
        message, size = waiting
        self._bytes[word.sender] -= size
        if at is not None:
            self._deliver(message, at)

    def _forget_before(self, sender: int, life: int) -> None:
        """Forget messages of a client's former processes: no word on them will come, or none of their bytes."""
        self._lives[sender] = life
        for key in [key for key in self._waiting if key[0] == sender and key[1] < life * LIFE]:
            self._bytes[sender] -= self._waiting.pop(key)[1]
        for key in [key for key in self._known if key[0] == sender and key[1] < life * LIFE]:
            del self._known[key]
