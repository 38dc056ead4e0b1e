"""Carriers of messages that have a link to themselves, at once or as there is room, and of so many that share links."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import final

from typing_extensions import override

from vflsim.streams import SERVER
from vflsim.timing.profile import Profile
from vflsim.world.flows import FairSharing
from vflsim.world.kernel import Timer, World
from vflsim.world.transfers import Carrier, Line, Route, Transfer

_PLACE = attrgetter("place")


class Unshared(Carrier):
    """Every transfer moves at once, at the rate of its path."""

    def __init__(self, world: World, arrived: Callable[[Transfer], None]) -> None:
        super().__init__(world, arrived)
        self._over = self._finish

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        """Do nothing: the path has its rate."""

    @override
    def enter(self, transfer: Transfer) -> None:
        self._move(transfer)

    def _move(self, transfer: Transfer) -> None:
        self._begin(transfer)
        world, path = self._world, transfer.path
        now, rate = world.instant, path.rate
        seconds = 8 * transfer.size / rate if rate else path.profile.finish(now, 8.0 * transfer.size) - now
        if seconds < math.inf:  # else it is stuck, which shows as a deadlock if all is
            transfer.due = True
            world.schedule(seconds, self._over, transfer)

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer.state != "moving":
            return 0
        since, now, size, rate = transfer.since, self._world.instant, transfer.size, transfer.path.rate
        if now <= since:
            return 0  # the rate may be inf
        if rate is not None:
            return int(min(size, (now - since) * rate / 8))
        return int(min(size, transfer.path.profile.amount(since, now) / 8))

    @override
    def leave(self, transfer: Transfer) -> None:
        """Do nothing: no transfer has waited for its place."""

    def _finish(self, transfer: Transfer) -> None:
        self._arrived(transfer)


@final
class Queues(Unshared):
    """Messages wait for room on the lines that they need: of those that can move, the first does.

    ``serial`` links are lines for one message at a time. A server of some ``concurrency`` is a line for so many, from
    it and to it. A message can move while all its lines have room, and its path carries something. Messages are looked
    at in the order in which their latencies ended, ties in the order sent: whenever a line has room again, and whenever
    a path carries something again. A message whose path carries nothing, because a party is away or its link is at rate
    0, occupies no line: it keeps the bytes that are through, stands aside in its old place, and takes no line from a
    message that moves.

    Invariant: no waiting message can move.
    """

    def __init__(
        self, world: World, arrived: Callable[[Transfer], None], concurrency: int | None = None, serial: bool = True
    ) -> None:
        super().__init__(world, arrived)
        self._up: defaultdict[int, Line] = defaultdict(Line)
        self._down: defaultdict[int, Line] = defaultdict(Line)
        self._slots = () if concurrency is None else (Line(concurrency),)
        self._serial = serial
        self._entered = 0
        self._progress: dict[Transfer, tuple[float, float]] = {}
        """Of messages that have moved on a path that varies: since when they move, and the bits left then."""
        self._looks: dict[Transfer, Timer] = {}
        """Of messages that stand aside: when to look at them again."""

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        links = (self._up[path.sender], self._down[path.receiver]) if self._serial else ()
        slots = self._slots if SERVER in (path.sender, path.receiver) else ()
        path.lines = (*links, *slots) or (Line(math.inf),)

    @override
    def enter(self, transfer: Transfer) -> None:
        transfer.place = self._entered
        self._entered += 1
        if not any(line.waiting for line in transfer.path.lines) and self._can_move(transfer):
            self._move(transfer)
        else:  # a path of one that waits may carry something from this very instant on
            self._wait(transfer)
            self._advance(transfer.path.lines)

    @override
    def leave(self, transfer: Transfer) -> None:
        self._free(transfer)

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer not in self._progress:
            return super().sent(transfer)
        since, bits = self._progress[transfer]
        if transfer.state == "moving":
            bits = max(0.0, bits - transfer.path.profile.amount(since, self._world.instant))
        return min(transfer.size, int(transfer.size - bits / 8))

    @override
    def _finish(self, transfer: Transfer) -> None:
        self._arrived(transfer)
        self._free(transfer)

    def _can_move(self, transfer: Transfer) -> bool:
        """Return whether a message can move; if its path carries nothing, have it looked at when it does."""
        path = transfer.path
        for line in path.lines:
            if line.full:
                return False
        if not transfer.under_way:
            return False  # of several that are lost at once, the others are cut already
        if path.rate is not None:
            return path.rate > 0
        now = self._world.instant
        if path.profile.value(now) > 0:
            return True
        if transfer not in self._looks and (opens := path.profile.finish(now, 0.0)) < math.inf:
            self._looks[transfer] = self._world.after(opens - now, partial(self._return, transfer))
        return False

    def _wait(self, transfer: Transfer) -> None:
        transfer.state = "queued"
        for line in transfer.path.lines:
            insort(line.waiting, transfer, key=_PLACE)

    def _return(self, transfer: Transfer) -> None:
        """Look again at the messages that wait for the links of one whose path carries something."""
        del self._looks[transfer]
        self._advance(transfer.path.lines)

    def _free(self, gone: Transfer) -> None:
        """Let others move in the place of a message that has arrived, or that will not."""
        self._progress.pop(gone, None)
        self._look_no_more(gone)
        for line in gone.path.lines:
            if gone in line.moving:
                line.moving.remove(gone)
            else:
                _remove(line, gone)
        self._advance(gone.path.lines)

    def _advance(self, lines: tuple[Line, ...]) -> None:
        while movable := [
            first for line in lines if not line.full and (first := next(filter(self._can_move, line.waiting), None))
        ]:
            first = min(movable, key=_PLACE)
            for line in first.path.lines:
                _remove(line, first)
            self._move(first)

    @override
    def _move(self, transfer: Transfer) -> None:
        for line in transfer.path.lines:
            line.moving.add(transfer)
        if transfer.path.rate is not None:
            super()._move(transfer)
            return
        self._look_no_more(transfer)
        now = self._world.instant
        if transfer not in self._progress:
            self._begin(transfer)
        _, bits = self._progress.get(transfer, (now, 8.0 * transfer.size))
        self._progress[transfer] = now, bits
        transfer.state = "moving"
        self._set_end(transfer)

    def _look_no_more(self, transfer: Transfer) -> None:
        if (look := self._looks.pop(transfer, None)) is not None:
            look.cancel()

    def _set_end(self, transfer: Transfer) -> None:
        """Schedule when a message that moves on a path that varies is through, or stands aside."""
        now, profile, (since, bits) = self._world.instant, transfer.path.profile, self._progress[transfer]
        ends = profile.finish(since, bits)
        stops = profile.first_zero(since, ends)
        transfer.due = True
        if stops < ends:
            self._world.schedule(max(0.0, stops - now), self._stand_aside, transfer)
        else:
            self._world.schedule(max(0.0, ends - now), self._over, transfer)

    def _stand_aside(self, transfer: Transfer) -> None:
        """Free the links of a message whose path carries nothing any more."""
        transfer.due = False
        now = self._world.instant
        since, bits = self._progress[transfer]
        self._progress[transfer] = now, max(0.0, bits - transfer.path.profile.amount(since, now))
        lines = transfer.path.lines
        for line in lines:
            line.moving.remove(transfer)
        self._wait(transfer)
        self._can_move(transfer)
        self._advance(lines)


def _remove(line: Line, transfer: Transfer) -> None:
    del line.waiting[bisect_left(line.waiting, transfer.place, key=_PLACE)]


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
