"""The order in which the world deals with the events of arrays: that of its calendar, by time, moment and number."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from vflsim.recurrences.chunk import EventCourse, Happenings, Joins
from vflsim.recurrences.stages import Ints

LATER = 2**62
"""The rank of events that have not been ranked."""
EVENT, WHOLE, SINGLY = range(3)
"""What ``Happenings.collects`` says."""


class EventOrder:
    """Ranks events, of a server and so many clients, in the order in which they happen.

    At one time those come first that have been scheduled earlier, as their causes were dealt with; then parties get
    their messages, one party after the other, and what each schedules for the same time comes before the next party.
    """

    def __init__(self, clients: int) -> None:
        self._numbers = self._ranks = np.arange(clients + 1)
        self._open = Happenings(*(np.empty(0, kind) for kind in (int, float, int, int, int, int)))
        self._joins = Joins(*np.empty((2, 0), np.int64))
        self._count = clients + 1

    def rank(self, numbers: Ints) -> Ints:
        """Return the ranks of events, ``LATER`` for those that have none yet."""
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[places] == numbers, self._ranks[places], LATER)

    def add(self, course: EventCourse) -> None:
        """Take in the events of some rounds."""
        self._open = Happenings.joined([self._open, course.happenings])
        self._joins = Joins.joined([self._joins, course.joins])

    def settle(self, before: float, others: Ints) -> None:
        """Rank the events ``before`` a time, to which none will be added; keep the ranks of these and ``others``."""
        ripe = self._open.times < before
        events, self._open = self._open.only(ripe), self._open.only(~ripe)
        events = events.only(np.lexsort((events.numbers, events.times)))
        by_number = np.argsort(events.numbers)
        sorted_ = events.numbers[by_number]

        def places(numbers: Ints) -> Ints:
            """Return places among the sorted events, -1 for others."""
            if not len(sorted_):
                return np.full(len(numbers), -1)
            at = np.minimum(np.searchsorted(sorted_, numbers), len(sorted_) - 1)
            return np.where(sorted_[at] == numbers, by_number[at], -1)

        collections = places(self._joins.collections)
        here = collections >= 0
        collections, causes = collections[here], places(self._joins.causes[here])
        self._joins = self._joins.only(~here)
        direct = places(events.causes)
        latest = direct.copy()
        np.maximum.at(latest, collections, causes)
        same = np.concatenate([[False], events.times[1:] == events.times[:-1]])[: len(latest)]
        unclear = np.flatnonzero(same & (latest != np.arange(len(latest)) - 1))
        ranks = self._count + np.arange(len(latest))
        if len(unclear):
            firsts = np.flatnonzero(~same)
            groups = np.unique(np.searchsorted(firsts, unclear, side="right") - 1)
            bounds = np.stack([firsts, np.append(firsts[1:], len(ranks))], axis=1)[groups].tolist()
            instants = _Instants(events, direct, self.rank(events.causes), collections, causes, ranks.tolist())
            for start, stop in bounds:
                instants.order(start, stop)
            ranks = np.array(instants.ranks)
        self._count += len(ranks)
        known = np.isin(self._numbers, np.concatenate([others, self._open.causes]))
        numbers = np.concatenate([self._numbers[known], events.numbers])
        order = np.argsort(numbers)
        self._numbers, self._ranks = numbers[order], np.concatenate([self._ranks[known], ranks])[order]


class _Instants:
    """Orders the events at one time. ``direct`` are the places of their causes among all, ``early`` else their ranks.

    ``collections`` and ``causes`` are the places of joins.
    """

    def __init__(
        self, events: Happenings, direct: Ints, early: Ints, collections: Ints, causes: Ints, ranks: list[int]
    ) -> None:
        self.ranks = ranks
        self._early, self._direct = early.tolist(), direct.tolist()
        self._keys = [*zip(events.steps.tolist(), events.places.tolist(), strict=True)]
        self._collects = events.collects.tolist()
        self._awaiting = defaultdict[int, list[int]](list)
        self._missing = [0] * len(ranks)
        for collection, cause in zip(collections.tolist(), causes.tolist(), strict=True):
            self._awaiting[cause].append(collection)
            self._missing[collection] += 1

    def order(self, start: int, stop: int) -> None:
        """Put the events from one place to another, which are at one time, into their order."""
        ranks, direct, collects, missing = self.ranks, self._direct, self._collects, self._missing
        first, rank = ranks[start], list[tuple[int, tuple[int, int], int]]()
        following = defaultdict[int, list[int]](list)
        for place in range(start, stop):
            if collects[place] == EVENT:
                cause = direct[place]
                if cause >= start:
                    following[cause].append(place)
                else:
                    rank.append((ranks[cause] if cause >= 0 else self._early[place], self._keys[place], place))
        rank.sort()
        soon, ends = deque([place for _, _, place in rank]), deque[int]()
        while soon or ends:
            place = soon.popleft() if soon else ends.popleft()
            if missing[place]:
                continue  # it awaits more, which will have it come again
            ranks[place] = first
            first += 1
            if place in following:
                soon.extend(sorted(following[place], key=self._keys.__getitem__))
            for collection in self._awaiting.get(place, ()):
                missing[collection] -= 1
                if collection not in ends if collects[collection] == SINGLY else not missing[collection]:
                    ends.append(collection)
