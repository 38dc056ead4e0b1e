"""Where clients connect, who is refused, and who may come back."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from vflsim.errors import IncompleteRoundError, RunError, VflsimError
from vflsim.protocol import party_name
from vflsim.remote.channel import HANDSHAKE_S, Channel, GoneError, LostError, ended, first_message
from vflsim.remote.control import (
    Common,
    Control,
    ControlError,
    Hello,
    Introduced,
    Peer,
    Prepare,
    Refused,
    Welcome,
    packed,
)
from vflsim.remote.frames import CONTROL, frame
from vflsim.remote.keys import party_of, server_context
from vflsim.remote.transport import LIFE
from vflsim.worlds import Timer

MOST_STRANGERS = 64
"""The most connections at a time that have not yet shown who they are."""


_PAUSE_S = 0.1
"""Seconds until the next connection is accepted after the machine could not accept one."""


_LOG = logging.getLogger("vflsim.remote")


class Admission:
    """Takes one connection of each client, and refuses all others.

    One of the ``expected``, whose connection has ended, may come again; ``on_return`` is then called with its number.
    ``on_come`` is called with the number of each client that has come.

    Invariants: at most ``MOST_STRANGERS`` connections are between their arrival and the proof of who they are, further
    ones are closed before anything is computed for them; a refusal is logged once for an address and a reason, and
    touches nothing else.
    """

    def __init__(self, identity: Path, clients: frozenset[int], common: Common, most: int, timeout: float) -> None:
        self._context = server_context(identity)
        self.clients, self._common = clients, common
        self._most, self._timeout = most, timeout
        self.channels: dict[int, Channel] = {}
        self.expected: set[int] = set()
        self.on_return: Callable[[int], None] | None = None
        self.on_come: Callable[[int], None] | None = None
        self._former: list[Channel] = []
        self.refused: Counter[tuple[str, str]] = Counter()
        self._came: asyncio.Event = asyncio.Event()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._strangers: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen at all addresses of ``host``; return the port. Raises ``RunError`` if it cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, place in dict.fromkeys((each[0], each[4]) for each in addresses):
                family_options = {"dualstack_ipv6": False} if family == socket.AF_INET6 else {}
                listening = socket.create_server(
                    (place[0], port), family=family, backlog=MOST_STRANGERS, **family_options
                )
                listening.setblocking(False)
                self._sockets.append(listening)
                port = listening.getsockname()[1]  # port 0 has become one, which the other addresses take, too
        except OSError as error:
            self._close_sockets()
            raise RunError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        self._accepting = [loop.create_task(self._accept(each)) for each in self._sockets]
        return port

    async def all_here(self, within: float, whom: frozenset[int] | None = None) -> None:
        """Wait ``within`` seconds for all clients, or for some. Raises ``LostError`` that names who is not here."""
        wanted = self.clients if whom is None else whom
        try:
            async with asyncio.timeout(within):
                while not wanted <= self.channels.keys():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            absent = ", ".join(map(party_name, sorted(wanted - self.channels.keys())))
            raise LostError(f"{absent} did not connect within {within:.0f} s") from None

    async def close(self) -> None:
        """End all connections, and listen no longer."""
        tasks = [*self._accepting, *self._strangers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_sockets()
        await asyncio.gather(*(channel.close() for channel in [*self.channels.values(), *self._former]))

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, place = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is left, say
                self._refuse("anybody", f"the machine accepts no connection: {error.strerror or error}")
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                connection.close()
                self._refuse(str(place[0]), "too many connections that have not shown who they are")
                continue
            task = loop.create_task(self._greet(connection, str(place[0])))
            self._strangers.add(task)
            task.add_done_callback(self._strangers.discard)

    async def _greet(self, connection: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, ssl.SSLError) as error:
            self._refuse(address, f"no handshake: {getattr(error, 'reason', None) or type(error).__name__}")
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            party = await asyncio.wait_for(self._known(reader, writer), HANDSHAKE_S)
            if self._is_here(party):  # another connection of this party has come meanwhile
                raise ControlError(f"{party_name(party)} is connected already")
        except (TimeoutError, VflsimError, OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
            why = str(error) if isinstance(error, VflsimError) else "no greeting"
            with suppress(OSError, ssl.SSLError):
                writer.write(frame(CONTROL, packed(Refused(why=why))))
            await ended(writer)
            self._refuse(address, why)
            return
        former = self.channels.get(party)
        self.channels[party] = Channel(party, reader, writer, self._most, self._timeout)
        self.channels[party].control(Welcome())
        self._came.set()
        if former is not None:
            self._former.append(former)
            if self.on_return is not None:
                self.on_return(party)
        if self.on_come is not None:
            self.on_come(party)

    def _is_here(self, party: int) -> bool:
        former = self.channels.get(party)
        return former is not None and (former.lost is None or party not in self.expected)

    def _refuse(self, address: str, why: str) -> None:
        self.refused[address, why] += 1
        if self.refused[address, why] == 1:
            _LOG.warning("refused a connection from %s: %s", address, why)

    async def _known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Return the client that has connected. Raises ``ControlError`` for anybody else."""
        party = party_of(writer.get_extra_info("ssl_object").getpeercert())
        hello = await first_message(reader, "a greeting")
        if not isinstance(hello, Hello):
            raise ControlError(f"a {hello.kind!r} message first", allowed="a greeting")
        if party is None or hello.party != party:
            named = "no party" if party is None else party_name(party)
            raise ControlError(f"a greeting of {party_name(hello.party)} with the certificate of {named}")
        if party not in self.clients:
            raise ControlError(f"{party_name(party)} takes no part in this scenario")
        if self._is_here(party):
            raise ControlError(f"{party_name(party)} is connected already")
        if hello.common._replace(rows=self._common.rows) != self._common:
            what = f"{party_name(party)} has another scenario, or another version of vflsim"
            raise ControlError(what, allowed=f"the same file, and version {self._common.version}")
        if hello.rows != self._common.rows:
            what = f"{party_name(party)} trains or tests on other rows: its data files, or stand-ins, have other ids"
            raise ControlError(what, allowed="the same ids and the same split in the files of all processes")
        return party


class Returns:
    """Waits ``timeout`` seconds for each client that is away, then hands an error that names it to ``give_up``.

    ``call_later`` makes a call after seconds of real time, ``present`` gives the round in progress.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        timeout: float,
        present: Callable[[], int],
        give_up: Callable[[IncompleteRoundError], None],
    ) -> None:
        self._call_later, self._timeout, self._present, self._give_up = call_later, timeout, present, give_up
        self._waiting: dict[int, Timer] = {}

    def wait_for(self, client: int, error: GoneError) -> None:
        """Begin to wait for a client, unless it is waited for already: its new process may be gone, too."""
        if client not in self._waiting:
            self._waiting[client] = self._call_later(self._timeout, partial(self._end, client, error))

    def __contains__(self, client: int) -> bool:
        return client in self._waiting

    def here(self, client: int) -> None:
        """Wait for a client no longer: it is here."""
        self._waiting.pop(client).cancel()

    def close(self) -> None:
        """Wait for nobody."""
        while self._waiting:
            self.here(next(iter(self._waiting)))

    def _end(self, client: int, error: GoneError) -> None:
        del self._waiting[client]
        name = party_name(client)
        self._give_up(
            IncompleteRoundError(
                f"round {self._present()} cannot be completed: {error.what}, and {name} has not come back within "
                f"{self._timeout:g} s",
                remedy=f"start its process again in time: vflsim party … --party {client}, with the same --parts",
            )
        )


class Restarts:
    """Has new processes prepare for the run ``announced``: what each of them is told.

    ``peers``: what clients that are connected to each other have said of themselves; empty where none are. ``tell``
    sends a client a control message, ``host_of`` gives the address that a client comes from. Invariant: of clients that
    are connected to each other one prepares at a time, so that each connects to all that are here, and none to it.
    """

    def __init__(
        self,
        announced: Prepare,
        peers: Collection[Peer],
        tell: Callable[[int, Control], None],
        host_of: Callable[[int], str],
    ) -> None:
        self._announced, self._tell, self._host_of = announced, tell, host_of
        self._peers = {each.party: each for each in peers}
        self._waiting: deque[int] = deque()
        self._lives: Counter[int] = Counter()

    def first(self, client: int) -> int:
        """Return from which number on a client's latest process numbers its messages."""
        return self._lives[client] * LIFE

    def came(self, client: int) -> None:
        """Have a new process prepare, as soon as it is its turn."""
        self._waiting.append(client)
        if not self._peers or len(self._waiting) == 1:
            self._announce(client)

    def done(self, client: int) -> None:
        """Note that a client is prepared, or has gone again."""
        if client not in self._waiting:
            return
        first = self._waiting[0] == client
        self._waiting.remove(client)
        if self._peers and first and self._waiting:
            self._announce(self._waiting[0])

    def introduced(self, client: int, said: Introduced, away: Collection[int]) -> None:
        """Tell a client that prepares of all others; ``away`` are those without a process that is ready.

        Raises ``RunError`` if it says other facts than its former process.
        """
        former = self._peers.get(client)
        if former is None or client not in self._waiting:
            raise RunError(f"client {client} sent an {said.kind!r} message in a run")
        if said.facts != former.facts:
            what = f"{party_name(client)} has come back with other data: it tells other facts"
            raise RunError(what, remedy="give its new process the data of its former one")
        self._peers[client] = former.model_copy(update={"host": self._host_of(client), "port": said.port})
        for other, peer in self._peers.items():
            if other != client:
                self._tell(client, peer.model_copy(update={"here": other not in away}))

    def _announce(self, client: int) -> None:
        self._lives[client] += 1
        self._tell(client, self._announced.model_copy(update={"again": True, "first": self.first(client)}))
