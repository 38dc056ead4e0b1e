"""The kinds of networks: how messages share the links. A kind is vocabulary and makes the carrier of a run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.books.spans import RADIO
from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.link import Link
from vflsim.timing.profile import Profile
from vflsim.vocabulary import Part, Shorthand, kind_from_text
from vflsim.world.flows import FairSharing
from vflsim.world.kernel import World
from vflsim.world.transfers import Carrier, Route, Transfer

Arrived = Callable[[Transfer], None]


class Network(Part, ABC):
    """How messages share the links; a kind of network is a final subclass with its own ``kind``."""

    latency: LatencyMatrix | None = None
    """A latency for every pair of parties, added to that of their links."""
    queued: ClassVar[bool] = False
    """Whether the messages of a link move one at a time."""

    def crowd(self, messages: int) -> int:
        """Return how many of ``messages`` on one link move at once and divide its bandwidth, at most."""
        return 1

    @abstractmethod
    def delays(self, links: Iterable[Link]) -> bool:
        """Return whether a message on these links may have to wait for others, or be slowed down by them."""

    @abstractmethod
    def carrier(self, world: World, arrived: Arrived) -> Carrier:
        """Return the carrier of a run; it calls ``arrived`` for each transfer whose last bit is through."""


@final
class Fifo(Network):
    """One message at a time per direction and party, in order, at min(sender's up, receiver's down).

    Example: ``{kind: fifo, latency: {file: latencies.csv, unit: ms}}``
    """

    kind: Literal["fifo"] = "fifo"
    queued: ClassVar[bool] = True

    @override
    def delays(self, links: Iterable[Link]) -> bool:
        return any(link.limited for link in links)

    @override
    def carrier(self, world: World, arrived: Arrived) -> Carrier:
        return Queues(world, arrived)


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
    def carrier(self, world: World, arrived: Arrived) -> Carrier:
        return Unshared(world, arrived)


@final
class Fair(Network):
    """All messages move at once and share the up-links and down-links max–min fairly, as in network simulators.

    Example: ``{kind: fair, latency: {file: latencies.csv, unit: ms}}``
    """

    kind: Literal["fair"] = "fair"

    @override
    def crowd(self, messages: int) -> int:
        return messages

    @override
    def delays(self, links: Iterable[Link]) -> bool:
        return True

    @override
    def carrier(self, world: World, arrived: Arrived) -> Carrier:
        return FairSharing(world, arrived)


NetworkKind: TypeAlias = Fifo | Dedicated | Fair
NETWORKS: tuple[type[Network], ...] = get_args(NetworkKind)
"""Every kind of network."""

AnyNetwork = Annotated[
    NetworkKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fifo", "dedicated", "fair"]})
]
"""A field that takes any kind of network, or its kind alone."""


class Unshared(Carrier):
    """Every transfer moves at once, at the rate of its path."""

    def __init__(self, world: World, arrived: Arrived) -> None:
        super().__init__(arrived)
        self._world, self._over = world, self._finish

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        """Do nothing: the path has its rate."""

    @override
    def close(self) -> None:
        """Do nothing: every transfer has its own timer."""

    @override
    def enter(self, transfer: Transfer) -> None:
        self._move(transfer)

    def _move(self, transfer: Transfer) -> None:
        world = self._world
        transfer.state = "moving"
        now = transfer.began = world.instant
        path = transfer.path
        if self.meter is not None:
            self.meter.begin(RADIO, now, path.sender, path.receiver)
        rate = path.rate
        seconds = 8 * transfer.size / rate if rate else path.profile.finish(now, 8.0 * transfer.size) - now
        if seconds < math.inf:  # else it is stuck, which shows as a deadlock if all is
            transfer.due = True
            world.schedule(seconds, self._over, transfer)

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer.state != "moving":
            return 0
        began, now, size, rate = transfer.began, self._world.instant, transfer.size, transfer.path.rate
        if now <= began:
            return 0  # the rate may be inf
        if rate is not None:
            return int(min(size, (now - began) * rate / 8))
        return int(min(size, transfer.path.profile.amount(began, now) / 8))

    @override
    def leave(self, transfer: Transfer) -> None:
        """Do nothing: no transfer has waited for its place."""

    def _finish(self, transfer: Transfer) -> None:
        self._arrived(transfer)


@final
class Queues(Unshared):
    """A party sends one message at a time and receives one at a time, in the order in which latencies end.

    Invariant: a moving transfer is the head of its sender's up-line and of its receiver's down-line; one whose rate is
    0 for a while keeps its places.
    """

    def __init__(self, world: World, arrived: Arrived) -> None:
        super().__init__(world, arrived)
        self._up: defaultdict[int, deque[Transfer]] = defaultdict(deque)
        self._down: defaultdict[int, deque[Transfer]] = defaultdict(deque)

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        path.lines = self._up[path.sender], self._down[path.receiver]

    @override
    def enter(self, transfer: Transfer) -> None:
        up, down = transfer.path.lines
        both_free = not up and not down
        up.append(transfer)
        down.append(transfer)
        if both_free:
            self._move(transfer)
        else:
            transfer.state = "queued"

    @override
    def leave(self, transfer: Transfer) -> None:
        for line in transfer.path.lines:
            line.remove(transfer)
        self._advance(transfer)

    @override
    def _finish(self, transfer: Transfer) -> None:
        arrived = self._arrived
        arrived(transfer)
        up, down = transfer.path.lines
        up.popleft()
        down.popleft()
        if up or down:
            self._advance(transfer)

    def _advance(self, gone: Transfer) -> None:
        for line in gone.path.lines:
            if line:
                head = line[0]
                up, down = head.path.lines
                if head.state == "queued" and up[0] is head and down[0] is head:
                    self._move(head)
