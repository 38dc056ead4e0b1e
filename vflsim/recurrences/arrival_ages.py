"""Ages of a table's rows and of clients, where embeddings arrive one by one: ``learning.staleness`` for many steps.

A step reads whole rows of the table, of all clients. Its work here does not grow with the clients: the sum of a row's
ages moves by one client's refresh, and the oldest age of a window of steps is found where a refresh ends it, or as the
window ends.
"""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.batch_rows import BatchRows
from vflsim.recurrences.chunk import AgeSums, Bools
from vflsim.recurrences.stages import Ints

_MANY = 2**17
"""Most rows of arrivals that are dealt with together."""
_SINGLY = 24
"""Most arrivals of a window whose steps are cheaper one by one."""


class ArrivalAges:
    """When each client's row of each sample was refreshed, and when each client arrived last, in server steps."""

    def __init__(self, rows: BatchRows, clients: int) -> None:
        self._rows, self._clients = rows, clients
        self._stamps = np.full((rows.count, clients), -1, np.int32)
        self._flat = self._stamps.reshape(-1)
        self._sums = np.full(rows.count, -clients, np.int64)  # of a row's stamps over the clients
        self._last = np.full(clients, -1, np.int64)

    def window(self, first: int, clients: Ints, indices: Ints) -> AgeSums:
        """Take in steps from ``first`` on; return the sums over them of all ages that they see.

        ``clients`` (n, t) are the places of the clients that arrive for each step, ``indices`` their batches' numbers.
        """
        if clients.size <= _SINGLY:
            return self._step_by_step(first, clients.tolist(), indices.tolist())
        each = max(1, _MANY // (clients.shape[1] * self._rows.longest))
        total = AgeSums()
        for start in range(0, len(clients), each):
            some = slice(start, start + each)
            total += self._part(first + start, clients[some], indices[some])
        return total

    def _step_by_step(self, first: int, clients: list[list[int]], indices: list[list[int]]) -> AgeSums:
        """Take in each step by itself, as the event path does."""
        stamps, sums, last, many = self._stamps, self._sums, self._last, self._clients
        total = count = oldest = clients_total = clients_oldest = 0
        for step, (places, numbers) in enumerate(zip(clients, indices, strict=True), first):
            read = self._rows.each(places, numbers)
            for place, (_, ids) in zip(places, read, strict=True):
                sums[ids] += step - stamps[ids, place]
                stamps[ids, place] = step
            last[places] = step
            for ids in dict(read).values():
                total += step * many * len(ids) - int(np.add.reduce(sums[ids]))
                count += many * len(ids)
                oldest = max(oldest, step - int(stamps[ids].min()))
            clients_total += step * many - int(np.add.reduce(last))
            clients_oldest = max(clients_oldest, step - int(last.min()))
        return AgeSums((total, count, oldest), (clients_total, many * len(clients), clients_oldest))

    def _part(self, first: int, clients: Ints, indices: Ints) -> AgeSums:
        steps = np.repeat(np.arange(first, first + len(clients)), clients.shape[1])
        flat_clients, flat_indices = clients.ravel(), indices.ravel()
        reads = None if clients.shape[1] == 1 else self._rows.distinct(steps, flat_clients, flat_indices)
        rows = self._row_ages(steps, flat_clients, flat_indices, reads)
        return AgeSums(rows, self._client_ages(first, len(clients), steps, flat_clients))

    def _client_ages(self, first: int, count: int, steps: Ints, clients: Ints) -> tuple[int, int, int]:
        """Return sum, count and maximum of all clients' ages at each of ``count`` steps."""
        many, end = self._clients, first + count
        order = np.argsort(clients, kind="stable")
        who, when = clients[order], steps[order]
        begins = _begins(who)
        before = np.empty_like(when)
        before[1:] = when[:-1]
        before[begins] = self._last[who[begins]]
        numbers = many * count * (first + end - 1) // 2
        total = numbers - count * int(self._last.sum()) - int(((when - before) * (end - when)).sum())
        oldest = int((when - 1 - before)[when > first].max(initial=0))
        ends = np.append(begins[1:], len(who)) - 1
        self._last[who[ends]] = when[ends]
        return total, many * count, max(oldest, end - 1 - int(self._last.min()))

    def _row_ages(self, steps: Ints, clients: Ints, indices: Ints, reads: Bools | None) -> tuple[int, int, int]:
        """Return sum, count and maximum of the ages of rows that the steps read, of arrivals that are ``reads``."""
        ids, arrival = self._rows.of(clients, indices)
        when = steps[arrival]
        before = self._refresh(ids, clients, when, arrival, self._rows.levels(clients, indices))
        order = np.argsort(ids.astype(self._rows.smallest), kind="stable")  # a radix sort, where numbers are small
        ids, when, before = ids[order], when[order], before[order]
        begins = _begins(ids)
        lengths = np.diff(begins, append=len(ids))
        place = np.arange(len(ids))  # where the entries of one row and one step begin
        if reads is None:  # every arrival is of another step, and reads its rows
            read_before = place - np.repeat(begins, lengths)
            uses, numbers = lengths, int(when.sum())
        else:  # a row that arrivals refresh together is read afterwards
            reading = reads[arrival][order]
            same = np.flatnonzero(np.concatenate([[True], (ids[1:] != ids[:-1]) | (when[1:] != when[:-1])]))
            place = np.repeat(same, np.diff(same, append=len(ids)))
            done = np.concatenate([[0], np.cumsum(reading)])
            read_before = done[place] - np.repeat(done[begins], lengths)
            uses = np.add.reduceat(reading, begins, dtype=np.int64)
            numbers = int(when[reading].sum())
        count, moved = int(uses.sum()), when - before
        total = self._clients * numbers - int((self._sums[ids[begins]] * uses).sum())
        total -= int((moved * (np.repeat(uses, lengths) - read_before)).sum())
        self._sums[ids[begins]] += np.add.reduceat(moved, begins)
        oldest = self._oldest(ids, when, before, begins, place)
        return total, count * self._clients, oldest

    def _refresh(self, ids: Ints, clients: Ints, when: Ints, arrival: Ints, levels: Ints) -> Ints:
        """Stamp the rows with their steps; return the stamps before. On one level no row is refreshed twice."""
        flat = ids * self._clients + clients[arrival]
        highest = int(levels.max())
        if highest == 0:
            stamps: Ints = self._flat[flat].astype(np.int64)
            self._flat[flat] = when
            return stamps
        before = np.empty(len(ids), np.int64)
        of_rows = levels[arrival]
        for level in range(highest + 1):
            here = np.flatnonzero(of_rows == level)
            before[here] = self._flat[flat[here]]
            self._flat[flat[here]] = when[here]
        return before

    def _oldest(self, ids: Ints, when: Ints, before: Ints, begins: Ints, place: Ints) -> int:
        """Return the oldest age read: by the last step that reads a row before its refresh, or in the window.

        ``place`` is where the entries of an entry's row and step begin: the entry before is the last step's.
        """
        ends = np.append(begins[1:], len(ids)) - 1
        oldest = int((when[ends] - self._stamps[ids[begins]].min(axis=1)).max(initial=0))
        later = np.ones(len(ids), bool)  # than the row's first step in the window
        later[begins] = False
        later = later[place]
        return max(oldest, int((when[place[later] - 1] - before[later]).max(initial=0)))


def _begins(sorted_: Ints) -> Ints:
    """Return where each value begins in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
