"""Carriers of messages that have a link to themselves: all of them at once, or so many as there is room for."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import final

from typing_extensions import override

from vflsim.streams import SERVER
from vflsim.timing.profile import Profile
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
