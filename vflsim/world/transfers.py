"""One message under way, and the way it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal

import numpy as np

from vflsim.books.spans import RADIO
from vflsim.streams import BLOCK, party_name
from vflsim.timing.capacity import Link
from vflsim.timing.delays import Constant
from vflsim.timing.floats import Floats
from vflsim.timing.profile import Flat, Profile, lowest
from vflsim.timing.sampler import Sampler
from vflsim.world.kernel import World
from vflsim.world.messages import Message
from vflsim.world.record import Meter

State = Literal["latency", "queued", "moving", "delivered", "abandoned", "unfinished", "lost"]
UNDER_WAY = frozenset({"latency", "queued", "moving"})


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


class Carrier(ABC):
    """Shares the links among the transfers whose latency is over.

    It calls ``arrived`` once for every transfer whose last bit is through, in the order of arrival.
    """

    meter: Meter | None = None
    """Told of every transfer that begins to move, where the run counts energy."""

    def __init__(self, world: World, arrived: Callable[[Transfer], None]) -> None:
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
