"""The table of latest embeddings that VAFL's server keeps (Sec. 2): a row a sample, the parties side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate, pairwise
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflsim.learning.batches import CPU, Batch

Arrived: TypeAlias = tuple[int, Batch, Tensor]
"""The place of a party, a batch, and the party's embeddings of it, (rows, width)."""


_LARGE = 2**24
"""Bytes of a table from which on its memory is worth keeping."""
_pool: ContextVar[_Pool | None] = ContextVar("_pool", default=None)


class EmbeddingTable:
    """Latest embedding of every (sample, client); zeros where none was ever received.

    A sample's embeddings lie side by side, so that reading a batch is one gather of long rows. Memory is the system's
    zero pages until a row is first written.
    """

    def __init__(self, rows: int, widths: Sequence[int], dtype: torch.dtype, device: torch.device = CPU) -> None:
        edges = [0, *accumulate(widths)]
        self._columns = [slice(start, end) for start, end in pairwise(edges)]
        self._values = zeros((rows, edges[-1]), dtype, device)

    @property
    def device(self) -> torch.device:
        """The device that holds the table."""
        return self._values.device

    def fill(self, columns: Iterable[tuple[int, Tensor]]) -> None:
        """Replace every row of some parties: the place of each, and its (rows, width)."""
        for place, embeddings in columns:
            self._values[:, self._columns[place]] = embeddings

    def write(self, arrived: Sequence[Arrived]) -> None:
        """Replace rows by embeddings that ``arrived``, in this order."""
        for place, batch, embeddings in arrived:
            self._values[batch.tensor(self.device), self._columns[place]] = embeddings

    def rows(self, ids: Tensor, clients: int) -> Tensor:
        """Return the rows ``ids`` of all ``clients``, which are equally wide: (len(ids), clients, width)."""
        return self._values.index_select(0, ids).view(len(ids), clients, -1)

    def read(self, ids: Tensor) -> list[Tensor]:
        """Return the rows ``ids`` of every client, in client order: (len(ids), width) each."""
        rows = self._values.index_select(0, ids)
        return [rows[:, columns] for columns in self._columns]

    def state(self) -> dict[str, Tensor]:
        """Return all rows, by name: the tensor itself."""
        return {"rows": self._values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._values.copy_(state["rows"])


def zeros(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; on the CPU memory is taken when it is first written, or is that of a table that has gone."""
    if device != CPU:
        return torch.zeros(shape, dtype=dtype, device=device)
    of = torch.empty(0, dtype=dtype).numpy().dtype
    pool = _pool.get()
    return torch.from_numpy(np.zeros(shape, of) if pool is None else pool.zeros(shape, of))


@contextmanager
def reusing_memory() -> Iterator[None]:
    """Let large tables take the memory of earlier ones that nobody holds any more, until the body ends.

    The system zeroes fresh memory page by page, which takes longer than the few rounds of a trial.
    """
    before = _pool.set(_Pool())
    try:
        yield
    finally:
        _pool.reset(before)


class _Pool:
    """Memory of tables, each with a reference to the latest array that was made of it."""

    def __init__(self) -> None:
        self._lent: list[tuple[NDArray[np.uint8], Callable[[], NDArray[Any] | None]]] = []

    def zeros(self, shape: tuple[int, int], of: np.dtype[Any]) -> NDArray[Any]:
        """Return zeros, in the smallest memory that is free and large enough; without any, in new memory.

        Free memory that is too small goes then: tables of one scenario are mostly of one size.
        """
        size = math.prod(shape) * of.itemsize
        if size < _LARGE:
            return np.zeros(shape, of)
        place = min(
            (place for place, (memory, array) in enumerate(self._lent) if array() is None and len(memory) >= size),
            key=lambda place: len(self._lent[place][0]),
            default=None,
        )
        if place is None:
            self._lent = [(memory, array) for memory, array in self._lent if array() is not None]
            memory = np.zeros(size, np.uint8)
        else:
            memory, _ = self._lent.pop(place)
            memory[:size] = 0
        array = memory[:size].view(of).reshape(shape)
        self._lent.append((memory, ref(array)))
        return array
