"""The table of events from arrays, in the order of the world's calendar: by time, moment and number."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import (
    AT_SERVER,
    Chunk,
    EventCourse,
    EventFacts,
    Happenings,
    Joins,
    bytes_moved,
    undecided,
)
from vflsim.recurrences.stages import Ints
from vflsim.stopping.end_rule import End
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES, Events

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


_COMPUTE, _DELAY, _LATENCY, _TRANSFER, _ACTIVATION = range(5)
_WHAT = {"compute": _COMPUTE, "radio": _DELAY, "latency": _LATENCY, "activation": _ACTIVATION}
_UPDATE, _ROUND = 1, 2
_ROW = np.dtype([
    ("event", Events.row), *((name, "i8") for name in ("begun", "moving", "ended", "step", "place")),
    ("rate", "f8"), ("what", "i1"), ("counts", "i1"),
])  # fmt: skip
"""A row of the table, and the events of the world in which it begins, moves (a message) and ends."""
_ENDLESS = np.iinfo(np.int64).max


class EventBooks:
    """The events of one run, chunk by chunk."""

    def __init__(self, clients: Ints) -> None:
        self.events = Events()
        self._order = EventOrder(len(clients))
        self._numbers = np.concatenate([clients, [-1, SERVER]])  # at places -2, of nobody, and -1, of the server
        self._open = np.empty(0, _ROW)
        self._horizon, self._updates = 0.0, 0

    def add(self, chunk: Chunk) -> None:
        """Take in a chunk, whose events are not recorded before ``settle``. Raises ``UndecidedError``."""
        if chunk.course is None:
            raise undecided("the recurrence does not tell the order of events", chunk.first, self._horizon)
        self._order.add(chunk.course)
        self._open = np.concatenate([self._open, *self._rows(chunk)])
        self._horizon = chunk.course.horizon

    def covers(self, end: End) -> bool:
        """Return whether all has been told that happens up to the end of the run."""
        return self._horizon > end.time

    def settle(self, end: End | None) -> None:
        """Record what has ended by now, and with the ``end`` of the run also what has not."""
        now = self._horizon if end is None else np.nextafter(end.time, np.inf)
        self._order.settle(now, np.concatenate([self._open["begun"], self._open["moving"]]))
        rows = self._open
        ranks = self._order.rank(rows["ended"])
        if end is not None:
            self._close(rows, ranks, end)
            return
        done = ranks < LATER
        self._record(rows[done], ranks[done])
        self._open = rows[~done]

    def _record(self, rows: NDArray[np.void], ranks: Ints) -> None:
        rows = rows[np.lexsort((rows["place"], rows["step"], ranks))]
        updates, kinds = rows["event"][rows["counts"] == _UPDATE], [*self.events.kinds]
        self._updates += len(updates)
        self.events.steps |= {kinds[code].removeprefix("compute.") for code in np.unique(updates["kind"]).tolist()}
        self.events.append(rows["event"])

    # --- the end of the run -------------------------------------------------------------------------------------------

    def _close(self, rows: NDArray[np.void], ranks: Ints, end: End) -> None:
        """Record what has ended up to the end of the run, and then what it cuts short: work, then messages."""
        last, event, until = LATER - 1, -1, _ENDLESS
        if end.moment != "time":
            last, event, until = self._last(rows, ranks, end)
        begun = self._order.rank(rows["begun"])

        def there(at: Ints, numbers: Ints) -> Any:
            return (at < last) | ((numbers == event) & (rows["step"] < until)) if event >= 0 else at <= last

        done, began = there(ranks, rows["ended"]), there(begun, rows["begun"])
        self._record(rows[done], ranks[done])
        cut, now = rows[began & ~done], end.time
        cut["event"]["end_s"], cut["event"]["outcome"] = now, OUTCOMES.index("unfinished")
        work = cut[cut["what"] <= _DELAY]["event"]
        self.events.append(work[np.argsort(work["party"], kind="stable")])
        order = np.lexsort((cut["what"], cut["place"], cut["step"], self._order.rank(cut["begun"])))
        sent = cut[order[np.isin(cut["what"][order], (_LATENCY, _TRANSFER))]]
        moves = (sent["moving"] == sent["begun"]) | (self._order.rank(sent["moving"]) <= last)
        events, transfers = sent["event"], sent["what"] == _TRANSFER
        under_way = transfers & moves & (events["start_s"] < now)
        sizes, started = (events[name][under_way] for name in ("bytes", "start_s"))
        events["bytes"] = 0
        events["bytes"][under_way] = bytes_moved(sizes, started, sent["rate"][under_way], now)
        events["start_s"][transfers & ~moves] = now
        self.events.append(events)

    def _last(self, rows: NDArray[np.void], ranks: Ints, end: End) -> tuple[int, int, int]:
        """Return rank and number of the event that ends the run, and the first step in it that is not done."""
        ending = np.flatnonzero((rows["event"]["end_s"] == end.time) & (rows["counts"] == _ROUND) & (ranks < LATER))
        if end.updates is not None and (updates := np.flatnonzero((rows["counts"] == _UPDATE) & (ranks < LATER))).size:
            order = np.lexsort((rows["place"][updates], rows["step"][updates], ranks[updates]))
            ending = updates[order][end.updates - self._updates - 1 :]
        row = rows[ending[0]]
        # It goes on up to its next computation, or for as long as that takes no time.
        later = (rows["begun"] == row["ended"]) & (rows["step"] > row["step"]) & (rows["what"] == _COMPUTE)
        return int(ranks[ending[0]]), int(row["ended"]), int(rows["step"][later].min(initial=_ENDLESS))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, chunk: Chunk) -> Iterator[NDArray[np.void]]:
        for span in chunk.spans or ():
            if span.facts is not None:
                yield self._of(_WHAT[span.state], span.facts, span.began, span.ends, span.places)
        for moves in (*chunk.before, *chunk.during, *chunk.after):
            if moves.facts is not None:
                clients = np.arange(moves.ends.shape[1])
                parties = clients if moves.direction == "up" else AT_SERVER
                yield self._of(_TRANSFER, moves.facts, moves.began, moves.ends, parties, moves.sizes, moves.rates)

    def _of(
        self,
        what: int,
        facts: EventFacts,
        began: Floats,
        ends: Floats,
        parties: Ints,
        sizes: Any = 0,
        rates: Any = np.inf,
    ) -> NDArray[np.void]:
        rows, kinds = np.zeros(ends.shape, _ROW), self.events.kinds
        event: dict[str, Any] = {
            "start_s": began, "end_s": ends, "drawn_s": facts.drawn, "round": facts.rounds, "bytes": sizes,
            "sent_s": np.nan if facts.sent is None else facts.sent, "index": facts.numbers,
            "kind": np.array([kinds.setdefault(kind, len(kinds)) for kind in facts.kinds]),
            "party": self._numbers[parties], "peer": self._numbers[facts.peers],
        }  # fmt: skip
        place: dict[str, Any] = {
            "begun": facts.begun, "moving": facts.begun if facts.moving is None else facts.moving, "ended": facts.ended,
            "step": facts.steps, "place": 0 if facts.places is None else facts.places, "rate": rates, "what": what,
            "counts": {None: 0, "update": _UPDATE, "round": _ROUND}[facts.counts],
        }  # fmt: skip
        for table, columns in ((rows["event"], event), (rows, place)):
            for name, values in columns.items():
                table[name] = values
        return rows.ravel() if facts.some is None else rows[:, facts.some].ravel()
