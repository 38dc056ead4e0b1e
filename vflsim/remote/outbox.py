"""A client's end of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from typing_extensions import override

from vflsim.errors import ProtocolError
from vflsim.remote.channel import Channel
from vflsim.remote.control import Passing, Withdrawn
from vflsim.remote.peers import numbered
from vflsim.streams import SERVER, party_name
from vflsim.world.messages import Message
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Transport


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
