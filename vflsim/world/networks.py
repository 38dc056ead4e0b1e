"""The kinds of networks, how messages share the links, and of transports, how they begin to move.

A kind is vocabulary and makes the carrier of a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.timing.capacity import LatencyMatrix, Link
from vflsim.vocabulary import Count, Part, Shorthand, kind_from_text
from vflsim.world.carriers import FairSlots, Queues, Unshared
from vflsim.world.flows import FairSharing
from vflsim.world.kernel import World
from vflsim.world.transfers import PACKET, Arrived, Carrier, SlowStart


class Network(Part):
    """How messages share the links; a kind of network is a final subclass with its own ``kind``.

    Without any limit to bandwidth all kinds are alike: every message arrives as its latency ends.
    """

    latency: LatencyMatrix | None = None
    """A latency for every pair of parties, added to that of their links."""
    queued: ClassVar[bool] = False
    """Whether the messages of a link move one at a time."""

    def crowd(self, messages: int) -> int:
        """Return how many of ``messages`` on one link move at once and divide its bandwidth, at most."""
        return 1

    def delays(self, links: Iterable[Link]) -> bool:
        """Return whether a message on these links may have to wait for others, or be slowed down by them."""
        return any(link.limited for link in links)

    def carrier(self, world: World, links: Sequence[Link], arrived: Arrived, concurrency: int | None = None) -> Carrier:
        """Return the carrier of a run; it calls ``arrived`` for each transfer whose last bit is through.

        ``concurrency``: the most messages that move from and to the server at a time.
        """
        limited = any(link.limited for link in links)
        return self.limited_carrier(world, arrived, concurrency) if limited else Unshared(world, arrived)

    @abstractmethod
    def limited_carrier(self, world: World, arrived: Arrived, concurrency: int | None) -> Carrier:
        """Return the carrier of a run with limited links."""


@final
class Fair(Network):
    """All messages move at once and share the up-links and down-links max–min fairly, as connections of TCP roughly do.

    The default.

    Example: ``{kind: fair, latency: {file: latencies.csv, unit: ms}}``
    """

    kind: Literal["fair"] = "fair"

    @override
    def crowd(self, messages: int) -> int:
        return messages

    @override
    def limited_carrier(self, world: World, arrived: Arrived, concurrency: int | None) -> Carrier:
        return FairSharing(world, arrived) if concurrency is None else FairSlots(world, arrived, concurrency)


@final
class Fifo(Network):
    """One message at a time per direction and party, at min(sender's up, receiver's down): serial lines, one radio.

    Of the messages that can move, the one whose latency ended first does.

    Example: ``{kind: fifo, latency: {file: latencies.csv, unit: ms}}``
    """

    kind: Literal["fifo"] = "fifo"
    queued: ClassVar[bool] = True

    @override
    def limited_carrier(self, world: World, arrived: Arrived, concurrency: int | None) -> Carrier:
        return Queues(world, arrived, concurrency)


@final
class Dedicated(Network):
    """Messages never contend: each moves at min(sender's up, receiver's down).

    Example: ``{kind: dedicated, latency: {file: latencies.csv, unit: ms}}``
    """

    kind: Literal["dedicated"] = "dedicated"

    @override
    def delays(self, links: Iterable[Link]) -> bool:
        return False

    @override
    def limited_carrier(self, world: World, arrived: Arrived, concurrency: int | None) -> Carrier:
        if concurrency is None:
            return Unshared(world, arrived)
        return Queues(world, arrived, concurrency, serial=False)


NetworkKind: TypeAlias = Fair | Fifo | Dedicated
NETWORKS: tuple[type[Network], ...] = get_args(NetworkKind)
"""Every kind of network."""

AnyNetwork = Annotated[
    NetworkKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fair", "fifo", "dedicated"]})
]
"""A field that takes any kind of network, or its kind alone."""


# --- how messages begin to move ---------------------------------------------------------------------------------------


class TransportLayer(Part, ABC):
    """How messages begin to move; a kind of transport is a final subclass with its own ``kind``."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Its kind and what it does, in words."""

    def carrier(
        self, network: Network, world: World, links: Sequence[Link], arrived: Arrived, concurrency: int | None
    ) -> Carrier:
        """Return the carrier of a run (``Network.carrier``)."""
        return network.carrier(world, links, arrived, concurrency)


@final
class Fluid(TransportLayer):
    """All bytes of a message may move from the end of its latency on. The default.

    Example: ``{kind: fluid}``
    """

    kind: Literal["fluid"] = "fluid"

    @property
    @override
    def description(self) -> str:
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
    def description(self) -> str:
        idle = "a pause makes it smaller again" if self.idle_reset else "a pause leaves it as it is"
        return f"tcp (a connection's window begins with {self.initial_window} packets of {PACKET:,} B; {idle})"

    @override
    def carrier(
        self, network: Network, world: World, links: Sequence[Link], arrived: Arrived, concurrency: int | None
    ) -> Carrier:
        assert concurrency is None, "refused at load time: each window would wait for a slot of its own"
        carrier = partial(network.carrier, world, links)
        return SlowStart(world, arrived, carrier, links, network.latency, self.initial_window, self.idle_reset)


TransportKind: TypeAlias = Fluid | Tcp
TRANSPORTS: tuple[type[TransportLayer], ...] = get_args(TransportKind)
"""Every kind of transport."""

AnyTransport = Annotated[
    TransportKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fluid", "tcp"]})
]
"""A field that takes any kind of transport, or its kind alone."""
