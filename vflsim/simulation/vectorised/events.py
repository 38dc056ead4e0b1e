"""The table of events from arrays: the spans of each chunk of rounds, in the order in which events record them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import AT_SERVER, Chunk, Told, bytes_moved, undecided
from vflsim.recurrences.stages import Ints
from vflsim.simulation.vectorised.order import LATER, EventOrder
from vflsim.stopping.end_rule import End
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES, Events

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
            if span.told is not None:
                yield self._of(_WHAT[span.state], span.told, span.began, span.ends, span.places)
        for moves in (*chunk.before, *chunk.during, *chunk.after):
            if moves.told is not None:
                clients = np.arange(moves.ends.shape[1])
                parties = clients if moves.direction == "up" else AT_SERVER
                yield self._of(_TRANSFER, moves.told, moves.began, moves.ends, parties, moves.sizes, moves.rates)

    def _of(
        self, what: int, facts: Told, began: Floats, ends: Floats, parties: Ints, sizes: Any = 0, rates: Any = np.inf
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
