"""Links on which a transfer moves alone: first in, first out; and links without any contention."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import final

from typing_extensions import override

from vflsim.timing.profile import Profile
from vflsim.world.kernel import World
from vflsim.world.transfers import Carrier, Path, Transfer


class Dedicated(Carrier):
    """Every transfer moves at once, at the rate of its path."""

    def __init__(self, world: World, arrived: Callable[[Transfer], None]) -> None:
        super().__init__(arrived)
        self._world = world

    @override
    def connect(self, path: Path, up: Profile, down: Profile) -> None:
        """The path knows its rate."""

    @override
    def close(self) -> None:
        """Every transfer has its own timer."""

    @override
    def enter(self, transfer: Transfer) -> None:
        transfer.state = "moving"
        now = transfer.began = self._world.now()
        path = transfer.path
        if path.rate:
            transfer.timer = self._world.after(8 * transfer.size / path.rate, partial(self._finish, transfer))
            return
        seconds = path.profile.finish(now, 8.0 * transfer.size) - now
        if seconds < float("inf"):  # else it is stuck, which shows as a deadlock if all is
            transfer.timer = self._world.after(seconds, partial(self._finish, transfer))

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer.state != "moving":
            return 0
        began, now, size, rate = transfer.began, self._world.now(), transfer.size, transfer.path.rate
        if now <= began:
            return 0  # the rate may be inf
        if rate is not None:
            return int(min(size, (now - began) * rate / 8))
        return int(min(size, transfer.path.profile.amount(began, now) / 8))

    @override
    def leave(self, transfer: Transfer) -> None:
        """Nobody has waited for its place."""

    def _finish(self, transfer: Transfer) -> None:
        self._arrived(transfer)


@final
class Fifo(Dedicated):
    """A party sends one message at a time and receives one at a time, in the order in which latencies end.

    Invariant: a moving transfer is the head of its sender's up-line and of its receiver's down-line; one whose rate is
    0 for a while keeps its places.
    """

    def __init__(self, world: World, arrived: Callable[[Transfer], None]) -> None:
        super().__init__(world, arrived)
        self._up: defaultdict[int, deque[Transfer]] = defaultdict(deque)
        self._down: defaultdict[int, deque[Transfer]] = defaultdict(deque)

    @override
    def connect(self, path: Path, up: Profile, down: Profile) -> None:
        path.lines = self._up[path.sender], self._down[path.receiver]

    @override
    def enter(self, transfer: Transfer) -> None:
        up, down = transfer.path.lines
        up.append(transfer)
        down.append(transfer)
        if up[0] is transfer and down[0] is transfer:
            super().enter(transfer)
        else:
            transfer.state = "queued"

    @override
    def leave(self, transfer: Transfer) -> None:
        for line in transfer.path.lines:
            line.remove(transfer)
        self._advance(transfer)

    @override
    def _finish(self, transfer: Transfer) -> None:
        self._arrived(transfer)
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
                    super().enter(head)
