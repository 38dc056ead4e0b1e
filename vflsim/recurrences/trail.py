"""In which event of the world each activity of rounds begins, and which one ends it: what a calendar would know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vflsim.recurrences.chunk import Bools, EventCourse, Happenings, Joins
from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats

ROUND = 2**20
"""Steps of a round in the order of what a party does within an event."""
ACT = 4
"""Steps of an act: its delay, and its message."""


class Trail:
    """The events in which the clients (M,) and the server are; events are numbered from 0, in no order of time.

    At the start the server is in event 0, and each client in its own, which are dealt with in this order. ``early``
    until the first round begins.
    """

    def __init__(self, clients: int) -> None:
        self.clients: Ints = np.arange(1, clients + 1)
        self.server = 0
        self.early = True
        self._next = clients + 1
        self._happenings: list[tuple[Any, ...]] = []
        """The columns of happenings, each broadcast to that of the times; and which of them are there, None if all."""
        self._joins: list[Joins] = []

    def steps(self, first: int, count: int, act: int) -> Ints:
        """Return the steps of an act in ``count`` rounds (n, 1)."""
        return (np.arange(first, first + count)[:, None] + (not self.early)) * ROUND + ACT * act

    def passing(self, there: Bools, ends: Floats, steps: Ints, at_server: bool = False) -> ActivityTrail:
        """Return what notes activities (n, m) that take time where ``there``, and end at ``ends``."""
        return ActivityTrail(self, there, ends, steps, at_server)

    def messages(self, latency: Floats, began: Floats, ends: Floats, steps: Ints, places: Ints) -> MessageTrail:
        """Return what notes messages (n, M) from sending to arrival; ``places``: the order in which they are sent."""
        return MessageTrail(self, latency > 0, began, ends, steps, places)

    def events(self, times: Floats, causes: Ints, steps: Ints, places: Ints | None, there: Bools | None = None) -> Ints:
        """Return the numbers of new events (n, m) at times, each scheduled by another, its cause."""
        numbers = self._numbers(times.shape)
        self._happenings.append((numbers, times, causes, steps, 0 if places is None else places, 0, there))
        return numbers

    def collections(self, times: Floats, there: Bools | None = None, singly: bool = False) -> Ints:
        """Return the numbers of new events (n, m) in which a party gets all its messages, as instants end.

        ``singly``: it gets each, and goes on with the last.
        """
        numbers = self._numbers(times.shape)
        self._happenings.append((numbers, times, -1, -1, 0, 2 if singly else 1, there))
        return numbers

    def join(self, events: Ints, causes: Ints) -> None:
        """Note that collections (m,) await events of the same instant."""
        self._joins.append(Joins(events, causes))

    def _numbers(self, shape: tuple[int, ...]) -> Ints:
        count = int(np.prod(shape))
        self._next += count
        return np.arange(self._next - count, self._next).reshape(shape)

    def course(self, horizon: float) -> EventCourse:
        """Return what has been noted since the last call; nothing that follows is sooner than ``horizon``."""
        happenings = Happenings.joined([_flat(*each) for each in self._happenings])
        joins = Joins.joined([Joins(*np.empty((2, 0), np.int64)), *self._joins])
        self._happenings, self._joins = [], []
        return EventCourse(happenings, joins, horizon)


def _flat(*columns: Any) -> Happenings:
    *each, there = columns
    chosen, shape = slice(None) if there is None else there, each[1].shape
    return Happenings(*(np.broadcast_to(np.asarray(column), shape)[chosen].ravel() for column in each))


class ActivityTrail:
    """Activities of all clients or of the server, one after the other: events in which they begin, and end."""

    def __init__(self, trail: Trail, there: Bools, ends: Floats, steps: Ints, at_server: bool) -> None:
        self._trail, self._there, self._at_server = trail, there, at_server
        self.begun, self.ended = np.empty(ends.shape, np.int64), np.empty(ends.shape, np.int64)
        self._numbers = trail.events(ends, self.begun, steps, None, there)

    def follow(self, k: int) -> None:
        """Note that the activities of round k have passed."""
        trail = self._trail
        if self._at_server:
            self.begun[k] = trail.server
            self.ended[k] = self._numbers[k] if self._there[k] else trail.server
            trail.server = int(self.ended[k, 0])
        else:
            self.begun[k] = trail.clients
            trail.clients = self.ended[k] = np.where(self._there[k], self._numbers[k], trail.clients)


class MessageTrail:
    """Messages of all clients, or to them: the events in which they are sent, begin to move, and arrive."""

    def __init__(
        self, trail: Trail, late: Bools, began: Floats, ends: Floats, steps: Ints, places: Ints | None
    ) -> None:
        self._trail, self._late = trail, late
        self.begun, self.moving = np.empty(ends.shape, np.int64), np.empty(ends.shape, np.int64)
        self._numbers = trail.events(began, self.begun, steps, places, late)
        self.arrived = trail.events(ends, self.moving, steps, places)

    def follow(self, k: int, events: Any) -> None:
        """Note that the messages of round k are sent in ``events``."""
        self.begun[k] = events
        self.moving[k] = np.where(self._late[k], self._numbers[k], self.begun[k])


class SendingOrder:
    """The order in which messages of the clients (M,), and of the server to them, join a queue.

    Of two events at one instant, the one comes first whose cause, the end of what a client did before, came first.
    What a client does begins with the arrival of the server's message, which is dealt with as its instant ends.
    """

    def __init__(self, clients: int) -> None:
        self.server: Ints = np.arange(clients)
        """The places of the clients in the order in which the server sends to them."""
        self._heard = self.server.copy()  # the place of each client's message in the server's latest queue
        self._since: list[Floats] = [np.zeros(clients)]
        """When clients began, or have heard from the server, and the ends of what they have done since."""

    def note(self, times: Floats) -> None:
        """Note when an activity of each client ends (M,)."""
        self._since.append(times.copy())

    def of_server(self, entered: Floats) -> Ints:
        """Return the places of the clients in the order in which messages to them enter their link (M,)."""
        order: Ints = self.server[np.argsort(entered[self.server], kind="stable")]
        self._heard[order] = np.arange(len(order))
        self._since.clear()
        return order

    def of_clients(self, entered: Floats) -> Ints:
        """Return the places of the clients in the order in which their messages enter the server's link (M,)."""
        order = np.argsort(entered, kind="stable")
        times = entered[order]
        if (times[1:] == times[:-1]).any():
            causes = [self.causes(place, time) for place, time in enumerate(entered.tolist())]
            order = np.array(sorted(range(len(causes)), key=causes.__getitem__))
        return order

    def causes(self, place: int, time: float) -> list[float]:
        """Return the times of a client's latest events, from ``time`` back to the arrival of the server's message."""
        causes = [time]
        for times in reversed(self._since):
            if times[place] != causes[-1]:
                causes.append(float(times[place]))
        return [*causes, math.inf, float(self._heard[place])]


class Now:
    """How far the clients (M,) and the server are, in seconds; and when what clients sent last arrives (M,).

    ``trail`` notes events of the world, where they are ``recorded``. ``given`` (M,) is when each client has what the
    others have sent before the first round, None where it has.
    """

    def __init__(self, clients: int, recorded: bool = False) -> None:
        self.clients: Floats = np.zeros(clients)
        self.arrives: Floats = self.clients
        self.server = 0.0
        self.given: Floats | None = None
        self.trail = Trail(clients) if recorded else None
        self.arriving: Ints | None = None
        """The events in which what clients sent last arrives (M,)."""
        self.sending = SendingOrder(clients)

    @property
    def horizon(self) -> float:
        """How far all parties are."""
        return min(float(self.clients.min(initial=math.inf)), self.server)
