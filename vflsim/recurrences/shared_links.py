"""Messages of all clients that share the server's link, with the event path's times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import Direction
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.timed import Timed, TimedAnswers, TimedSending, TimedToPeers, TimedTurns, TimedWait, Way
from vflsim.timing.delays.base import Floats
from vflsim.timing.link import Link
from vflsim.timing.profile import TRACE
from vflsim.world.hub import MOST_CAPS, REBASED, TICKS, Hub
from vflsim.world.transfers import Transfer


class SharedLinks:
    """The server's two links, on which at most one message of each client moves at a time.

    Raises ``UndecidedError`` if more may move in a round of these acts, or clients pause or send each other messages.
    """

    def __init__(self, server: Link, clients: Sequence[Link], acts: Timed, pausing: bool) -> None:
        if pausing or any(isinstance(act, TimedToPeers) for act in acts) or _overlap(acts):
            raise undecided("messages share links with others of the same client, or stand aside", 0, 0.0)
        up, down = ([_constant(getattr(link, way)) for link in clients] for way in ("up", "down"))
        self._capacities: dict[Direction, tuple[float, list[float]]] = {
            "up": (_constant(server.down), up),
            "down": (_constant(server.up), down),
        }
        if len({*up, *down}) > MOST_CAPS:
            raise undecided(f"more than {MOST_CAPS} unlike links share one", 0, 0.0)

    def way(self, way: Way, direction: Direction) -> SharedWay:
        """Return what carries one message of every client."""
        return SharedWay(way, *self._capacities[direction])


class SharedWay:
    """A message of every client through one link, of ``capacity`` bit/s, and through its own link."""

    def __init__(self, way: Way, capacity: float, own: list[float]) -> None:
        self._sizes, self._capacity, self._own = way.sizes, capacity, own
        self._own_alike = len(set(own)) == 1
        self._sizes_alike = (way.sizes == way.sizes[:, :1]).all(axis=1).tolist()
        self._transfers = [Transfer() for _ in own]
        for place, transfer in enumerate(self._transfers):
            transfer.place = place

    def carry(self, kind: int, entered: Floats) -> tuple[Floats, NDArray[np.object_]]:
        """Return when each message ends, and what of it has moved by a time: both (M,).

        They have ``entered`` (M,) the link, on a batch of ``kind``.
        """
        sizes, times = self._sizes[kind].tolist(), entered.tolist()
        alike = self._own_alike and self._sizes_alike[kind]
        ends = self._alike(sizes[0], times) if alike else self.play(sizes, times)[0]
        shares = np.empty(len(times), object)
        shares[:] = [_Share(self, sizes, times, place) for place in range(len(times))]
        return np.array(ends), shares

    def _alike(self, size: int, entered: list[float]) -> list[float]:
        """Return when messages of one ``size`` end, where all own links are alike: each after those that came before.

        These are the steps of ``Hub`` with one class, without a heap.
        """
        bits, cap, capacity = 8.0 * size, self._own[0], self._capacity
        if min(cap, capacity) == math.inf:
            return entered
        order = sorted(range(len(entered)), key=entered.__getitem__)
        ends, until, first, last = entered.copy(), [0.0] * len(order), 0, 0  # under way: those from first up to last
        carried = rounded = rate = since = 0.0
        due, coming, trace = math.inf, entered[order[0]], TRACE * 8 * size
        while first < len(order):
            now = min(due, coming)
            if now > since and last > first:
                step = rate * (now - since) - rounded
                after = carried + step
                rounded = (after - carried) - step
                carried = after
            since = now
            if due <= now:
                little = max(rate * (TICKS * math.ulp(now)), trace)
                while first < last and until[first] - carried <= little:
                    ends[order[first]] = now
                    first += 1
            while coming == now:
                if first == last:
                    carried = rounded = 0.0
                elif carried > REBASED * 8 * size:
                    until[first:last] = [end - carried for end in until[first:last]]
                    carried = rounded = 0.0
                until[last] = carried + bits
                last += 1
                coming = entered[order[last]] if last < len(order) else math.inf
            due = math.inf
            if first < last:
                rate = min(cap, capacity / (last - first))
                due = now + max(0.0, (until[first] - carried) / rate)
        return ends

    def play(self, sizes: list[int], entered: list[float], until: float = math.inf) -> tuple[list[float], Hub]:
        """Return when each message ends (inf: not by ``until``), and the link as it is then."""
        hub, ends, transfers, own = Hub(self._capacity), [math.inf] * len(sizes), self._transfers, self._own
        coming = iter(sorted(range(len(sizes)), key=entered.__getitem__))
        following = next(coming, None)
        while True:
            now = min(hub.due, math.inf if following is None else entered[following])
            if now > until or now == math.inf:
                return ends, hub
            if hub.due <= now:
                for transfer in hub.through(now):
                    hub.leave(transfer, now)
                    ends[transfer.place] = now
            while following is not None and entered[following] == now:
                transfer, rate = transfers[following], own[following]
                transfer.size = sizes[following]
                if min(rate, self._capacity) == math.inf:
                    ends[following] = now
                else:
                    hub.enter(transfer, following, rate)
                following = next(coming, None)
            hub.share(now)

    def left(self, sizes: list[int], entered: list[float], place: int, now: float) -> float:
        """Return the bits of one message that have not moved by ``now``."""
        _, hub = self.play(sizes, entered, now)
        return hub.left(self._transfers[place], now) or 0.0


@final
class _Share:
    """What of one message has moved by a time: the part of a ``Profile`` that bytes of cut messages ask for."""

    __slots__ = ("_entered", "_place", "_sizes", "_way")

    def __init__(self, way: SharedWay, sizes: list[int], entered: list[float], place: int) -> None:
        self._way, self._sizes, self._entered, self._place = way, sizes, entered, place

    def amount(self, start: float, end: float) -> float:
        """Return the bits that have moved by ``end``; ``start`` is when the message began."""
        left = self._way.left(self._sizes, self._entered, self._place, end)
        return (8.0 * self._sizes[self._place] - left) * (1 + TRACE)


def _constant(capacity: object) -> float:
    if not isinstance(capacity, float | int):
        raise undecided("a link that messages share changes its rate", 0, 0.0)
    return float(capacity)


def _overlap(acts: Timed) -> bool:
    """Return whether a message may begin to move before the last of the same direction has arrived, in any two rounds.

    The last are there once the server has waited for what all clients send afterwards.
    """
    up = down = answered = False  # whether there may be one under way; whether clients answer what is going down
    for act in _flat((*acts, *acts)):
        if isinstance(act, TimedSending):
            if up:
                return True
            up, answered = True, True
        elif isinstance(act, TimedAnswers):
            if down:
                return True
            down, answered = True, False
        elif isinstance(act, TimedWait):
            if act.count is not None:
                return True
            up, down = False, down and not answered
    return False


def _flat(acts: Timed) -> Iterator[object]:
    """Yield the acts, and for turns a wait: what comes before has arrived, or it is refused."""
    for act in acts:
        if isinstance(act, TimedTurns):
            yield from (each for each in act.acts if isinstance(each, TimedSending | TimedAnswers))
            yield TimedWait()
        else:
            yield act
