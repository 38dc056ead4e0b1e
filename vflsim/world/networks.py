"""The kinds of networks: how messages share the links. A kind is vocabulary and makes the carrier of a run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.streams import SERVER
from vflsim.timing.capacity import LatencyMatrix, Link
from vflsim.vocabulary import Part, Shorthand, kind_from_text
from vflsim.world.carriers import Queues, Unshared
from vflsim.world.flows import FairSharing
from vflsim.world.kernel import World
from vflsim.world.transfers import Carrier, Transfer


@final
class FairSlots(FairSharing):
    """At most ``most`` messages from and to the server share links; the others wait.

    Of those that can move, the first is admitted: in the order in which latencies ended, ties in the order sent. Slots
    are given when an instant has ended. A message whose path carries nothing gives its slot back: it keeps the bytes
    that are through, and waits for a slot again, in its old place, from when its path carries something.

    Messages between clients take no slot.
    """

    def __init__(self, world: World, arrived: Callable[[Transfer], None], most: int) -> None:
        super().__init__(world, self._through_with)
        self._most, self._deliver_message = most, arrived
        self._turns: dict[Transfer, int] = {}  # of all messages from and to the server that have entered
        self._entries = 0
        self._waiting: list[tuple[int, Transfer]] = []  # a heap, also with those that have left
        self._admitted: dict[Transfer, None] = {}
        self._bits: dict[Transfer, float] = {}  # bits to move, of those that have moved and have no slot

    @override
    def enter(self, transfer: Transfer) -> None:
        if SERVER not in (transfer.path.sender, transfer.path.receiver):
            super().enter(transfer)
            return
        transfer.state = "queued"
        self._turns[transfer] = self._entries
        self._entries += 1
        self._wait(transfer)

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer.state != "queued":
            return super().sent(transfer)
        bits = 8.0 * transfer.size
        return int((bits - self._bits.get(transfer, bits)) / 8)

    @override
    def leave(self, transfer: Transfer) -> None:
        if self._give_up(transfer):
            super().leave(transfer)

    @override
    def _share(self) -> None:
        now = self._world.instant
        for transfer in [each for each in self._admitted if self._stands_still(each, now)]:
            self._stand_aside(transfer, now)
        while self._waiting and len(self._admitted) < self._most:
            _, transfer = heappop(self._waiting)
            if transfer.state == "queued" and not self._closed(transfer, now):
                self._admit(transfer)
        super()._share()

    def _through_with(self, transfer: Transfer) -> None:
        self._give_up(transfer)
        self._deliver_message(transfer)

    def _give_up(self, transfer: Transfer) -> bool:
        """Forget a message, with its slot; return whether it may be on a link."""
        between_clients = self._turns.pop(transfer, None) is None
        self._bits.pop(transfer, None)
        admitted = transfer in self._admitted
        if admitted:
            del self._admitted[transfer]
            self._share_later()
        return admitted or between_clients

    def _wait(self, transfer: Transfer) -> None:
        transfer.due = False
        heappush(self._waiting, (self._turns[transfer], transfer))
        self._share_later()

    def _closed(self, transfer: Transfer, now: float) -> bool:
        """Return whether its path carries nothing; if so, have the message wait for a slot from when it does."""
        path = transfer.path
        if (path.profile.value(now) if path.rate is None else path.rate) > 0:
            return False
        opens = path.profile.finish(now, 0.0)
        if opens < math.inf:
            transfer.due = True
            self._world.schedule(opens - now, self._wait, transfer)
        return True

    def _admit(self, transfer: Transfer) -> None:
        self._admitted[transfer] = None
        bits = self._bits.pop(transfer, None)
        if bits is None:
            super().enter(transfer)
            return
        transfer.state, transfer.place = "moving", self._number
        self._number += 1
        self._entered.append((transfer, bits))

    def _stands_still(self, transfer: Transfer, now: float) -> bool:
        path = transfer.path
        return path.rate is None and transfer not in self._through and path.profile.value(now) <= 0

    def _stand_aside(self, transfer: Transfer, now: float) -> None:
        """Take a message off its links, with the bits that are left."""
        self._flows.progress(now)
        slot = self._flows.slot(transfer)
        assert slot is not None, "a message is admitted only to a path that carries something"
        self._bits[transfer] = max(0.0, float(self._flows.left[slot]))
        self._flows.there[slot] = False
        del self._admitted[transfer]
        transfer.state = "queued"
        self._closed(transfer, now)


# --- kinds of networks ------------------------------------------------------------------------------------------------


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
