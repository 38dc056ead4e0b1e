"""How old the embeddings are that a server step uses: what an age is, for one step and for many at once.

The event path, arrays and ``verify`` all count ages here: pure bookkeeping on indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle

Arrival: TypeAlias = tuple[Batch, Sequence[int]]
"""A batch, and the clients whose embeddings of it arrived."""


class Ages(NamedTuple):
    """Sum, number and maximum of ages in server steps."""

    total: float = 0
    number: int = 0
    oldest: int = 0

    @classmethod
    def of(cls, ages: NDArray[Any]) -> Ages:
        """Sum up single ages."""
        return cls(int(ages.sum()), ages.size, int(ages.max(initial=0)))

    @classmethod
    def since(cls, stamps: NDArray[Any], step: int) -> Ages:
        """Sum up the ages, at a ``step``, of what came last in the steps ``stamps``: without an array of ages."""
        total = step * stamps.size - int(stamps.sum(dtype=np.int64))
        return cls(total, stamps.size, step - int(stamps.min(initial=step)))

    def plus(self, other: tuple[float, int, int]) -> Ages:
        """Sum up both."""
        total, number, oldest = other
        return Ages(self.total + total, self.number + number, max(self.oldest, oldest))

    @property
    def mean(self) -> float:
        """The mean age, NaN without any."""
        return self.total / self.number if self.number else math.nan

    @property
    def maximum(self) -> float:
        """The highest age, NaN without any."""
        return float(self.oldest) if self.number else math.nan


NO_AGES = Ages()


class ArrivalSteps:
    """The step for which each client arrived last, by its place among all; one before the first for who never did."""

    def __init__(self, clients: int) -> None:
        self.last = np.full(clients, -1, np.int64)

    def ages(self, step: int) -> NDArray[np.int64]:
        """Return the age of each client at a step."""
        return step - self.last

    def step(self, step: int, places: NDArray[Any] | list[int]) -> Ages:
        """Let the clients at these places (or of this mask) arrive for a step; return the ages of all clients then."""
        self.last[places] = step
        return Ages.since(self.last, step)

    def steps(self, first: int, count: int, steps: NDArray[np.int64], places: NDArray[np.int64]) -> Ages:
        """Take ``count`` steps, with the arrival at each of ``places`` for the one of ``steps``, which ascend.

        Return the ages of all clients at all these steps. The work grows with the arrivals, and not with clients ×
        steps, as it does step by step: each arrival takes as much off all later ages, and ages are highest before one.
        """
        many, end = len(self.last), first + count
        total, oldest = many * count * (first + end - 1) // 2 - count * int(self.last.sum()), 0
        if len(places):
            order = np.argsort(places, kind="stable")
            who, when = places[order], steps[order]
            begins = np.flatnonzero(np.concatenate([[True], who[1:] != who[:-1]]))
            before = np.empty_like(when)
            before[1:] = when[:-1]
            before[begins] = self.last[who[begins]]
            total -= int(((when - before) * (end - when)).sum())
            oldest = int((when - 1 - before)[when > first].max(initial=0))
            ends = np.append(begins[1:], len(who)) - 1
            self.last[who[ends]] = when[ends]
        return Ages(total, many * count, max(oldest, end - 1 - int(self.last.min(initial=end - 1))))


class Staleness:
    """Ages in server steps, 0 for what arrived for the step itself (VAFL Eq. 3 counts the same from 1).

    *Row age*: steps since this client's row of this sample was refreshed. *Client age*: steps since the client's last
    arrival. The age of a row that was never refreshed, and of a client that never sent anything, counts from one step
    before the first: ``first_fill`` filled the table then.

    Example::

        staleness = Staleness(clients=[1, 2], rows=10)
        batch = Batch(0, np.array([0, 1]))
        staleness.complete([(batch, [1])]).client_ages.tolist()  # [0, 1]
    """

    def __init__(self, clients: Sequence[int], rows: int) -> None:
        self.step = 0
        self._column = {client: j for j, client in enumerate(clients)}
        self._clients = np.asarray(clients, dtype=np.int64)
        # A row a sample, as in the table itself: what a step looks up are rows of all clients.
        self._rows = np.full((rows, len(clients)), -1, dtype=np.int32)
        self._arrivals = ArrivalSteps(len(clients))

    def complete(
        self,
        arrived: Sequence[Arrival],
        loss: Handle[float] | None = None,
        used: Sequence[int] | None = None,
        read: Sequence[Arrival] | None = None,
    ) -> StepFacts:
        """Book a step on embeddings that ``arrived`` for it, (batch, clients) each, and begin the next one.

        ``used`` are the clients that the step waited for, and ``read`` the rows that it used: those that arrived,
        unless given.
        """
        for batch, clients in arrived:
            self.refresh(clients, batch)
        if used is None:
            used = sorted({client for _, clients in arrived for client in clients})
        if read is None or read == arrived:  # all have just been refreshed
            ages = Ages(number=sum(len(batch) * len(clients) for batch, clients in arrived))
        else:
            ages = reduce(Ages.plus, (self.row_age_sums(batch, clients) for batch, clients in read), NO_AGES)
        facts = StepFacts(used, self.others(used), ages, self.client_ages(), self.fresh(), loss)
        self.step += 1
        return facts

    def refresh(self, clients: Sequence[int], batch: Batch) -> None:
        """Note that embeddings of ``batch`` arrived from ``clients`` for the present step."""
        if self._are_all(clients):  # whole rows: a tenth of the time
            self._rows[batch.ids] = self._arrivals.last[:] = self.step
            return
        columns = self._columns_of(clients)
        self._rows[batch.ids[:, np.newaxis], columns] = self.step
        self._arrivals.last[columns] = self.step

    def others(self, clients: Sequence[int]) -> NDArray[np.int64]:
        """Return every client but ``clients``, in client order."""
        if self._are_all(clients):
            return self._clients[:0]
        other = np.ones(len(self._clients), dtype=bool)
        other[self._columns_of(clients)] = False
        return self._clients[other]

    def client_ages(self) -> NDArray[np.int64]:
        """Return the age of every client at the present step, in client order."""
        return self._arrivals.ages(self.step)

    def fresh(self) -> NDArray[np.int64]:
        """Return the clients whose age is 0 at the present step, in client order."""
        fresh: NDArray[np.int64] = self._clients[self._arrivals.last == self.step]
        return fresh

    def row_age_sums(self, batch: Batch, clients: Sequence[int]) -> Ages:
        """Sum up the ages of the rows of ``batch`` of ``clients``."""
        stamps = self._rows[batch.ids]
        if len(clients) < len(self._clients):
            stamps = stamps[:, self._columns_of(clients)]
        return Ages.since(stamps, self.step)

    def older_than(self, bound: int, age: str, arrived: Sequence[Arrival]) -> list[tuple[int, Batch]]:
        """Return the (client, batch) pairs whose ``client_age`` or ``row_age`` would exceed ``bound``.

        The batches are those that ``arrived``, (batch, clients) each, which counts as fresh. Changes nothing.
        """
        last, rows = self._arrivals.last.copy(), [self._rows[batch.ids] for batch, _ in arrived]
        for batch, clients in arrived:
            self.refresh(clients, batch)
        stale: list[tuple[int, Batch]] = []
        for batch, _ in arrived:
            latest = self._arrivals.last if age == "client_age" else self._rows[batch.ids].min(axis=0)
            stale += [(int(client), batch) for client in self._clients[self.step - latest > bound]]
        self._arrivals.last[:] = last
        for (batch, _), stamps in zip(arrived, rows, strict=True):
            self._rows[batch.ids] = stamps
        return stale

    def _are_all(self, clients: Sequence[int]) -> bool:
        return len(clients) >= len(self._column) and self._column.keys() <= set(clients)

    def _columns_of(self, clients: Sequence[int]) -> list[int]:
        return [self._column[client] for client in clients]


@dataclass(slots=True)
class StepFacts:
    """What a server step used: the clients whose embeddings arrived for it, the others, and ages.

    ``row_ages`` is (sum, count, maximum) over the rows used; ``client_ages`` one age a client, in client order;
    ``fresh`` are the clients of age 0. Those are the clients used, and those that answered a query or are part of a
    coded sum.
    """

    used: Sequence[int]
    missing: Sequence[int] | NDArray[np.int64]
    row_ages: tuple[float, int, int]
    client_ages: Sequence[int] | NDArray[np.int64]
    fresh: Sequence[int] | NDArray[np.int64]
    loss: Handle[float] | None = None
