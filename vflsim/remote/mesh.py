"""A client's connections to all other clients, for protocols whose clients send each other messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vflsim.errors import RunError
from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel, LostError, connected
from vflsim.remote.control import Control, ControlError, Hello, Joined, Peer
from vflsim.streams import party_name

OnMessage = Callable[[int, bool, bytes], None]


class Mesh:
    """Connects a client to others: once, in the first run that needs them, for all runs.

    Invariants: of two clients, the one with the higher number connects; each end shows a certificate that names its
    party, and speaks for this party alone; who else comes to the port is refused, as by the server. What a client has
    sent in one run is not read in another. A lost connection is not made again: runs that need it fail.
    """

    def __init__(self, identity: Path, hello: Hello, clients: int, most: int, timeout: float) -> None:
        self._identity, self._hello, self._most, self._timeout = identity, hello, most, timeout
        higher = frozenset(range(hello.party + 1, clients + 1))
        self._gate = Admission(identity, higher, hello.common, most, timeout)
        self._channels: dict[int, Channel] = {}
        self._joined: dict[int, Joined] = {}
        self._run: Joined | None = None
        self._on_message: OnMessage | None = None
        self._on_lost: Callable[[RunError], None] | None = None
        self._lost: RunError | None = None
        self._changed = asyncio.Event()
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen for clients with higher numbers; port 0 chooses a free one. Raises ``RunError``."""
        self.port = await self._gate.open(host, port)

    async def join(self, peers: Mapping[int, Peer], run: Joined) -> None:
        """Connect to these clients where that has not been done, and wait until all of them are in the same run.

        Raises ``RunError`` that names a client who cannot be reached, or does not come.
        """
        self._run = run
        try:
            for peer, place in sorted(peers.items()):
                if peer < self._hello.party and peer not in self._channels:
                    arguments = place.host, place.port, self._identity, self._hello, self._most, self._timeout
                    self._add(await connected(*arguments, peer))
            await self._gate.all_here(self._timeout, frozenset(peers) & self._gate.clients)
        except LostError as error:
            raise RunError(error.what, remedy=error.remedy) from error
        for peer in peers:
            if peer not in self._channels:
                self._add(self._gate.channels[peer])
            self._channels[peer].control(run)
        await self._all_joined(frozenset(peers), run)

    async def _all_joined(self, peers: frozenset[int], run: Joined) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                while self._lost is None and (absent := [each for each in peers if self._joined.get(each) != run]):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            names = ", ".join(map(party_name, sorted(absent)))
            raise RunError(f"{names} did not join the run within {self._timeout:.0f} s") from None
        if self._lost is not None:
            raise self._lost

    def attend(self, on_message: OnMessage, on_lost: Callable[[RunError], None]) -> None:
        """Hand on what comes in the run that was joined last: (sender, timed, body), and what ended a connection."""
        self._on_message, self._on_lost = on_message, on_lost
        if self._lost is not None:
            on_lost(self._lost)

    def leave(self) -> None:
        """Hand on nothing more: the run is over."""
        self._run = self._on_message = self._on_lost = None

    def send(self, peer: int, body: bytes, timed: bool) -> None:
        """Send a message of the protocol to another client of the run."""
        self._channels[peer].message(body, timed)

    async def close(self) -> None:
        """End all connections, and listen no longer."""
        self.leave()
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        await self._gate.close()

    def _add(self, channel: Channel) -> None:
        peer = channel.peer
        self._channels[peer] = channel
        channel.attend(partial(self._control, peer), self._lose, partial(self._message, peer))

    def _control(self, peer: int, message: Control) -> None:
        if not isinstance(message, Joined):
            raise ControlError(f"a {message.kind!r} message between clients")
        self._joined[peer] = message
        self._changed.set()

    def _message(self, peer: int, timed: bool, body: bytes) -> None:
        if self._on_message is not None and self._joined.get(peer) == self._run:
            self._on_message(peer, timed, body)

    def _lose(self, error: LostError) -> None:
        self._lost = self._lost or RunError(error.what, remedy=error.remedy)  # the server decides what comes of it
        self._changed.set()
        if self._on_lost is not None:
            self._on_lost(self._lost)
