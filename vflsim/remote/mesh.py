"""A client's connections to all other clients, for protocols whose clients send each other messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vflsim.errors import RunError
from vflsim.protocol import party_name
from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel, GoneError, LostError, RefusedError, connected
from vflsim.remote.control import Control, ControlError, Hello, Joined, Peer

OnMessage = Callable[[int, bool, bytes], None]


_AGAIN_S = 0.1
"""Seconds until a client that comes back asks again for a connection whose former one still ends."""


class Mesh:
    """Connects a client to others: once, in the first run that needs them, for all runs.

    Invariants: of two clients, the one with the higher number connects, and one that has come back connects to all;
    each end shows a certificate that names its party, and speaks for this party alone; who else comes to the port is
    refused, as by the server. What a client has sent in one run is not read in another. The end of a connection ends
    the run, unless the client at the other end may return: then its new process connects. If the server does not say
    within ``timeout`` seconds that this client is away, the way to it is broken, and the run ends as well.
    """

    def __init__(self, identity: Path, hello: Hello, clients: int, most: int, timeout: float) -> None:
        self._identity, self._hello, self._most, self._timeout = identity, hello, most, timeout
        others = frozenset(range(1, clients + 1)) - {hello.party}
        self._gate = Admission(identity, others, hello.common, most, timeout)
        self._gate.on_come = self._attend_to
        self._joined: dict[int, Joined] = {}
        self._run: Joined | None = None
        self._on_message: OnMessage | None = None
        self._on_lost: Callable[[RunError], None] | None = None
        self._lost: RunError | None = None
        self._changed = asyncio.Event()
        self._away: set[int] = set()
        self._ends: dict[int, asyncio.TimerHandle] = {}
        """When the lost connections of clients that are not away end the run."""
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen for other clients; port 0 chooses a free one. Raises ``RunError``."""
        self.port = await self._gate.open(host, port)

    async def join(
        self, peers: Mapping[int, Peer], run: Joined, returning: frozenset[int] = frozenset(), again: bool = False
    ) -> frozenset[int]:
        """Connect to these clients where that has not been done, and wait until all of them are in the same run.

        ``returning``: those that may go and return in this run. ``again``: this client has come back, and connects to
        all that are here; it returns those that it could not reach. Raises ``RunError`` that names a client who cannot
        be reached otherwise, or does not come.
        """
        self._run, self._gate.expected = run, set(returning)
        here = {peer: place for peer, place in peers.items() if place.here}
        for peer in here.keys() & self._gate.channels.keys():
            self._gate.channels[peer].control(run)
        unreached: set[int] = set()
        try:
            for peer, place in sorted(here.items()):
                if peer not in self._gate.channels and (again or peer < self._hello.party):
                    try:
                        self._gate.channels[peer] = await self._reached(peer, place, again)
                    except LostError:
                        if not again:
                            raise
                        unreached.add(peer)
                        continue
                    self._attend_to(peer)
            await self._gate.all_here(self._timeout, frozenset(here) - unreached)
        except LostError as error:
            raise RunError(error.what, remedy=error.remedy) from error
        return await self._all_joined(frozenset(here) - unreached, run) | unreached

    async def _reached(self, peer: int, place: Peer, again: bool) -> Channel:
        """Connect to a client. ``again``: it may not know yet that the former connection has ended."""
        arguments = place.host, place.port, self._identity, self._hello, self._most, self._timeout
        last = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                return await connected(*arguments, peer)
            except RefusedError:
                if not again or asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(_AGAIN_S)

    async def _all_joined(self, peers: frozenset[int], run: Joined) -> frozenset[int]:
        """Wait until all are in the run; return those whose connection has ended, and who may return."""

        def awaited() -> list[int]:
            return [peer for peer in sorted(peers - gone()) if self._joined.get(peer) != run]

        def gone() -> frozenset[int]:
            return frozenset(peer for peer in peers if self._gate.channels[peer].lost is not None)

        try:
            async with asyncio.timeout(self._timeout):
                while self._lost is None and awaited():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            names = ", ".join(map(party_name, awaited()))
            raise RunError(f"{names} did not join the run within {self._timeout:.0f} s") from None
        if self._lost is not None:
            raise self._lost
        return gone()

    def attend(self, on_message: OnMessage, on_lost: Callable[[RunError], None]) -> None:
        """Hand on what comes in the run that was joined last: (sender, timed, body), and what ended a connection."""
        self._on_message, self._on_lost = on_message, on_lost
        if self._lost is not None:
            on_lost(self._lost)

    def leave(self) -> None:
        """Hand on nothing more: the run is over."""
        self._run = self._on_message = self._on_lost = None
        self._gate.expected = set()
        self._away.clear()
        while self._ends:
            self._ends.popitem()[1].cancel()

    def send(self, peer: int, body: bytes, timed: bool) -> None:
        """Send a message of the protocol to another client of the run; it is lost if that client is away."""
        channel = self._gate.channels.get(peer)
        if channel is not None:
            channel.message(body, timed)

    def away(self, peer: int) -> None:
        """Take the server's word that a client's process is gone, and that another one may take its place."""
        self._away.add(peer)
        if peer in self._ends:
            self._ends.pop(peer).cancel()

    def back(self, peer: int) -> None:
        """Take the server's word that a client is here again: it has connected to all that it could reach."""
        self._away.discard(peer)
        channel = self._gate.channels.get(peer)
        if channel is not None and channel.lost is not None:
            self._lose(peer, channel.lost)

    async def close(self) -> None:
        """End all connections, and listen no longer."""
        self.leave()
        await self._gate.close()

    def _attend_to(self, peer: int) -> None:
        """Read what comes from a client that has connected, or to which this one has."""
        if peer in self._ends:
            self._ends.pop(peer).cancel()
        channel = self._gate.channels[peer]
        channel.attend(partial(self._control, peer), partial(self._lose, peer), partial(self._message, peer))
        if self._run is not None:
            channel.control(self._run)

    def _control(self, peer: int, message: Control) -> None:
        if not isinstance(message, Joined):
            raise ControlError(f"a {message.kind!r} message between clients")
        self._joined[peer] = message
        self._changed.set()

    def _message(self, peer: int, timed: bool, body: bytes) -> None:
        if self._on_message is not None and self._joined.get(peer) == self._run:
            self._on_message(peer, timed, body)

    def _lose(self, peer: int, error: LostError) -> None:
        self._joined.pop(peer, None)
        if not isinstance(error, GoneError) or peer not in self._gate.expected:
            self._end(error)
        elif peer not in self._away:
            loop = asyncio.get_running_loop()
            self._ends[peer] = loop.call_later(self._timeout, self._end, error)
        self._changed.set()

    def _end(self, error: LostError) -> None:
        self._lost = self._lost or RunError(error.what, remedy=error.remedy)  # the server decides what comes of it
        if self._on_lost is not None:
            self._on_lost(self._lost)
