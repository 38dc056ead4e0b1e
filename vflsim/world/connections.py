"""How a message begins to move: at once, or as on a connection of TCP, whose window grows with each round trip."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.timing.capacity import LatencyMatrix, Link, capacity_profile
from vflsim.timing.profile import Profile
from vflsim.vocabulary import Count, Part, Shorthand, kind_from_text
from vflsim.world.kernel import World
from vflsim.world.networks import Arrived, Network
from vflsim.world.transfers import Carrier, Route, Transfer

PACKET = 1_448
"""Bytes of a message in a full packet: of 1,500 on Ethernet, less the headers of IPv4 and of TCP with time stamps."""
LEAST_TIMEOUT = 0.2
"""Seconds beyond a round trip after which Linux takes a packet for lost, on a way whose round trips are alike."""


class TransportLayer(Part, ABC):
    """How messages begin to move; a kind of transport is a final subclass with its own ``kind``."""

    @property
    @abstractmethod
    def told(self) -> str:
        """Its kind and what it does, in words."""

    def carrier(
        self, network: Network, world: World, links: Sequence[Link], arrived: Arrived, concurrency: int | None
    ) -> Carrier:
        """Return the carrier of a run; it calls ``arrived`` for each transfer whose last bit is through.

        ``concurrency``: the most messages that move from and to the server at a time.
        """
        return network.carrier(world, links, arrived, concurrency)


@final
class Fluid(TransportLayer):
    """All bytes of a message may move from the end of its latency on. The default.

    Example: ``{kind: fluid}``
    """

    kind: Literal["fluid"] = "fluid"

    @property
    @override
    def told(self) -> str:
        return "fluid (no slow start)"


FLUID = Fluid()


@final
class Tcp(TransportLayer):
    """Each ordered pair of parties has one kept connection, whose window of packets doubles with each round trip.

    Example: ``{kind: tcp, initial_window: 10, idle_reset: true}``
    """

    kind: Literal["tcp"] = "tcp"
    initial_window: Count = 10
    """Packets of 1,448 bytes that a new connection sends before the first acknowledgement (RFC 6928)."""
    idle_reset: bool = True
    """A pause of more than a retransmission timeout makes the window smaller again, as Linux does by default."""

    @property
    @override
    def told(self) -> str:
        idle = "a pause makes it smaller again" if self.idle_reset else "a pause leaves it as it is"
        return f"tcp (a connection's window begins with {self.initial_window} packets of {PACKET:,} B; {idle})"

    @override
    def carrier(
        self, network: Network, world: World, links: Sequence[Link], arrived: Arrived, concurrency: int | None
    ) -> Carrier:
        assert concurrency is None, "refused at load time: each window would wait for a slot of its own"
        return SlowStart(self, network, world, links, arrived)


TransportKind: TypeAlias = Fluid | Tcp
TRANSPORTS: tuple[type[TransportLayer], ...] = get_args(TransportKind)
"""Every kind of transport."""

AnyTransport = Annotated[
    TransportKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fluid", "tcp"]})
]
"""A field that takes any kind of transport, or its kind alone."""


def round_trip(links: Sequence[Link], matrix: LatencyMatrix | None, sender: int, receiver: int) -> float:
    """Return the mean seconds of a message's latency from ``sender`` to ``receiver``, and of one back."""
    seconds = 2 * (links[sender].latency.expectation() + links[receiver].latency.expectation())
    return seconds if matrix is None else seconds + matrix.seconds(sender, receiver) + matrix.seconds(receiver, sender)


@dataclass(eq=False, slots=True)
class Connection:
    """One party's connection to another: how many packets may be under way at once, and how this changes.

    A full packet alone on the path takes ``packet`` seconds, ``window`` packets may be under way. ``busy`` messages
    are; the last bytes were sent at ``last``. ``fills`` packets fill the path: the first one's acknowledgement is back
    before the last has left. The window grows to twice as many, where Linux, too, leaves slow start.

    Source: Linux 6, ``tcp_slow_start``, ``tcp_is_cwnd_limited`` and ``tcp_cwnd_restart``, without losses.
    """

    tcp: Tcp
    round_trip: float
    packet: float
    window: int = field(init=False)
    fills: float = field(init=False)
    busy: int = 0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.window = self.tcp.initial_window
        full = math.inf if self.round_trip and not self.packet else 1.0
        self.fills = full + (self.round_trip / self.packet if self.packet else 0.0)

    def begin(self, sent: float, packets: int) -> int:
        """Take a message of so many packets that was ``sent`` at a time; return the window that it begins with."""
        timeout, least = self.round_trip + LEAST_TIMEOUT, self.tcp.initial_window
        idle = 0.0 if self.busy else sent - self.last
        if self.tcp.idle_reset and idle > timeout and self.window > least:
            halvings = min(math.ceil(idle / timeout) - 1, self.window.bit_length())
            self.window = max(least, self.window >> halvings)
        window, most = self.window, 2 * self.fills
        if window < most:  # by a packet for each that is acknowledged, unless less than half of the window is used
            grown = window + packets if packets > window else max(window, 2 * packets)
            self.window = int(min(grown, most))
        self.busy += 1
        return window

    def end(self, last: float) -> None:
        """Let go of a message whose last bytes were sent at a time."""
        self.busy -= 1
        self.last = max(self.last, last)


@dataclass(eq=False, slots=True)
class _Flight:
    """A message on its way: its bytes in all and in the windows before, and the packets of the present window."""

    connection: Connection
    size: int
    window: int
    passed: int = 0
    waits: bool = False

    def next_window(self) -> int:
        """The bytes that may be sent now: all that are left, once the window fills the path."""
        rest = self.size - self.passed
        return rest if self.window >= self.connection.fills else min(rest, self.window * PACKET)


@final
class SlowStart(Carrier):
    """Hands each message over to another carrier window by window; each is twice the one before.

    A window is sent when the one before is through and its first packet acknowledged: a round trip after it was
    through. For a message alone these are the very instants at which packet by packet would be sent. Meanwhile the
    message takes no share of a link.
    """

    def __init__(self, tcp: Tcp, network: Network, world: World, links: Sequence[Link], arrived: Arrived) -> None:
        super().__init__(world, arrived)
        self._tcp, self._links, self._matrix = tcp, links, network.latency
        self._carrier = network.carrier(world, links, self._through)
        self._connections: dict[Route, Connection] = {}
        self._flights: dict[Transfer, _Flight] = {}

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        self._carrier.meter = self.meter
        self._carrier.connect(path, up, down)
        sender, receiver = path.sender, path.receiver
        capacities = self._links[sender].up, self._links[receiver].down
        rate = min(capacity_profile(each).highest for each in capacities)
        packet = 8 * PACKET / rate if rate else math.inf
        trip = round_trip(self._links, self._matrix, sender, receiver)
        self._connections[path] = Connection(self._tcp, trip, packet)

    @override
    def reset(self, party: int) -> None:
        for path, connection in self._connections.items():
            if party in (path.sender, path.receiver):
                connection.window = self._tcp.initial_window

    @override
    def enter(self, transfer: Transfer) -> None:
        connection, size = self._connections[transfer.path], transfer.size
        window = connection.begin(transfer.message.sent, -(-size // PACKET))
        flight = self._flights[transfer] = _Flight(connection, size, window)
        transfer.size = flight.next_window()
        self._carrier.enter(transfer)

    @override
    def sent(self, transfer: Transfer) -> int:
        flight = self._flights[transfer]
        return flight.passed + (0 if flight.waits else self._carrier.sent(transfer))

    @override
    def leave(self, transfer: Transfer) -> None:
        flight = self._flights.pop(transfer)
        flight.connection.end(self._world.instant)
        if not flight.waits:
            self._carrier.leave(transfer)

    def _through(self, transfer: Transfer) -> None:
        flight, now = self._flights[transfer], self._world.instant
        connection = flight.connection
        flight.passed += transfer.size
        if flight.passed < flight.size:
            flight.waits, transfer.due = True, True
            acknowledged = transfer.since + connection.packet + connection.round_trip
            self._world.schedule(max(0.0, acknowledged - now), self._send_next, transfer)
            return
        del self._flights[transfer]
        transfer.size = flight.size
        connection.end(now - transfer.latency[1])
        self._arrived(transfer)

    def _send_next(self, transfer: Transfer) -> None:
        flight = self._flights[transfer]
        flight.waits, transfer.due = False, False
        flight.window *= 2
        transfer.size = flight.next_window()
        self._carrier.enter(transfer)
