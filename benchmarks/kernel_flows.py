"""Uploads at once over TCP connections between namespaces, and what the simulation's `fair` network says of them."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from namespaces import SERVER, Rates, Star

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.remote.keys import client_context, host_of, server_context
from vflsim.streams import party_name
from vflsim.timing.capacity import Link
from vflsim.timing.delays import Constant
from vflsim.world.messages import Message
from vflsim.world.networks import FLUID, Fair, Tcp, TransportLayer
from vflsim.world.record import Recorder
from vflsim.world.transfers import PACKET
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld

HEADERS = 66
"""Bytes of Ethernet (14), IPv4 (20), TCP (20) and time stamps (12) in front of them, which the filters count."""
RECORD, SEAL = 16_384, 22
"""Bytes of data in a full TLS record, and bytes that TLS adds to each."""
PORT = 7_000
PATIENCE_S = 120.0
_TAKE = 2**18

Spans = list[tuple[float, float]]
"""When each transfer began and ended (s)."""


@dataclass(frozen=True)
class Way:
    """How messages go: with TLS or without; on ``new`` connections, whose set-up counts, or on kept ones.

    Before each upload ``warm`` other bytes go the same way, and then nothing for ``pause`` seconds.
    """

    tls: bool = False
    new: bool = False
    warm: int = 0
    pause: float = 0.05


def sealed(size: int, tls: bool) -> int:
    """Return the bytes that TCP gets of a message of ``size`` bytes, in full records but the last."""
    return size + (SEAL * -(-size // RECORD) if tls else 0)


def on_wire(size: int, tls: bool) -> int:
    """Return the bytes that a message of ``size`` bytes puts on the wire, in full packets and records but the last."""
    return sealed(size, tls) + HEADERS * -(-sealed(size, tls) // PACKET)


def windowed(begins: Sequence[float], size: int, way: Way, gap: float, rates: Sequence[Rates], latency: float) -> Spans:
    """Return when `transport: tcp` has uploads of ``size`` bytes, begun at these instants, end.

    ``gap``: for how many seconds all was still before, since other uploads of the way. Rates are less the headers; a
    connection is made in a round trip, and TLS takes another.
    """
    share = PACKET / (PACKET + HEADERS)
    net = [Rates(each.up * share, each.down * share) for each in rates]
    many, first, before = len(begins), min(begins), 0.0
    sizes, starts = [sealed(size, way.tls)] * many, [begin - first for begin in begins]
    if way.warm:
        alone = predicted([0.0] * many, [way.warm] * many, net, latency, layer=Tcp())
        before = max(end for _, end in alone) + gap
        sizes, starts = [*[way.warm] * many, *sizes], [*[0.0] * many, *(before + start for start in starts)]
    set_up = 2 * latency * (1 + way.tls) if way.new else 0.0
    ends = [end for _, end in predicted(starts, sizes, net, latency, layer=Tcp())][-many:]
    return [(begin, first + end - before + set_up) for begin, end in zip(begins, ends, strict=True)]


def predicted(
    begins: Sequence[float],
    sizes: Sequence[int],
    rates: Sequence[Rates],
    latency: float = 0.0,
    down: bool = False,
    layer: TransportLayer = FLUID,
) -> Spans:
    """Return when `network: fair` has uploads of ``sizes`` bytes, begun at these instants, end.

    Uploads are of the clients in turn, or with ``down`` downloads; ``rates`` are those of the server and of the
    clients. A message takes ``latency`` seconds beside its bytes.
    """
    links = [
        Link(up=each.up, down=each.down, latency=Constant(value=latency if party == SERVER else 0.0))
        for party, each in enumerate(rates)
    ]
    world = VirtualWorld(TimingOnlyExecutor())
    transport = Transport(world, Fair(), links, 0, Recorder("summary"), layer=layer)
    first, ends = min(begins), [math.nan] * len(sizes)

    def send(upload: int) -> None:
        message, client = Message(), upload % (len(rates) - 1) + 1
        ends_of = (SERVER, client) if down else (client, SERVER)
        (message.sender, message.receiver), message.sent = ends_of, world.now()
        transport.send(message, sizes[upload], partial(arrived, upload))

    def arrived(upload: int, _: Message) -> None:
        ends[upload] = first + world.now()
        if not any(map(math.isnan, ends)):
            world.finish("all are there")

    for upload, begin in enumerate(begins):
        world.after(begin - first, partial(send, upload))
    world.run()
    return list(zip(begins, ends, strict=True))


class Uploads:
    """Uploads from every client of a star to its server, all at once. ``identities``: a folder of `vflsim keys`."""

    def __init__(self, star: Star, way: Way, identities: Path) -> None:
        self.star, self.way = star, way
        self._clients = [*range(1, len(star.rates))]
        self._kept: dict[int, tuple[socket.socket, socket.socket]] = {}
        self.gap = 0.0
        """For how many seconds all was still before the uploads at once."""
        server = identities / party_name(SERVER)
        self._server_context = server_context(server) if way.tls else None
        self._contexts = {
            client: client_context(identities / party_name(client)) for client in self._clients if way.tls
        }
        self._open = ExitStack()

    def __enter__(self) -> Uploads:
        place = self.star.address(SERVER)
        with ExitStack() as undo:
            undo.push(self._open.pop_all())
            self._listening = {
                client: undo.enter_context(
                    self.star.parties[SERVER].inside(lambda client=client: socket.create_server((place, PORT + client)))
                )
                for client in self._clients
            }
            self._open = undo.pop_all()
        if not self.way.new:
            self._all_at_once({client: partial(self._keep, client) for client in self._clients})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def at_once(self, sizes: Sequence[int]) -> Spans:
        """Upload ``sizes[k]`` bytes from client k + 1, all at once; return when each began, and when it was there."""
        warmed = self._move([self.way.warm] * len(sizes)) if self.way.warm else []
        time.sleep(self.way.pause)
        spans = self._move(sizes)
        self.gap = min(begin for begin, _ in spans) - max((end for _, end in warmed), default=-math.inf)
        return spans

    def _move(self, sizes: Sequence[int]) -> Spans:
        begins, ends = [math.nan] * len(sizes), [math.nan] * len(sizes)
        makes = {client: self._unconnected(client) for client in self._clients} if self.way.new else {}
        start = time.monotonic() + 0.02

        def send(upload: int) -> None:
            client, data = upload + 1, bytes(sizes[upload])
            time.sleep(max(0.0, start - time.monotonic()))
            begins[upload] = time.monotonic()
            if self.way.new:
                with self._connected(client, makes[client]) as connection:
                    connection.sendall(data)
                    connection.recv(1)  # until the server has all
            else:
                self._kept[client][0].sendall(data)

        def receive(upload: int) -> None:
            if self.way.new:
                with self._accepted(upload + 1) as connection:
                    _take(connection, sizes[upload])
                    ends[upload] = time.monotonic()
                    connection.sendall(b".")
            else:
                _take(self._kept[upload + 1][1], sizes[upload])
                ends[upload] = time.monotonic()

        work = {(place, act): partial(act, place) for place in range(len(sizes)) for act in (receive, send)}
        self._all_at_once(work)
        return list(zip(begins, ends, strict=True))

    def _unconnected(self, client: int) -> socket.socket:
        made = self.star.parties[client].inside(socket.socket)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as asyncio does
        made.settimeout(PATIENCE_S)
        return made

    def _connected(self, client: int, unconnected: socket.socket) -> socket.socket:
        unconnected.connect((self.star.address(SERVER), PORT + client))
        if not self.way.tls:
            return unconnected
        return self._contexts[client].wrap_socket(unconnected, server_hostname=host_of(SERVER))

    def _accepted(self, client: int) -> socket.socket:
        connection, _ = self._listening[client].accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        if self._server_context is None:
            return connection
        return self._server_context.wrap_socket(connection, server_side=True)

    def _keep(self, client: int) -> None:
        made: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: made.append(self._accepted(client)))
        accepting.start()
        own = self._connected(client, self._unconnected(client))
        accepting.join()
        self._kept[client] = own, made[0]
        self._open.enter_context(own)
        self._open.enter_context(made[0])

    @staticmethod
    def _all_at_once(work: dict[object, partial[None]]) -> None:
        """Do everything in threads of their own. Raises the first error."""
        errors: list[BaseException] = []

        def guarded(each: partial[None]) -> None:
            try:
                each()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(each,), daemon=True) for each in work.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def _take(connection: socket.socket, size: int) -> None:
    """Receive ``size`` bytes. Raises ``ConnectionError`` if fewer come."""
    room, left = bytearray(min(size, _TAKE)), size
    while left:
        got = connection.recv_into(room, min(left, len(room)))
        if not got:
            raise ConnectionError(f"{left} of {size} bytes did not come")
        left -= got


__all__ = ["Spans", "Uploads", "Way", "on_wire", "predicted", "windowed"]
