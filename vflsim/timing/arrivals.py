"""Streams of activations, and the arrivals that a client uses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

import numpy as np

from vflsim.timing.floats import Floats
from vflsim.timing.sampler import Sampler

Block: TypeAlias = tuple[Floats, Floats]
"""Some arrivals in order: times (s since the start) and the gaps drawn for them (s; NaN: not drawn), both (n,)."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """Arrival ``index`` of an activation process: its time (s since the start), and the gap drawn for it (s)."""

    time: float
    index: int
    drawn: float


class ActivationProcess:
    """The arrivals of one party, independent of its work. Each is given out at most once.

    ``arrivals`` yields blocks, (times, drawn) with at least one arrival each: ascending seconds since the start, and
    the gaps that were drawn for them (NaN: not drawn), both (n,) of float64. ``queue``: arrivals that find the client
    busy wait for it; otherwise they are lost.

    Example::

        times = np.array([1.0, 2.5])
        process = ActivationProcess(iter([(times, np.array([1.0, 1.5]))]), queue=False)
        process.next(now=1.5).time  # 2.5
    """

    def __init__(self, arrivals: Iterator[Block], *, queue: bool) -> None:
        self.arrivals, self.queue = arrivals, queue
        self._first = 0  # index of the first arrival in the block at hand
        self._place = 0  # of the first one not yet passed
        self._times: list[float] = []
        self._drawn: list[float] = []
        self._returned: list[Arrival] = []  # a heap

    def next(self, now: float) -> Arrival | None:
        """Use up and give the next activation for a client that is free since ``now``; None if there are no more.

        skip: the first arrival strictly after ``now`` (or at 0 where ``now`` is 0);
        earlier ones are lost. queue: the oldest arrival not used up; if its time has passed, the client need not wait.
        """
        if not self.queue:
            self._pass(now)
        if self._returned:
            return heappop(self._returned)
        while self._place == len(self._times):
            if not self._fetch():
                return None
        place, self._place = self._place, self._place + 1
        return Arrival(self._times[place], self._first + place, self._drawn[place])

    def put_back(self, activation: Arrival) -> None:
        """Take back an activation whose wait was abandoned: ``next`` considers it again, before those after it."""
        heappush(self._returned, activation)

    def _pass(self, now: float) -> None:
        """Discard the arrivals that found the client busy, block by block, which makes long steps cheap."""
        if now > 0:
            while self._returned and self._returned[0].time <= now:
                heappop(self._returned)
        while True:
            self._place = max(self._place, bisect_right(self._times, now) if now > 0 else 0)
            if self._place < len(self._times) or not self._fetch():
                return

    def _fetch(self) -> bool:
        """Fetch the next block of arrivals, if there is one."""
        block = next(self.arrivals, None)
        if block is None:
            return False
        self._first += len(self._times)
        self._place, self._times, self._drawn = 0, block[0].tolist(), block[1].tolist()
        return True


def renewals(gaps: Sampler) -> Iterator[Block]:
    """Give arrivals at the sums of draws 0..k, added in this order."""
    last = 0.0
    for number in count():
        drawn = gaps.blocks(number, 1)
        times = np.add.accumulate(np.concatenate(([last], drawn)))[1:]
        last = float(times[-1])
        yield times, drawn
