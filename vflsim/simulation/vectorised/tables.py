"""The table of rounds from arrays: no Python objects per round, little memory for long lists of clients."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vflsim.recurrences.chunk import Bools, Chunk
from vflsim.results.store.schema import LISTS_TOGETHER
from vflsim.timing.floats import Floats
from vflsim.world.run_tables import ROUNDS, RoundRow, values_of

_FEW = 2048
"""Most clients for whom the lists of all others are kept, for steps on single embeddings."""


class RoundColumns:
    """Collects the columns of ``rounds.parquet``, chunk by chunk."""

    def __init__(self, clients: NDArray[np.int32]) -> None:
        self._clients = clients
        self._ends: list[Floats] = []
        self._used: list[pa.Array] = []
        self._missing: list[pa.Array] = []
        self._all_fresh = False
        self._rest: Bools = np.empty((0, len(clients)), bool)

    def add(self, chunk: Chunk, count: int) -> None:
        """Add the first ``count`` rounds of ``chunk``."""
        self._ends.append(chunk.ends[:count])
        self._all_fresh = chunk.all_fresh
        if chunk.used is not None:
            used = np.concatenate([self._rest, chunk.used[:count]])
            whole = len(used) // LISTS_TOGETHER * LISTS_TOGETHER
            self._rest = used[whole:]
            self._note(used[:whole])

    def columns(self, joules: Floats | None) -> dict[str, Any]:
        """Return the columns for ``RunTables``, given the energy of each round. Call it once, after all additions."""
        ends = np.concatenate([np.empty(0), *self._ends])
        if self._used or len(self._rest):
            self._note(self._rest)
        else:
            self._note_everybody(len(ends))
        used, missing = (pa.chunked_array(lists, pa.list_(pa.int32())) for lists in (self._used, self._missing))
        fresh = self._everybody(len(ends)) if self._all_fresh else used
        starts = np.concatenate([[0.0], ends])[: len(ends)]
        facts = SimpleNamespace(used=used, missing=missing, fresh=fresh)
        rounds = RoundRow(np.arange(len(ends), dtype=np.int64), starts, ends, facts, joules)
        return values_of(ROUNDS, rounds, joules is not None)

    def _note(self, used: Bools) -> None:
        if not len(used):
            return
        one_each = np.count_nonzero(used) == len(used) and used.any(axis=1).all()
        if one_each and len(self._clients) <= _FEW:
            places = used.argmax(axis=1)
            self._used.append(_of_equal_length(self._clients[places][:, None]))
            self._missing.append(_of_equal_length(self._others[places]))
            return
        self._used.append(self._lists(used))
        self._missing.append(self._lists(~used))

    @cached_property
    def _others(self) -> NDArray[np.int32]:
        """All clients but one, for each of them (M, M - 1)."""
        many = len(self._clients)
        return np.broadcast_to(self._clients, (many, many))[~np.eye(many, dtype=bool)].reshape(many, many - 1)

    def _note_everybody(self, count: int) -> None:
        """Note rounds that used all clients."""
        if count:
            self._used = self._everybody(count).chunks
            self._missing = _same(self._lists(np.zeros((min(count, LISTS_TOGETHER), len(self._clients)), bool)), count)

    def _everybody(self, count: int) -> pa.ChunkedArray:
        """List all clients ``count`` times, in lists that share memory."""
        lists = self._lists(np.ones((min(count, LISTS_TOGETHER), len(self._clients)), bool))
        return pa.chunked_array(_same(lists, count), lists.type)

    def _lists(self, chosen: Bools) -> pa.Array:
        """List the chosen clients of every row of ``chosen`` (n, M), in client order."""
        offsets = np.concatenate([[0], np.count_nonzero(chosen, axis=1).cumsum()]).astype(np.int32)
        members = np.broadcast_to(self._clients, chosen.shape)[chosen]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(members))


def _same(lists: pa.Array, count: int) -> list[pa.Array]:
    """Repeat the ``LISTS_TOGETHER`` lists of an array up to ``count``; it has ``count`` if those are fewer."""
    whole, rest = divmod(count, LISTS_TOGETHER)
    return [lists] * whole + ([lists.slice(0, rest)] if rest else [])


def _of_equal_length(lists: NDArray[np.int32]) -> pa.Array:
    """Return lists (n, length) as an array of lists."""
    offsets = np.arange(len(lists) + 1, dtype=np.int32) * lists.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(lists.reshape(-1)))
