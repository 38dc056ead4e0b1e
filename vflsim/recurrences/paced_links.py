"""Clients at their own pace whose messages share the server's links: what happens, in order of time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import final

import numpy as np

from vflsim.recurrences.chunk import undecided
from vflsim.recurrences.cycles import BACK, HOME
from vflsim.recurrences.shared_links import Entered, SharedLinks, played
from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats
from vflsim.world.hub import Hub
from vflsim.world.transfers import Transfer


@final
class FairLink(Hub):
    """A link that messages share at once, and of those that have entered it lately: when."""

    serial = False

    def __init__(self, capacity: float, bandwidths: Sequence[float]) -> None:
        super().__init__(capacity)
        self._bandwidths, self._unlimited = bandwidths, [min(each, capacity) == math.inf for each in bandwidths]
        self.at_once: list[int] = []
        """Messages that are through as they enter, since nothing limits their rates."""
        self._entered: list[Entered] = []
        self._idle: list[int] = []  # which of them found the link without any other
        self._moved: tuple[float, dict[tuple[int, float], float]] = math.nan, {}

    def take(self, number: int, place: int, size: int, now: float) -> float:
        """Take in a message of the client at a place; return when it begins to move."""
        if self._unlimited[place]:
            self.at_once.append(number)
            return now
        bandwidth = self._bandwidths[place]
        if self.due == math.inf and not self.changed:
            self._idle.append(len(self._entered))
        self._entered.append((now, place, bandwidth, size))
        transfer = Transfer()
        transfer.place, transfer.size = number, size
        self.enter(transfer, place, bandwidth, now)
        return now

    def over(self, now: float) -> list[int]:
        """Return the numbers of the messages that are through."""
        ended, self.at_once = self.at_once, []
        if self.due <= now:
            ended += [transfer.place for transfer in self.through(now)]
        return ended

    def forget(self, before: float) -> None:
        """Forget messages that were through before a time, as no others were under way."""
        first = self._begin_of(before)
        if first:
            del self._entered[:first]
            self._idle = [start - first for start in self._idle if start >= first]

    def moved(self, place: int, start: float, now: float) -> float:
        """Return the bits that have moved by ``now`` of a client's message that has entered at ``start``."""
        if self._moved[0] != now:
            last = bisect_right(self._entered, (now, len(self._bandwidths)))
            messages = self._entered[self._begin_of(now) : last]
            _, bits = played(self.capacity, messages, now)
            moved = {(client, entered): each for (entered, client, _, _), each in zip(messages, bits, strict=True)}
            self._moved = now, moved
        return self._moved[1][place, start]

    def _begin_of(self, now: float) -> int:
        """Return the first of the messages that share the link at a time, or did last."""
        count = bisect_right(self._idle, now, key=lambda place: self._entered[place][0])
        return self._idle[count - 1] if count else 0


@final
class SerialLink:
    """A link on which messages move one after the other, in the order in which they enter."""

    serial, changed, at_once = True, False, ()

    def __init__(self, capacity: float, bandwidths: Sequence[float]) -> None:
        self._rates = [min(each, capacity) for each in bandwidths]
        self._queue: deque[tuple[float, int]] = deque()
        self._free, self.due = -math.inf, math.inf

    def take(self, number: int, place: int, size: int, now: float) -> float:
        """Take in a message of the client at a place; return when it begins to move."""
        begins = max(now, self._free)
        self._free = begins + 8 * size / self._rates[place]
        self._queue.append((self._free, number))
        self.due = self._queue[0][0]
        return begins

    def over(self, now: float) -> list[int]:
        """Return the numbers of the messages that are through."""
        ended = []
        while self._queue and self._queue[0][0] <= now:
            ended.append(self._queue.popleft()[1])
        self.due = self._queue[0][0] if self._queue else math.inf
        return ended

    def share(self, now: float) -> None:
        """Do nothing: each message has the link for itself."""

    def forget(self, before: float) -> None:
        """Do nothing."""


LEFT, HEARD, ACTIVE, UP, SENT, ARRIVED = range(6)
"""The times of a cycle: its message down begins to move and is there; the seconds of the waits for an activation, and
until the client is up; its message up begins to move and is there."""


class PacedLinks:
    """Plays steps on the first t arrivals, and the cycles of the clients, as far as it takes to know all of each.

    ``following`` gives the seconds of a client's next cycle, ``waits`` those of its waits for an activation from a
    time on, ``lasting`` the seconds of the server's next step on batches (place, number). ``sizes`` gives the bytes of
    messages, down and up, about batches by their number: (M,) each.
    """

    def __init__(
        self,
        links: SharedLinks,
        t: int,
        following: Sequence[Callable[[], list[float]]],
        waits: Callable[[int, float], tuple[float, float]] | None,
        lasting: Callable[[list[tuple[int, int]]], float],
        sizes: Callable[[int], tuple[list[int], list[int]]],
    ) -> None:
        kind = SerialLink if links.serial else FairLink
        self.down, self.up = kind(*links.capacities["down"]), kind(*links.capacities["up"])
        self._t, self._following, self._waits, self._lasting, self._sizes = t, following, waits, lasting, sizes
        clients = len(following)
        self._batch = [0] * clients  # the number of each client's batch
        self._seconds: list[list[float]] = [[]] * clients
        self._causes: list[list[float]] = [[]] * clients
        self._number = [*range(clients)]  # of each client's cycle
        self._times = [[math.nan] * 6 for _ in range(clients)]  # of each client's cycle, and of all cycles:
        self._cycles, self._places = list(self._times), [*range(clients)]
        self._done = self._target = 0  # the cycles that have been asked for, and that are
        self._steps: list[tuple[float, float, float]] = []
        self._calendar: list[tuple[float, int, int, bool]] = []
        """When messages enter the links, in the order in which they were sent: of whom, and whether they go up."""
        self._sent = self._heard = self._missing = 0
        self._waiting: list[tuple[float, int]] = []
        self._free = 0.0
        self._filled, self._filling = [[math.nan] * 6 for _ in range(clients)], 0
        self._fills: tuple[list[int], list[list[float]]] = [], []

    def fill(self, enters: Sequence[float], sizes: list[int], causes: list[list[float]]) -> None:
        """Let clients send what the server awaits before its first step, by when that enters the link.

        They have a number for each place, ~place; ``causes``: see ``SendingOrder``.
        """
        self._free, self._filling, self._fills = math.inf, len(enters), (sizes, causes)
        for place, now in enumerate(enters):
            self._send(now, ~place, True)

    def begin(self, ready: Sequence[float], seconds: Sequence[list[float]], causes: list[list[float]]) -> None:
        """Let clients begin when they are ``ready``; their activities up to the first arrival take ``seconds``."""
        for place, (now, taken) in enumerate(zip(ready, seconds, strict=True)):
            self._seconds[place], self._causes[place] = [*(0.0,) * HOME, *taken], causes[place]
            self._go_on(place, now)

    def filled(self) -> Floats:
        """Return the times of what was sent before the first step, as those of cycles (M, 6)."""
        return np.array(self._filled)

    def cycles(self, count: int) -> tuple[Floats, Ints]:
        """Return the next cycles, times (n, 6) and places (n,), once they are over. Raises ``UndecidedError``.

        The first are those of all clients, without a message down. Then come those that each step begins.
        """
        self._target = self._done + count
        self._missing = self._filling + max(0, count - len(self._cycles))
        for number, cycle in zip(self._number, self._times, strict=True):
            self._missing += number < self._target and cycle[ARRIVED] != cycle[ARRIVED]
        self._play()
        self._done = self._target
        times, places = np.array(self._cycles[:count]), np.array(self._places[:count])
        del self._cycles[:count], self._places[:count]
        return times, places

    def steps(self, count: int) -> Floats:
        """Return start, end and seconds of the next steps (n, 3), which have been played."""
        steps = np.array(self._steps[:count])
        del self._steps[:count]
        return steps

    def _play(self) -> None:
        up, down, calendar, waiting, least = self.up, self.down, self._calendar, self._waiting, self._t
        times, batch, sizes = self._times, self._batch, self._sizes
        while self._missing > 0:
            now = up.due if up.due < down.due else down.due
            if calendar and calendar[0][0] < now:
                now = calendar[0][0]
            if self._free < now and len(waiting) >= least:
                now = self._free
            if now == math.inf:
                raise undecided("nobody goes on", 0, 0.0)
            while True:
                if up.due <= now or up.at_once:
                    for place in up.over(now):
                        self._arrive(place, now)
                if down.due <= now or down.at_once:
                    for place in down.over(now):
                        self._hear(place, now)
                if not calendar or calendar[0][0] > now:
                    break
                entering = [heappop(calendar)]
                while calendar and calendar[0][0] == now:
                    entering.append(heappop(calendar))
                if up.serial and len(entering) > 1:
                    entering.sort(key=self._order)
                for _, _, place, upward in entering:
                    if not upward:
                        times[place][LEFT] = down.take(place, place, sizes(batch[place] - 1)[0][place], now)
                    elif place >= 0:
                        times[place][SENT] = up.take(place, place, sizes(batch[place])[1][place], now)
                    else:
                        self._filled[~place][SENT] = up.take(place, ~place, self._fills[0][~place], now)
            if self._free <= now and len(waiting) >= least:
                self._serve(now)
            if up.changed:
                up.share(now)
            if down.changed:
                down.share(now)

    def _send(self, now: float, place: int, upward: bool) -> None:
        self._sent += 1
        heappush(self._calendar, (now, self._sent, place, upward))

    def _hear(self, place: int, now: float) -> None:
        self._heard += 1
        self._times[place][HEARD] = now
        self._causes[place] = [now, math.inf, self._heard]
        self._go_on(place, now)

    def _go_on(self, place: int, now: float) -> None:
        _, _, step, embed, upload, there, _ = self._seconds[place]
        now = now + step
        if self._waits is not None:
            waits = self._times[place][ACTIVE:SENT] = self._waits(place, now)
            now = now + waits[0] + waits[1]
        self._send(now + embed + upload + there, place, True)

    def _arrive(self, place: int, now: float) -> None:
        if place < 0:
            self._filled[~place][ARRIVED] = now
            self._filling -= 1
            self._missing -= 1
            if not self._filling:
                self._free = now
            return
        self._times[place][ARRIVED] = now
        self._missing -= self._number[place] < self._target
        heappush(self._waiting, (now, place))

    def _serve(self, now: float) -> None:
        used = [heappop(self._waiting)[1] for _ in range(self._t)]
        seconds = self._lasting([(place, self._batch[place]) for place in used])
        self._free = end = now + seconds
        self._steps.append((now, end, seconds))
        for place in used:
            self._batch[place] += 1
            self._seconds[place] = taken = self._following[place]()
            self._number[place] = self._done + len(self._cycles)
            self._times[place] = times = [math.nan] * 6
            self._cycles.append(times)
            self._places.append(place)
            self._send(end + taken[BACK], place, False)

    def _order(self, entry: tuple[float, int, int, bool]) -> tuple[bool, list[float]]:
        """Return what messages that enter at one instant are ordered by: messages up, by when their causes were.

        Of two events at one instant that one comes first whose cause came first. Messages down are in their order.
        """
        _, sent, place, upward = entry
        if not upward:
            return False, [sent]
        if place < 0:
            return True, self._fills[1][~place]
        _, _, step, embed, upload, there, _ = self._seconds[place]
        first, *earlier = self._causes[place]
        waits = self._times[place][ACTIVE:SENT] if self._waits is not None else ()
        causes = sorted({*accumulate((step, *waits, embed, upload, there), initial=first)}, reverse=True)
        return True, [*causes, *earlier]
