"""How old the embeddings are that a server step uses: pure bookkeeping on indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch
from vflsim.learning.operations import Handle


class Staleness:
    """Ages in server steps, 0 for what arrived for the step itself (VAFL Eq. 3 counts the same from 1).

    *Row age*: steps since this client's row of this sample was refreshed. *Client age*: steps since the client's last
    arrival. A row never refreshed, and a client never heard of, count from the start (one step before the first):
    what ``first_fill`` put there was put there then.
    """

    def __init__(self, clients: Sequence[int], rows: int) -> None:
        self.step = 0
        self._column = {client: j for j, client in enumerate(clients)}
        self._clients = np.asarray(clients, dtype=np.int64)
        # A row a sample, as in the table itself: what a step looks up are rows of all clients.
        self._rows = np.full((rows, len(clients)), -1, dtype=np.int32)
        self._last = np.full(len(clients), -1, dtype=np.int64)

    def refresh(self, clients: Sequence[int], batch: Batch) -> None:
        """Embeddings of ``batch`` arrived from ``clients`` for the present step."""
        columns = [self._column[client] for client in clients]
        if len(set(columns)) == len(self._clients):  # whole rows: a tenth of the time
            self._rows[batch.ids] = self.step
        else:
            self._rows[batch.ids[:, np.newaxis], columns] = self.step
        self._last[columns] = self.step

    def others(self, clients: Sequence[int]) -> NDArray[np.int64]:
        """Every client but ``clients``, in client order."""
        other = np.ones(len(self._clients), dtype=bool)
        other[[self._column[client] for client in clients]] = False
        return self._clients[other]

    def client_ages(self) -> NDArray[np.int64]:
        """Age of every client at the present step, in client order."""
        return self.step - self._last

    def fresh(self) -> NDArray[np.int64]:
        """The clients whose age is 0 at the present step, in client order."""
        fresh: NDArray[np.int64] = self._clients[self._last == self.step]
        return fresh

    def row_ages(self, batch: Batch) -> NDArray[np.int64]:
        """Oldest age among the rows of ``batch``, for every client in client order."""
        oldest: NDArray[np.int64] = self._rows[batch.ids].min(axis=0).astype(np.int64)
        return self.step - oldest

    def row_age_sums(self, batch: Batch, clients: Sequence[int]) -> tuple[float, int, int]:
        """Sum, count and maximum of the ages of the rows of ``batch`` of ``clients``."""
        stamps = self._rows[batch.ids]
        if len(clients) < len(self._clients):
            stamps = stamps[:, [self._column[client] for client in clients]]
        total = self.step * stamps.size - int(stamps.sum(dtype=np.int64))
        return total, stamps.size, self.step - int(stamps.min())

    def older_than(self, bound: int, age: str, batches: Sequence[Batch]) -> list[tuple[int, Batch]]:
        """(client, batch) pairs about to be used whose ``client_age`` or ``row_age`` exceeds ``bound``.

        A client is named once for each of ``batches`` in which it is too old; arrivals must have been refreshed before.
        """
        stale: list[tuple[int, Batch]] = []
        for batch in batches:
            ages = self.client_ages() if age == "client_age" else self.row_ages(batch)
            stale += [(int(client), batch) for client in self._clients[ages > bound]]
        return stale


@dataclass(slots=True)
class StepFacts:
    """What a server step used: clients whose embeddings arrived for it, those it went on without, and ages.

    ``row_ages`` is (sum, count, maximum) over the rows used; ``client_ages`` one age a client, in client order;
    ``fresh`` are the clients of age 0. Those are the clients used and, besides, whoever the step has heard of in
    another way: by an answer to a query, or as a part of a coded sum.
    """

    used: Sequence[int]
    missing: Sequence[int] | NDArray[np.int64]
    row_ages: tuple[float, int, int]
    client_ages: Sequence[int] | NDArray[np.int64]
    fresh: Sequence[int] | NDArray[np.int64]
    loss: Handle[float] | None = None
