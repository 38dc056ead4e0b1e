"""One authenticated connection to another process, and how it is made."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vflsim.errors import RunError, VflsimError
from vflsim.protocol import SERVER, party_name
from vflsim.remote.control import MOST_BYTES, Beat, Control, ControlError, Hello, Refused, Welcome, packed, unpacked
from vflsim.remote.frames import CONTROL, FREE, HEAD, TIMED, frame
from vflsim.remote.keys import client_context, host_of

HANDSHAKE_S = 5.0
"""Seconds for TLS and for the first message of whoever connects."""
BEAT_S = 1.0
"""Seconds between two signs of life."""
MOST_EARLY = 64
"""Control messages that may wait until somebody attends: several megabytes at most."""
MOST_WAITING = 256 * 2**20
"""Bytes that may wait for a receiver before it counts as one that does not read."""
_LOG = logging.getLogger("vflsim.remote")


class LostError(RunError):
    """A connection ended, or its other end gave no sign of life."""


class GoneError(LostError):
    """A connection ended: the process at its other end is gone, or the way to it."""


class RefusedError(LostError):
    """The process at the other end does not take the connection, and has said why."""


class Channel:
    """A connection to the process of ``peer``; ``most`` is the largest frame that it may send, in bytes.

    What arrives is handed to those who ``attend``, in order; until then it waits: ``MOST_EARLY`` messages at most.
    Bytes sent and received are counted.
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

    @property
    def hosts(self) -> tuple[str, str]:
        """The addresses of this end and of the other one."""
        here, there = (self._writer.get_extra_info(name) for name in ("sockname", "peername"))
        return str(here[0]), str(there[0])

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
        while self._early and self._on_control is on_control:
            on_control(self._early.pop(0))
        if self._lost is not None and self._on_lost is on_lost:
            on_lost(self._lost)

    def detach(self, *unread: Control) -> None:
        """Keep ``unread``, and the control messages that arrive from now on, for those who attend next."""
        self._on_control = self._on_lost = None
        self._early += unread

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
        if self._lost is None:
            with suppress(OSError, asyncio.TimeoutError, ssl.SSLError):
                await asyncio.wait_for(self._writer.drain(), HANDSHAKE_S)
        await ended(self._writer, of_use=self._lost is None)
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
            self._lose(f"the connection to {self.who} ended", GoneError)
        except (OSError, ssl.SSLError) as error:
            self._lose(f"the connection to {self.who} broke: {error}", GoneError)
        except VflsimError as error:
            self._lose(f"{self.who} sent what cannot be used: {error}")

    def _take(self, kind: int, body: bytes) -> None:
        if kind == CONTROL:
            message = unpacked(body)
            if isinstance(message, Beat):
                return
            if self._on_control is None:
                if len(self._early) >= MOST_EARLY:
                    raise ControlError(f"{MOST_EARLY + 1} control messages before a run", allowed=f"{MOST_EARLY}")
                self._early.append(message)
            else:
                self._on_control(message)
        else:
            self._on_message(kind == TIMED, body)

    async def _beat(self) -> None:
        said = False
        while True:
            await asyncio.sleep(BEAT_S)
            if self._lost is not None:
                return
            self.control(Beat())
            silent = self._loop.time() - self._heard
            if said != (slow := silent > self.timeout / 2):
                said = slow
                what = f"gives no sign of life for {silent:.0f} s, of {self.timeout:.0f} s" if slow else "is here again"
                _LOG.warning("%s %s", self.who, what)
            if silent > self.timeout:
                self._lose(f"{self.who} gave no sign of life for {silent:.0f} s")

    def _lose(self, why: str, kind: type[LostError] = LostError) -> None:
        if self._lost is None and not self._closed:
            remedy = f"see what the process of {self.who} says, then run again"
            self._lost = kind(why, remedy=remedy)
            if self._on_lost is not None:
                self._on_lost(self._lost)


def _no_message(_timed: bool, _body: bytes) -> None:
    raise ControlError("a message of the protocol outside a run")


async def connected(
    host: str, port: int, identity: Path, hello: Hello, most: int, timeout: float, peer: int = SERVER
) -> Channel:
    """Connect to the process of ``peer``, and return the channel. Raises ``LostError`` if there is none,
    ``RefusedError`` if it refuses.

    Tries for ``timeout`` seconds: the server may still be starting.
    """
    context, loop = client_context(identity), asyncio.get_running_loop()
    who = "the server" if peer == SERVER else party_name(peer)
    last = loop.time() + timeout
    while True:
        try:
            opening = asyncio.open_connection(
                host, port, ssl=context, server_hostname=host_of(peer), ssl_handshake_timeout=HANDSHAKE_S
            )
            reader, writer = await asyncio.wait_for(opening, timeout)
            break
        except ssl.SSLError as error:
            what = f"{who} at {host}:{port} has no certificate of this authority for it: {error.reason}"
            raise LostError(what) from error
        except OSError as error:
            if loop.time() > last:
                why = error.strerror or str(error) or "no answer"
                raise LostError(f"{who} is not at {host}:{port}: {why}") from error
            await asyncio.sleep(0.1)
    try:
        writer.write(frame(CONTROL, packed(hello)))
        answer = await asyncio.wait_for(first_message(reader, "a welcome"), timeout)
        if not isinstance(answer, Welcome):
            refused = isinstance(answer, Refused)
            why = answer.why if isinstance(answer, Refused) else f"it sent a {answer.kind!r} message first"
            raise (RefusedError if refused else LostError)(f"{who} refuses {party_name(hello.party)}: {why}")
    except (TimeoutError, OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
        await ended(writer)
        what = f"{who} refuses the certificate of {party_name(hello.party)}, or went away"
        raise LostError(what, remedy="make all identities with one vflsim keys init") from error
    except VflsimError:
        await ended(writer)
        raise
    return Channel(peer, reader, writer, most, timeout)


async def first_message(reader: asyncio.StreamReader, allowed: str) -> Control:
    """Read what comes first over a connection. Raises ``ControlError`` for anything but a control message."""
    size, kind = HEAD.unpack(await reader.readexactly(HEAD.size))
    if kind != CONTROL or size > MOST_BYTES:
        raise ControlError(f"a first frame of type {kind} and {size} bytes", allowed=allowed)
    return unpacked(await reader.readexactly(size))


async def ended(writer: asyncio.StreamWriter, of_use: bool = True) -> None:
    """Close a connection, and wait until it is closed; ``of_use``: the other end has time to say goodbye."""
    if of_use:
        writer.close()
    else:
        writer.transport.abort()
    try:
        with suppress(OSError, ssl.SSLError):
            await asyncio.wait_for(writer.wait_closed(), HANDSHAKE_S)
    except TimeoutError:
        writer.transport.abort()
    await asyncio.sleep(0)  # the transport closes its socket in the loop's next turn
