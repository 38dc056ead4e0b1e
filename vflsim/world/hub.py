"""Max–min fair rates: of transfers that all cross one link, by virtual time, and of flows that cross any two links.

On one link a change costs a step in a heap, however many transfers share it (processor sharing with caps: Parekh and
Gallager 1993). On any links all flows are solved for anew (Bertsekas and Gallager, Data Networks, sec. 6.5.2).
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import final

import numpy as np
from numpy.typing import NDArray

from vflsim.timing.floats import Floats
from vflsim.timing.profile import TRACE
from vflsim.world.transfers import Transfer

TICKS = 4
"""The clock's precision, in units in the last place of the present time."""
MOST_CAPS = 32
"""The most unlike caps of one hub: each takes a few steps at every change."""
REBASED = 1024
"""A class counts from 0 again after so many times the bits of its largest transfer: 2e-13 of it are lost meanwhile."""


@final
class _Class:
    """Flows with one cap (bit/s): since they move at one rate, one sum counts the bits that each has moved.

    ``carried`` is this sum, with Kahan's compensation ``rounded``: flows end at a value of it. ``heap`` has the ends,
    the places, and the flows, also those that have left or have another end by now.
    """

    __slots__ = ("cap", "carried", "count", "heap", "largest", "rate", "rounded")

    def __init__(self, cap: float) -> None:
        self.cap, self.carried, self.rounded, self.rate = cap, 0.0, 0.0, 0.0
        self.count, self.largest = 0, 0
        self.heap: list[tuple[float, int, _Flow]] = []

    def progress(self, seconds: float) -> None:
        step = self.rate * seconds - self.rounded
        after = self.carried + step
        self.rounded = (after - self.carried) - step
        self.carried = after


@final
class _Flow:
    """A transfer through the link of ``client``, of ``bandwidth`` bit/s, in a class: through at its ``end``.

    ``entry`` is the one of the class's heap that stands for it; None once it has left.
    """

    __slots__ = ("bandwidth", "client", "end", "entry", "its", "transfer")
    its: _Class
    end: float
    entry: tuple[float, int, _Flow] | None

    def __init__(self, transfer: Transfer, client: int, bandwidth: float) -> None:
        self.transfer, self.client, self.bandwidth = transfer, client, bandwidth


_CAP = attrgetter("cap")


class Hub:
    """The transfers on one link of ``capacity`` (bit/s), each through a link of a client that no other link shares.

    A client's transfers share its own link evenly: with k of them each has a k-th as its cap. The rates are max–min
    fair, min(cap, λ), where λ is what the link has left for each that its cap does not hold.

    Example::

        hub = Hub(capacity=8.0)
        hub.enter(transfer, client=1, bandwidth=4.0, now=0.0)  # 2 bytes
        hub.due  # 4.0
    """

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self._classes: dict[float, _Class] = {}
        self._active: list[_Class] = []  # those with flows, by cap
        self._flows: dict[Transfer, _Flow] = {}
        self._newcomers: dict[Transfer, tuple[int, float]] = {}  # since rates were set, with the client and its link
        self._of_client: defaultdict[int, list[_Flow]] = defaultdict(list)
        self._alone: tuple[Transfer, int, float, float] | None = None  # with its client, that link, and the beginning
        self._since = 0.0
        self.changed = False
        """Whether its rates are to be set anew."""
        self.due = math.inf
        """When the first transfer is through, as rates are now (s)."""

    def enter(self, transfer: Transfer, client: int, bandwidth: float, now: float) -> None:
        """Take in a transfer through the link of ``client``, of ``bandwidth`` bit/s.

        Alone it begins at once. Otherwise it does when rates are set next, after all that leave: within an instant,
        order changes no bit.
        """
        if self._alone is not None:
            self._share_alone()
        elif not self._flows and not self._newcomers:
            rate = bandwidth if bandwidth < self.capacity else self.capacity
            self._alone = transfer, client, bandwidth, now
            self.due = now + 8.0 * transfer.size / rate if rate > 0 else math.inf
            return
        self.changed = True
        self._newcomers[transfer] = client, bandwidth

    def leave(self, transfer: Transfer, now: float) -> None:
        """Take off a transfer, if it is here."""
        self._share_alone()
        if self._newcomers.pop(transfer, None) is not None:
            return
        flow = self._flows.pop(transfer, None)
        if flow is None:
            return
        self._progress(now)
        self.changed = True
        self._leave(flow)

    def left(self, transfer: Transfer, now: float) -> float | None:
        """Return the bits of a transfer that have not moved by ``now``; None if it is not here."""
        self._share_alone()
        if transfer in self._newcomers:
            return 8.0 * transfer.size
        flow = self._flows.get(transfer)
        return None if flow is None else flow.end - (flow.its.carried + flow.its.rate * (now - self._since))

    def share(self, now: float) -> None:
        """Set all rates anew."""
        self.changed = False
        if self._alone is not None:
            return
        self._progress(now)
        if self._newcomers:
            self._begin()
        room, many, soonest = self.capacity, len(self._flows), math.inf
        for each in self._active:
            rate = each.rate = min(each.cap, room / many)
            room = max(0.0, room - rate * each.count)
            many -= each.count
            heap = each.heap
            while heap[0][2].entry is not heap[0]:
                heappop(heap)
            if rate > 0:
                seconds = (heap[0][0] - each.carried) / rate
                soonest = seconds if seconds < soonest else soonest
        self.due = now + soonest if soonest > 0.0 else now

    def through(self, now: float) -> list[Transfer]:
        """Take off, and return, the transfers of which nothing is left. Where none is left, none is due."""
        if self._alone is not None:
            alone, self._alone, self.changed, self.due = self._alone[0], None, False, math.inf
            return [alone]
        self._progress(now)
        flows, ended = self._flows, []
        for each in self._active:
            ticks, heap = each.rate * (TICKS * math.ulp(now)), each.heap
            while heap:
                end, _, flow = heap[0]
                if flow.entry is heap[0]:
                    if end - each.carried > max(ticks, TRACE * 8 * flow.transfer.size):
                        break
                    ended.append(flow)
                heappop(heap)
        for flow in ended:
            del flows[flow.transfer]
            self._leave(flow)
        self.changed = bool(flows or self._newcomers)
        self.due = math.inf
        return [flow.transfer for flow in ended]

    def transfers(self) -> Iterable[Transfer]:
        """Return all transfers in the order they entered."""
        self._share_alone()
        return [*self._flows, *self._newcomers]

    def _share_alone(self) -> None:
        """Set the rate of a transfer that has been alone so far."""
        if self._alone is not None:
            transfer, client, bandwidth, began = self._alone
            self._alone, self._newcomers[transfer] = None, (client, bandwidth)
            self.share(began)

    def _progress(self, now: float) -> None:
        """Let every transfer move up to ``now``."""
        seconds = now - self._since
        if seconds > 0:
            self._since = now
            for each in self._active:
                each.progress(seconds)

    def _begin(self) -> None:
        """Let newcomers begin."""
        for transfer, (client, bandwidth) in self._newcomers.items():
            flow = self._flows[transfer] = _Flow(transfer, client, bandwidth)
            beside = self._of_client[client]
            cap = bandwidth / (len(beside) + 1)
            self._put(flow, 8.0 * transfer.size, cap)
            if beside:
                self._share_own_link(beside, cap)
            beside.append(flow)
        self._newcomers.clear()

    def _leave(self, flow: _Flow) -> None:
        self._take(flow)
        beside = self._of_client[flow.client]
        beside.remove(flow)
        if beside:
            self._share_own_link(beside, flow.bandwidth / len(beside))

    def _share_own_link(self, flows: Iterable[_Flow], cap: float) -> None:
        for flow in flows:
            if flow.its.cap != cap:
                bits = flow.end - flow.its.carried
                self._take(flow)
                self._put(flow, bits, cap)

    def _put(self, flow: _Flow, bits: float, cap: float) -> None:
        its = self._classes.get(cap)
        if its is None:
            its = self._classes[cap] = _Class(cap)
        if not its.count:
            its.heap.clear()
            its.carried, its.rounded, its.largest = 0.0, 0.0, 0
            insort(self._active, its, key=_CAP)
        elif its.carried > REBASED * 8 * its.largest:
            _rebase(its)
        its.count += 1
        if flow.transfer.size > its.largest:
            its.largest = flow.transfer.size
        flow.its, flow.end = its, its.carried + bits
        flow.entry = flow.end, flow.transfer.place, flow
        heappush(its.heap, flow.entry)

    def _take(self, flow: _Flow) -> None:
        its = flow.its
        flow.entry = None
        its.count -= 1
        if not its.count:
            self._active.remove(its)


def _rebase(its: _Class) -> None:
    """Let a class count from 0 again."""
    its.heap = [entry for entry in its.heap if entry[2].entry is entry]
    for number, (end, place, flow) in enumerate(its.heap):
        flow.end = end - its.carried
        flow.entry = its.heap[number] = flow.end, place, flow
    heapify(its.heap)
    its.carried = its.rounded = 0.0


Indices = NDArray[np.intp]


def max_min(first: Indices, second: Indices, capacity: Floats) -> Floats:
    """Give the max–min fair rate of every flow: no flow could be faster without a slower or equal one losing.

    Flow f crosses the links ``first[f]`` and ``second[f]`` (shapes (flows,)), which carry ``capacity`` (shape (links,),
    ≥ 0, inf allowed). Several flows between the same two links count one by one; a flow that meets no limit gets inf.

    Progressive filling, many links at a time: a link is settled once no flow on it has a smaller share on its other
    link, since shares of other links only grow while flows of smaller rates are taken off them.
    """
    rates = np.empty(len(first))
    links, todo = len(capacity), np.arange(len(first))
    room = capacity.copy()
    crowd = np.bincount(first, minlength=links) + np.bincount(second, minlength=links)
    unsettled = np.empty(links, bool)
    while len(todo):
        share = room / np.maximum(crowd, 1)
        here, there = share[first], share[second]
        unsettled.fill(False)
        unsettled[first[here > there]] = True
        unsettled[second[there > here]] = True
        fixed = ~(unsettled[first] & unsettled[second])
        rate = np.minimum(here, there)[fixed]
        rates[todo[fixed]] = rate
        if len(rate) == len(todo):
            break
        gone = np.concatenate([first[fixed], second[fixed]])
        used = np.where(rate < np.inf, rate, 0.0)  # unlimited links stay so
        room -= np.bincount(gone, np.concatenate([used, used]), links)
        crowd -= np.bincount(gone, minlength=links)
        rest = ~fixed
        first, second, todo = first[rest], second[rest], todo[rest]
    return rates
