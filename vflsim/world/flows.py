"""Links that all transfers share at once, max–min fairly: the engine of fluid flows."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import compress
from operator import attrgetter

import numpy as np
from typing_extensions import override

from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.timing.profile import TRACE, Profile
from vflsim.world.hub import MOST_CAPS, TICKS, Hub, Indices, max_min
from vflsim.world.kernel import Moment, Timer, World
from vflsim.world.transfers import Carrier, Route, Transfer

_BY_SENDER = attrgetter("path.sender", "place")


class FairSharing(Carrier):
    """Rates are max–min fair over the senders' up-links and the receivers' down-links at every instant.

    They are computed once an instant, after all its arrivals, departures and changes of capacity. Flows that complete
    together arrive in the order of their senders, as receives have them. A flow is complete when ``TRACE`` of it is
    left, or as much as it moves within the clock's precision.

    While clients exchange messages with the server alone, over links of constant capacity, one link binds all that go
    one way: each way is a ``Hub``. From the first message on of another kind, all flows are solved for together.
    """

    def __init__(self, world: World, arrived: Callable[[Transfer], None]) -> None:
        super().__init__(world, arrived)
        self._hubs: dict[str, Hub] = {}
        self._ways: dict[Route, tuple[Hub, int, float]] = {}
        """The hub of a path, and the client whose link it takes, with the capacity of that link."""
        self._caps = set[float]()  # of these links, over all clients
        self._together = False
        self._links = _Links()
        self._flows = _Flows()
        self._entered: list[tuple[Transfer, float]] = []  # at this instant, with the bits to move
        self._number = 0
        self._through: dict[Transfer, None] = {}  # nothing is left of them, and they arrive in this instant
        self._to_share = False
        self._due = math.inf  # when something completes or changes next
        self._alarm: Timer | None = None
        self._rings = math.inf  # when the alarm does: when due, or before

    @override
    def connect(self, path: Route, up: Profile, down: Profile) -> None:
        path.links = self._links.number(("up", path.sender), up), self._links.number(("down", path.receiver), down)
        if self._together:
            return
        if path.rate is None or SERVER not in (path.sender, path.receiver):
            self._solve_together()
            return
        upward = path.receiver == SERVER
        (way, shared, link) = ("up", down, up) if upward else ("down", up, down)
        hub = self._hubs.setdefault(way, Hub(shared.value(0.0)))
        cap = link.value(0.0)
        self._ways[path] = hub, path.sender if upward else path.receiver, cap
        self._caps.add(cap)
        if len(self._caps) > MOST_CAPS:
            self._solve_together()

    @override
    def enter(self, transfer: Transfer) -> None:
        self._begin(transfer)
        path = transfer.path
        rate = path.profile.value(self._world.instant) if path.rate is None else path.rate
        if rate == math.inf or (rate > 0 and not transfer.size):
            transfer.place, transfer.due = -1, True
            self._world.schedule(0.0, self._arrived, transfer)
            return
        transfer.place = self._number
        self._number += 1
        if self._together:
            self._entered.append((transfer, 8.0 * transfer.size))
        else:
            hub, client, cap = self._ways[path]
            hub.enter(transfer, client, cap, self._world.instant)
            if not hub.changed:  # it has the link for itself, where there was none
                if hub.due < self._due:
                    self._set_alarm(hub.due)
                return
        self._share_later()

    @override
    def sent(self, transfer: Transfer) -> int:
        if transfer in self._through:
            return transfer.size
        now = self._world.instant
        if transfer.path in self._ways:
            rest = self._ways[transfer.path][0].left(transfer, now)
        elif (slot := self._flows.slot(transfer)) is not None:
            rest = self._flows.remaining(slot, now)
        else:
            rest = next((bits for each, bits in self._entered if each is transfer), None)
        if rest is None:
            return 0
        bits = 8.0 * transfer.size - rest
        return max(0, min(transfer.size, int(bits / 8 * (1 + TRACE))))

    @override
    def leave(self, transfer: Transfer) -> None:
        if transfer in self._through:
            del self._through[transfer]
            if transfer.due:
                self._deliver_next()
            return
        if transfer.path in self._ways:
            self._ways[transfer.path][0].leave(transfer, self._world.instant)
            self._share_later()
            return
        slot = self._flows.slot(transfer)
        if slot is not None:
            self._flows.there[slot] = False
            self._share_later()

    def _solve_together(self) -> None:
        """Take all flows out of their hubs, for good."""
        self._together = True
        now = self._world.instant
        flows = sorted((transfer.place, transfer, hub) for hub in self._hubs.values() for transfer in hub.transfers())
        for _, transfer, hub in flows:
            bits = hub.left(transfer, now)
            assert bits is not None, "the hub has just named it"
            self._entered.append((transfer, bits))
        self._ways.clear()
        self._hubs.clear()
        if flows:
            self._share_later()

    def _share_later(self) -> None:
        if not self._to_share:
            self._to_share = True
            self._world.after(0.0, self._share, Moment.SHARE)

    def _share(self) -> None:
        """Solve for the rates after all changes of this instant, and set the alarm for the next change."""
        self._to_share = False
        now = self._world.instant
        if not self._together:
            due = math.inf
            for hub in self._hubs.values():
                if hub.changed:
                    hub.share(now)
                due = min(due, hub.due)
            self._set_alarm(due)
            return
        flows = self._flows
        flows.progress(now)
        flows.change([entry for entry in self._entered if entry[0].state == "moving"])
        self._entered.clear()
        capacity, until = self._links.at(now)
        flows.rate = max_min(flows.up, flows.down, capacity)
        due = now + flows.first_completion()
        if due < math.inf:
            due = min(due, float(until[flows.up].min()), float(until[flows.down].min()))
        elif flows.transfers:  # nothing moves: look ahead to when something will
            paths = {self._links.behind(transfer.path): transfer.path for transfer in flows.transfers}
            due = min(path.profile.finish(now, 0.0) for path in paths.values())
        self._set_alarm(due)

    def _set_alarm(self, due: float) -> None:
        """Ring when it is ``due``. An earlier alarm stays: a cancelled timer would stay in the queue anyway."""
        self._due = due
        if self._alarm is not None and not self._rings <= due < math.inf:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None and due < math.inf:
            self._rings = due
            self._alarm = self._world.at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._world.instant
        if now < self._due:
            self._set_alarm(self._due)
            return
        if self._together:
            self._flows.progress(now)
            ended = self._flows.completed(now)
            self._share_later()
        else:
            ended, due, changed = [], math.inf, False
            for hub in self._hubs.values():
                if hub.due <= now:
                    ended += hub.through(now)
                changed = changed or hub.changed
                due = hub.due if hub.due < due else due
            if changed:
                self._share_later()
            else:
                self._set_alarm(due)
        waits = bool(self._through)
        if len(ended) == 1 and not waits:
            self._arrived(ended[0])
            return
        ended.sort(key=_BY_SENDER)
        self._through.update(dict.fromkeys(ended))
        if ended and not waits:
            self._deliver(ended[0])

    def _deliver_next(self) -> None:
        """Let the next message that is through, and has not been cut since, arrive.

        Each but the first has an event of its own: one before it may make it useless. In real time receives resolve in
        between, as a replay of a live run has them.
        """
        for transfer in self._through:
            if transfer.under_way:
                transfer.due = True
                self._world.schedule(0.0, self._deliver, transfer)
                return

    def _deliver(self, transfer: Transfer) -> None:
        del self._through[transfer]
        self._arrived(transfer)
        self._deliver_next()


class _Links:
    """The links in use, numbered from 0: the capacity of each, and the time until which it holds."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._profiles: list[Profile] = []
        self._value, self._until = np.empty(0), np.empty(0)

    def number(self, link: tuple[str, int], profile: Profile) -> int:
        """The number of a link."""
        if link not in self._numbers:
            self._numbers[link] = len(self._profiles)
            self._profiles.append(profile)
        return self._numbers[link]

    def behind(self, path: Route) -> tuple[Profile, Profile]:
        """The profiles of a path's two links; paths that have both in common carry the same at any time."""
        up, down = path.links
        return self._profiles[up], self._profiles[down]

    def at(self, now: float) -> tuple[Floats, Floats]:
        """Capacity of every link in bit/s, and the time until which it holds."""
        new = len(self._profiles) - len(self._value)
        if new:
            self._value = np.concatenate([self._value, np.zeros(new)])
            self._until = np.concatenate([self._until, np.full(new, -math.inf)])
        for link in np.flatnonzero(self._until <= now).tolist():
            self._value[link], self._until[link] = self._profiles[link].piece(now)
        return self._value, self._until


class _Flows:
    """The flows that move, in the order they entered: one array a property, one entry a flow (bits and bit/s)."""

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        self.rate = np.empty(0)
        self._since = 0.0
        self._arrange(np.empty((3, 0)), np.empty((3, 0), np.intp))

    def _arrange(self, amounts: Floats, numbers: Indices) -> None:
        self._amounts, self._numbers = amounts, numbers
        # ``_rounded`` is the rounding error of ``left``; a flow with no more than ``_trace`` left is complete
        self.left, self._rounded, self._trace = amounts
        self.up, self.down, self.place = numbers
        self.there = np.ones(len(self.transfers), bool)

    def slot(self, transfer: Transfer) -> int | None:
        """Where a flow stands in the arrays; None if it has not got there yet."""
        slot = int(np.searchsorted(self.place, transfer.place))
        return slot if slot < len(self.transfers) and self.transfers[slot] is transfer else None

    def remaining(self, slot: int, now: float) -> float:
        """Bits of a flow that are not through by ``now``."""
        return float(self.left[slot] - self.rate[slot] * (now - self._since))

    def progress(self, now: float) -> None:
        """Let every flow move up to ``now``."""
        seconds = now - self._since
        self._since = now
        if seconds > 0 and self.transfers:
            step = self.rate * -seconds - self._rounded
            after = self.left + step
            self._rounded[:] = (after - self.left) - step
            self.left[:] = after

    def completed(self, now: float) -> list[Transfer]:
        """Take off, and give, the flows of which nothing is left (and which move, if they are empty)."""
        done = self.left < self.rate * (TICKS * math.ulp(now))
        done |= self.left <= self._trace
        done &= self.there
        self.there ^= done
        return [self.transfers[slot] for slot in np.flatnonzero(done).tolist()]

    def first_completion(self) -> float:
        """Seconds until the first flow completes; inf if none moves."""
        seconds = np.full(len(self.rate), math.inf)
        np.divide(self.left, self.rate, out=seconds, where=self.rate > 0)
        return max(0.0, float(seconds.min(initial=math.inf)))

    def change(self, entered: list[tuple[Transfer, float]]) -> None:
        """Forget the flows that are no longer there, and let others begin, each with its bits to move."""
        amounts, numbers = self._amounts, self._numbers
        if not self.there.all():
            self.transfers = list(compress(self.transfers, self.there.tolist()))
            amounts, numbers = amounts[:, self.there], numbers[:, self.there]
        if entered:
            new = [transfer for transfer, _ in entered]
            self.transfers += new
            size, bits = (np.array(each) for each in zip(*((8.0 * t.size, bits) for t, bits in entered), strict=True))
            trace = np.where(size > 0, TRACE * size, -1.0)
            amounts = np.concatenate([amounts, (bits, np.zeros(len(bits)), trace)], axis=1)
            numbers = np.concatenate([numbers, np.array([(*t.path.links, t.place) for t in new]).T], axis=1)
        self._arrange(amounts, numbers)
