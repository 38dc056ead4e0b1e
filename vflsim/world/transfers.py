"""One message under way, the way it takes, and the window of a connection of TCP, which grows with each round trip."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal, TypeAlias, final

import numpy as np
from typing_extensions import override

from vflsim.books import RADIO
from vflsim.streams import BLOCK, party_name
from vflsim.timing.capacity import LatencyMatrix, Link, capacity_profile
from vflsim.timing.delays import Constant
from vflsim.timing.floats import Floats
from vflsim.timing.profile import Flat, Profile, lowest
from vflsim.timing.sampler import Sampler
from vflsim.world.kernel import World
from vflsim.world.messages import Message
from vflsim.world.record import Meter

State = Literal["latency", "queued", "moving", "delivered", "abandoned", "unfinished", "lost"]
UNDER_WAY = frozenset({"latency", "queued", "moving"})
PACKET = 1_448
"""Bytes of a message in a full packet: of 1,500 on Ethernet, less the headers of IPv4 and of TCP with time stamps."""
LEAST_TIMEOUT = 0.2
"""Seconds beyond a round trip after which Linux takes a packet for lost, on a way whose round trips are alike."""


class Transfer:
    """One message under way. ``state``: latency, queued, moving; then delivered, abandoned, unfinished or lost.

    It is its own event: ``due`` is whether the world's clock will say when its latency, or the time of its bytes, is
    over. ``latency`` is index and seconds of its draw. ``began`` is NaN until it moves; ``since`` when its ``size``
    bytes do, later if others have moved before them. ``place`` is its number among those that have entered the network
    (where links have lines, or are shared). ``Transport.send`` makes it.
    """

    __slots__ = ("began", "deliver", "due", "index", "latency", "message", "path", "place", "since", "size", "state")
    message: Message
    size: int
    path: Route
    index: int
    deliver: Callable[[Message], None]
    latency: tuple[int, float]
    state: State
    began: float
    since: float
    due: bool
    place: int

    @property
    def under_way(self) -> bool:
        """Whether it can still be abandoned."""
        return self.state in UNDER_WAY


@dataclass(eq=False, slots=True)
class Line:
    """What so many messages at a time can have: a link, or the slots of a server.

    ``moving`` have it, ``waiting`` wait for it, in the order they came.
    """

    room: float = 1
    moving: set[Transfer] = field(default_factory=set)
    waiting: list[Transfer] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether no other message can have it."""
        return len(self.moving) >= self.room


@dataclass(eq=False, slots=True)
class Route:
    """The way from one party to another: its latency, and the rate at which a message alone on it would move.

    ``rate`` is that rate in bit/s, None where it changes with time: then ``profile`` has it.
    """

    sender: int
    receiver: int
    latency: Latency
    rate: float | None
    profile: Profile
    lines: tuple[Line, ...] = ()
    """The lines of the sender's up-link, of the receiver's down-link, and of the server's slots (where they queue)."""
    links: tuple[int, int] = (-1, -1)
    """The numbers of the two links (of networks that share them)."""

    @classmethod
    def between(cls, sender: int, receiver: int, latency: Latency, up: Profile, down: Profile) -> Route:
        """The way through the sender's up-link and the receiver's down-link."""
        profile = lowest(up, down)
        rate = profile.value(0.0) if isinstance(profile, Flat) else None
        return cls(sender, receiver, latency, rate, profile)


class Latency:
    """The latency of one ordered pair of parties: both links' draws, keyed ``latency.i→j``, and ``fixed`` seconds."""

    __slots__ = ("_fixed", "_index", "_samplers", "constant", "draws", "purpose")

    def __init__(self, links: Sequence[Link], sender: int, receiver: int, seed: int, fixed: float = 0.0) -> None:
        self.purpose = latency_name(party_name(sender), party_name(receiver))
        laws = [(party, links[party].latency) for party in (sender, receiver)]
        self._fixed = fixed + sum(law.value for _, law in laws if isinstance(law, Constant))
        self._samplers = [
            Sampler(law, seed, party, self.purpose) for party, law in laws if not isinstance(law, Constant)
        ]
        self._index = -1
        self.draws = None if self._samplers else enumerate(repeat(self._fixed))
        """What ``draw`` gives, where all latencies are alike."""
        self.constant = None if self._samplers else self._fixed
        """The latency of every message in seconds, None where it is drawn."""

    def blocks(self, first: int, count: int) -> Floats:
        """The latencies of messages ``first * BLOCK`` up to ``(first + count) * BLOCK``: the very bits of ``draw``."""
        drawn: Floats = sum((sampler.blocks(first, count) for sampler in self._samplers), np.zeros(count * BLOCK))
        return self._fixed + drawn

    def draw(self, now: float) -> tuple[int, float]:
        """Index of the next message's draw, and its latency in seconds."""
        if self.draws is not None:
            return next(self.draws)
        self._index = index = self._index + 1
        return index, self._fixed + sum([sampler.draw(index, now) for sampler in self._samplers])


def latency_name(sender: str, receiver: str) -> str:
    """Name the latency of one party's messages to another, as events and draws do."""
    return f"latency.{sender}→{receiver}"


Arrived: TypeAlias = Callable[[Transfer], None]


class Carrier(ABC):
    """Shares the links among the transfers whose latency is over.

    It calls ``arrived`` once for every transfer whose last bit is through, in the order of arrival.
    """

    meter: Meter | None = None
    """Told of every transfer that begins to move, where the run counts energy."""

    def __init__(self, world: World, arrived: Arrived) -> None:
        self._world, self._arrived = world, arrived

    def _begin(self, transfer: Transfer) -> None:
        """Note that bytes of a transfer begin to move."""
        transfer.state = "moving"
        now = transfer.since = self._world.instant
        if transfer.began != transfer.began:  # NaN: none have moved before
            transfer.began = now
            if self.meter is not None:
                self.meter.begin(RADIO, now, transfer.path.sender, transfer.path.receiver)

    @abstractmethod
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        """Prepare for a path through these two links before its first use."""

    @abstractmethod
    def enter(self, transfer: Transfer) -> None:
        """Take in a transfer that has paid its latency."""

    @abstractmethod
    def sent(self, transfer: Transfer) -> int:
        """Return how many bytes are through of a transfer that has entered and not arrived."""

    @abstractmethod
    def leave(self, transfer: Transfer) -> None:
        """Give up the place of a transfer that has entered and will not arrive."""

    def reset(self, party: int) -> None:
        """Forget what is known of a party's connections, which has crashed; by default nothing is."""
        return None


# --- slow start -------------------------------------------------------------------------------------------------------


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

    initial_window: int
    idle_reset: bool
    round_trip: float
    packet: float
    window: int = field(init=False)
    fills: float = field(init=False)
    busy: int = 0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.window = self.initial_window
        full = math.inf if self.round_trip and not self.packet else 1.0
        self.fills = full + (self.round_trip / self.packet if self.packet else 0.0)

    def begin(self, sent: float, packets: int) -> int:
        """Take a message of so many packets that was ``sent`` at a time; return the window that it begins with."""
        timeout, least = self.round_trip + LEAST_TIMEOUT, self.initial_window
        idle = 0.0 if self.busy else sent - self.last
        if self.idle_reset and idle > timeout and self.window > least:
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

    def __init__(
        self, world: World, arrived: Arrived, carrier: Callable[[Arrived], Carrier], links: Sequence[Link],
        matrix: LatencyMatrix | None, initial_window: int, idle_reset: bool,
    ) -> None:  # fmt: skip
        super().__init__(world, arrived)
        self._links, self._matrix = links, matrix
        self._tcp = initial_window, idle_reset
        self._carrier = carrier(self._through)
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
        self._connections[path] = Connection(*self._tcp, trip, packet)

    @override
    def reset(self, party: int) -> None:
        for path, connection in self._connections.items():
            if party in (path.sender, path.receiver):
                connection.window = connection.initial_window

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
