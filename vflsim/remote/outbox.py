"""A client's end of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from typing_extensions import override

from vflsim.remote.channel import Channel
from vflsim.remote.control import Withdrawn
from vflsim.world.messages import Message
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Transport


class Outbox(Transport):
    """A client's end of the network: messages leave at once, and the server's process emulates their way.

    Invariant: the n-th message sent here is the n-th that the server counts.
    """

    def __init__(self, channel: Channel, pack: Callable[[Message], bytes]) -> None:
        self._channel, self._pack = channel, pack
        self._sent = 0

    @override
    def send(self, message: Message, size: int, deliver: Callable[[Message], None]) -> Transfer:
        transfer = Transfer()
        transfer.message, transfer.size, transfer.state = message, size, "moving"
        transfer.place = self._sent
        self._sent += 1
        self._channel.message(self._pack(message), timed=True)
        return transfer

    @override
    def abandon(self, transfer: Transfer) -> None:
        if transfer.under_way:
            transfer.state = "abandoned"
            self._channel.control(Withdrawn(number=transfer.place))

    @override
    def close(self) -> None:
        """Do nothing: the server accounts for what the end of the run cuts short."""

    @override
    def under_way(self) -> Iterator[Message]:
        return iter(())
