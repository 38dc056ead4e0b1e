"""One authenticated connection to another process, and how it is made."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vflsim.errors import RunError, VflsimError
from vflsim.remote.control import (
    MOST_BYTES,
    Beat,
    Control,
    ControlError,
    Hello,
    Refused,
    Welcome,
    packed,
    unpacked,
)
from vflsim.remote.frames import CONTROL, FREE, HEAD, TIMED, frame
from vflsim.remote.keys import client_context, host_of, party_of, server_context
from vflsim.streams import SERVER, party_name

HANDSHAKE_S = 5.0
"""Seconds for TLS and for the first message of whoever connects."""
BEAT_S = 1.0
"""Seconds between two signs of life."""
MOST_STRANGERS = 64
"""The most connections at a time that have not yet shown who they are."""
MOST_WAITING = 256 * 2**20
"""Bytes that may wait for a receiver before it counts as one that does not read."""
_LOG = logging.getLogger("vflsim.remote")


class LostError(RunError):
    """A connection ended, or its other end gave no sign of life."""


class Channel:
    """A connection to the process of ``peer``; ``most`` is the largest frame that it may send, in bytes.

    What arrives is handed to those who ``attend``, in order; until then it waits. Bytes sent and received are counted.
    """

    def __init__(
        self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int, timeout: float
    ) -> None:
        self.peer, self.timeout = peer, timeout
        self._on_message: Callable[[bool, bytes], None] = _no_message
        self._on_control: Callable[[Control], None] | None = None
        self._on_lost: Callable[[LostError], None] | None = None
        self._early: list[Control] = []
        self.sent = self.received = 0
        self._reader, self._writer, self._most = reader, writer, most
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._lost: LostError | None = None
        self._closed = False
        self._tasks = [self._loop.create_task(self._read()), self._loop.create_task(self._beat())]

    @property
    def lost(self) -> LostError | None:
        """Why the connection is of no use any more; None while it is."""
        return self._lost

    @property
    def who(self) -> str:
        """The peer in words, for error messages."""
        return party_name(self.peer)

    def attend(
        self,
        on_control: Callable[[Control], None],
        on_lost: Callable[[LostError], None],
        on_message: Callable[[bool, bytes], None] | None = None,
    ) -> None:
        """Hand what arrives to these functions: control messages, what ended the connection, and (timed, body).

        ``on_lost`` is called once, at once if the connection is lost already. Without ``on_message`` a message of the
        protocol ends the connection.
        """
        self._on_control, self._on_lost, self._on_message = on_control, on_lost, on_message or _no_message
        early, self._early = self._early, []
        for message in early:
            on_control(message)
        if self._lost is not None:
            on_lost(self._lost)

    def message(self, body: bytes, timed: bool) -> None:
        """Send a message of the protocol, at once; what the network does not take waits in memory."""
        self._send(TIMED if timed else FREE, body)

    def control(self, message: Control) -> None:
        """Send a control message."""
        self._send(CONTROL, packed(message))

    async def close(self) -> None:
        """Send what waits, and end the connection."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        with suppress(OSError, asyncio.TimeoutError, ssl.SSLError):
            await asyncio.wait_for(self._writer.drain(), HANDSHAKE_S)
        await _ended(self._writer)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _send(self, kind: int, body: bytes) -> None:
        if self._closed or self._lost is not None:
            return
        data = frame(kind, body)
        self.sent += len(data)
        self._writer.write(data)
        waiting = self._writer.transport.get_write_buffer_size()
        if waiting > MOST_WAITING:
            self._lose(f"{self.who} does not read: {waiting} bytes wait for it")

    async def _read(self) -> None:
        try:
            while True:
                size, kind = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                if size > (MOST_BYTES if kind == CONTROL else self._most) or kind not in (TIMED, FREE, CONTROL):
                    allowed = f"at most {self._most} of a message, {MOST_BYTES} of a control message"
                    raise ControlError(f"a frame of type {kind} and {size} bytes", self.who, allowed)
                body = await self._reader.readexactly(size)
                self.received += HEAD.size + size
                self._heard = self._loop.time()
                self._take(kind, body)
        except asyncio.IncompleteReadError:
            self._lose(f"the connection to {self.who} ended")
        except (OSError, ssl.SSLError) as error:
            self._lose(f"the connection to {self.who} broke: {error}")
        except VflsimError as error:
            self._lose(f"{self.who} sent what cannot be used: {error}")

    def _take(self, kind: int, body: bytes) -> None:
        if kind == CONTROL:
            message = unpacked(body)
            if isinstance(message, Beat):
                return
            if self._on_control is None:
                self._early.append(message)
            else:
                self._on_control(message)
        else:
            self._on_message(kind == TIMED, body)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.control(Beat())
            silent = self._loop.time() - self._heard
            if silent > self.timeout:
                self._lose(f"{self.who} gave no sign of life for {silent:.0f} s")

    def _lose(self, why: str) -> None:
        if self._lost is None and not self._closed:
            remedy = f"see what the process of {self.who} says, then run again"
            self._lost = LostError(why, remedy=remedy)
            if self._on_lost is not None:
                self._on_lost(self._lost)


def _no_message(_timed: bool, _body: bytes) -> None:
    raise ControlError("a message of the protocol outside a run")


class Admission:
    """Where clients connect: takes one connection of each client, and refuses all others.

    A refusal is logged once for an address and a reason, and touches nothing else.
    """

    def __init__(self, identity: Path, clients: frozenset[int], digest: str, version: str, most: int, timeout: float):
        self._context = server_context(identity)
        self._clients, self._digest, self._version = clients, digest, version
        self._most, self._timeout = most, timeout
        self.channels: dict[int, Channel] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        self._strangers = 0
        self._complete: asyncio.Event = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._greeting: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. Raises ``RunError`` if the address cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._greet, host, port, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S, backlog=MOST_STRANGERS
            )
        except OSError as error:
            raise RunError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def all_here(self, within: float) -> None:
        """Wait for all clients. Raises ``LostError`` that names those who have not come ``within`` so many seconds."""
        try:
            await asyncio.wait_for(self._complete.wait(), within)
        except TimeoutError:
            absent = ", ".join(map(party_name, sorted(self._clients - self.channels.keys())))
            raise LostError(f"{absent} did not connect within {within:.0f} s") from None

    async def close(self) -> None:
        """End all connections, and listen no longer."""
        if self._server is not None:
            self._server.close()
        for task in list(self._greeting):
            task.cancel()
        await asyncio.gather(*self._greeting, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self.channels.values()))
        if self._server is not None:
            await self._server.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "streams are served by tasks"
        self._greeting.add(task)
        self._strangers += 1
        address = str((writer.get_extra_info("peername") or ("?",))[0])
        try:
            if self._strangers > MOST_STRANGERS:
                raise ControlError("too many connections that have not shown who they are")
            party = await asyncio.wait_for(self._known(reader, writer), HANDSHAKE_S)
            self.channels[party] = Channel(party, reader, writer, self._most, self._timeout)
            self.channels[party].control(Welcome())
            if self.channels.keys() == self._clients:
                self._complete.set()
        except (TimeoutError, VflsimError, OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
            why = str(error) if isinstance(error, VflsimError) else "no greeting"
            with suppress(OSError, ssl.SSLError):
                writer.write(frame(CONTROL, packed(Refused(why=why))))
            await _ended(writer)
            self.refused[address, why] += 1
            if self.refused[address, why] == 1:
                _LOG.warning("refused a connection from %s: %s", address, why)
        finally:
            self._strangers -= 1
            self._greeting.discard(task)

    async def _known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Return the client that has connected. Raises ``ControlError`` for anybody else."""
        ssl_object = writer.get_extra_info("ssl_object")
        party = party_of(ssl_object.getpeercert())
        size, kind = HEAD.unpack(await reader.readexactly(HEAD.size))
        if kind != CONTROL or size > MOST_BYTES:
            raise ControlError(f"a first frame of type {kind} and {size} bytes", allowed="a greeting")
        hello = unpacked(await reader.readexactly(size))
        if not isinstance(hello, Hello):
            raise ControlError(f"a {hello.kind!r} message first", allowed="a greeting")
        if party is None or hello.party != party:
            named = "no party" if party is None else party_name(party)
            raise ControlError(f"a greeting of {party_name(hello.party)} with the certificate of {named}")
        if party not in self._clients:
            raise ControlError(f"{party_name(party)} takes no part in this scenario")
        if party in self.channels:
            raise ControlError(f"{party_name(party)} is connected already")
        if (hello.scenario, hello.version) != (self._digest, self._version):
            what = f"{party_name(party)} has another scenario, or another version of vflsim"
            raise ControlError(what, allowed=f"the same file, and version {self._version}")
        return party


async def connected(host: str, port: int, identity: Path, hello: Hello, most: int, timeout: float) -> Channel:
    """Connect to the server, and return the channel. Raises ``LostError`` if there is none, or it refuses.

    Tries for ``timeout`` seconds: the server may still be starting.
    """
    context, loop = client_context(identity), asyncio.get_running_loop()
    last = loop.time() + timeout
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=host_of(SERVER), ssl_handshake_timeout=HANDSHAKE_S
            )
            break
        except ssl.SSLError as error:
            what = f"the server at {host}:{port} has no certificate of this authority: {error.reason}"
            raise LostError(what) from error
        except OSError as error:
            if loop.time() > last:
                raise LostError(f"no server at {host}:{port}: {error.strerror or error}") from error
            await asyncio.sleep(0.1)
    try:
        writer.write(frame(CONTROL, packed(hello)))
        size, kind = HEAD.unpack(await asyncio.wait_for(reader.readexactly(HEAD.size), timeout))
        if kind != CONTROL or size > MOST_BYTES:
            raise ControlError(f"a first frame of type {kind} and {size} bytes", allowed="a welcome")
        answer = unpacked(await asyncio.wait_for(reader.readexactly(size), timeout))
        if not isinstance(answer, Welcome):
            why = answer.why if isinstance(answer, Refused) else f"it sent a {answer.kind!r} message first"
            raise LostError(f"the server refuses {party_name(hello.party)}: {why}")
    except (TimeoutError, OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
        await _ended(writer)
        what = f"the server refuses the certificate of {party_name(hello.party)}, or went away"
        raise LostError(what, remedy="make all identities with one vflsim keys init") from error
    except VflsimError:
        await _ended(writer)
        raise
    return Channel(SERVER, reader, writer, most, timeout)


async def _ended(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, ssl.SSLError, asyncio.TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), HANDSHAKE_S)
