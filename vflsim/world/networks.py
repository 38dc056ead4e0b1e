"""The kinds of networks: how messages share the links. A kind is vocabulary and makes the carrier of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.link import Link
from vflsim.vocabulary import Part, Shorthand, kind_from_text
from vflsim.world.carriers import Queues, Unshared
from vflsim.world.flows import FairSharing
from vflsim.world.kernel import World
from vflsim.world.slots import FairSlots
from vflsim.world.transfers import Carrier, Transfer

Arrived = Callable[[Transfer], None]


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

    def carrier(self, world: World, links: Iterable[Link], arrived: Arrived, concurrency: int | None = None) -> Carrier:
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
