"""The tables of latest embeddings that a server keeps, as VAFL's does (Sec. 2), and their sums, row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate, pairwise
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch, row_numbers
from vflsim.vocabulary.on_demand import Tensor, torch

Arrived: TypeAlias = tuple[int, Batch, Tensor]
"""The place of a party, a batch, and the party's embeddings of it, (rows, width)."""
Placed: TypeAlias = tuple[int, int, Batch, Tensor]
"""The same, after the row at which its table begins among the rows of several."""


_LARGE = 2**24
"""Bytes of a table from which on its memory is worth keeping."""
_pool: ContextVar[_Pool | None] = ContextVar("_pool", default=None)


class EmbeddingTable:
    """Latest embedding of every (sample, client); zeros where none was ever received.

    A sample's embeddings lie side by side, so that reading a batch is one gather of long rows. Memory is the system's
    zero pages until a row is first written.
    """

    def __init__(
        self, rows: int, widths: Sequence[int], dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        edges = [0, *accumulate(widths)]
        self._columns = [slice(start, end) for start, end in pairwise(edges)]
        self._values = zeros((rows, edges[-1]), dtype, device)
        self.written = False
        """Whether any row may differ from zero."""

    @property
    def device(self) -> torch.device:
        """The device that holds the table."""
        return self._values.device

    def fill(self, columns: Iterable[tuple[int, Tensor]]) -> None:
        """Replace every row of some parties: the place of each, and its (rows, width)."""
        self.written = True
        for place, embeddings in columns:
            self._values[:, self._columns[place]] = embeddings

    def write(self, arrived: Sequence[Arrived]) -> None:
        """Replace rows by embeddings that ``arrived``, in this order."""
        self.written = True
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
        self.written = True
        self._values.copy_(state["rows"])


def zeros(shape: tuple[int, int], dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """Return zeros; on the CPU memory is taken when it is first written, or is that of a table that has gone."""
    if device is not None and device.type != "cpu":
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


_BLOCK = 2**20
"""Bytes of the table that are summed at a time: what fits into the processor's cache."""
_READ_ALL = 4
"""A batch that one party in so many has sent is summed anew: that is cheaper than as many changes of its sum."""


class SummedTable(EmbeddingTable):
    """Latest embeddings, equally wide, of every (sample, party); and their sum with ``coefficients``, one a party.

    A write adds c_m (new − old) to the sums of its rows, in float64. The rows of a batch are summed anew from the table
    when one of them has changed as often as there are parties. So no sum is further from the exact one than
    6 M u Σ |c_m| A, where M is the number of parties, u = 2⁻⁵³, and A the largest element that the row has held since
    it was summed: at most M u Σ |c_m| A of the sum itself, and 5 u Σ |c_m| A of each change. Which rows are summed
    anew follows from the batches alone.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        coefficients: Sequence[float],
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        parties = len(coefficients)
        super().__init__(rows, [width] * parties, dtype, device)
        self._parties, self._width = parties, width
        self._pieces = self._values.view(rows * parties, width)
        first = coefficients[0]
        self._factor = first if all(each == first for each in coefficients) else None
        self._coefficients = coefficients
        self._weights = torch.tensor([coefficients], dtype=torch.float64, device=device)
        self._sums = zeros((rows, width), torch.float64, device)  # without the factor, where all have the same
        self._changes = np.zeros(rows, dtype=np.int32)

    def fill(self, columns: Iterable[tuple[int, Tensor]]) -> None:
        """Replace every row of some parties, and sum all rows anew."""
        super().fill(columns)
        each = self._rows_of_block()
        for begin in range(0, len(self._sums), each):
            block = slice(begin, begin + each)
            self._sums[block] = self._sum(self._values[block])
        self._changes[:] = 0

    def write(self, arrived: Sequence[Arrived]) -> None:
        """Replace rows, and bring their sums up to date."""
        self.write_together([[(0, *each)] for each in arrived])

    def write_together(self, layers: Sequence[Sequence[Placed]]) -> Tensor | None:
        """Replace rows layer by layer; embeddings that arrived in one layer are equally long, and share no row.

        Returns the sums of a single layer's rows, (rows, width), in its order, if they are at hand.
        """
        self.written = True
        sums: Tensor | None = None
        batches = {_key(begin, batch): (begin, batch) for layer in layers for begin, _, batch, _ in layer}
        counts = Counter(_key(begin, batch) for layer in layers for begin, _, batch, _ in layer)
        anew = {key for key in batches if _READ_ALL * counts[key] >= self._parties}
        for layer in layers:
            places = [(begin, batch) for begin, _, batch, _ in layer]
            rows, new = self._rows(places), _joined([each for _, _, _, each in layer])
            at = self._pieces_of(rows, [place for _, place, _, _ in layer])
            some = [n for n, each in enumerate(places) if _key(*each) not in anew]
            if len(some) == len(layer):
                sums = self._changed(layer, rows, at, new)
            elif some:
                size = len(new) // len(layer)
                parts = [_joined([torch.split(each, size)[n] for n in some]) for each in (rows, at, new)]
                self._changed([layer[n] for n in some], *parts)
            for begin, batch in (places[n] for n in some):
                changes = self._changes[batch.ids + begin] + 1
                self._changes[batch.ids + begin] = changes
                if changes.max() >= self._parties:
                    anew.add(_key(begin, batch))
            self._pieces.index_copy_(0, at, new)
        by_length: dict[int, list[tuple[int, Batch]]] = {}
        for key in sorted(anew):
            by_length.setdefault(len(batches[key][1]), []).append(batches[key])
        for equally_long in by_length.values():
            self._sum_anew(equally_long)
        return sums if len(layers) == 1 and not anew else None

    def joined_together(self, batches: Sequence[tuple[int, Batch]], sums: Tensor | None = None) -> Tensor:
        """Return Σ c_m h_m of the rows of equally long batches, (G, rows, width), whose ``sums`` may be at hand.

        Each batch comes with the row at which its table begins.
        """
        if sums is None:
            sums = self._sums.index_select(0, self._rows(batches))
        scaled = sums if self._factor is None else sums.mul_(self._factor)
        return scaled.to(self._values.dtype).view(len(batches), -1, self._width)

    @classmethod
    def joining(cls, tables: Sequence[SummedTable]) -> SummedTable:
        """Return one table with the rows of several, one after the other."""
        first = tables[0]
        rows, values = sum(len(table._sums) for table in tables), first._values
        table, begin = cls(rows, first._width, first._coefficients, values.dtype, values.device), 0
        for each in tables:
            if each.written:  # copying zeros would take the memory that they have not taken yet
                each.copy_to(table, 0, begin)
            begin += len(each._sums)
        return table

    def copy_to(self, other: SummedTable, begin: int, there: int = 0) -> None:
        """Copy the rows from ``begin`` on, as many as both have, to those of another table from ``there`` on."""
        count = min(len(self._sums) - begin, len(other._sums) - there)
        its, mine = slice(there, there + count), slice(begin, begin + count)
        for theirs, ours in ((other._values, self._values), (other._sums, self._sums)):
            theirs[its] = ours[mine]
        other._changes[its] = self._changes[mine]
        other.written = True

    def joined(self, batch: Batch, instead: Mapping[int, Tensor]) -> Tensor:
        """Return Σ c_m h_m of the rows of ``batch``, (rows, width); ``instead`` replaces those of some parties."""
        ids = batch.tensor(self.device)
        sums = self._sums.index_select(0, ids)
        for place, embeddings in instead.items():
            change = embeddings.double() - self._pieces.index_select(0, ids * self._parties + place)
            sums.add_(change, alpha=self._coefficient(place))
        return (sums if self._factor is None else sums.mul_(self._factor)).to(self._values.dtype)

    def state(self) -> dict[str, Tensor]:
        """Return all rows, their sums, and how often each has changed since it was summed: the tensors themselves."""
        return {**super().state(), "sums": self._sums, "changes": torch.from_numpy(self._changes)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self._sums.copy_(state["sums"])
        self._changes[:] = state["changes"].numpy()

    def _changed(self, layer: Sequence[Placed], rows: Tensor, at: Tensor, new: Tensor) -> Tensor:
        """Bring the sums of a layer's ``rows`` up to date and return them; ``new`` embeddings replace those ``at``."""
        change, sums = new.double() - self._pieces.index_select(0, at), self._sums.index_select(0, rows)
        if self._factor is not None:
            sums.add_(change)
        else:
            size = len(new) // len(layer)
            for (_, place, _, _), part, its in zip(
                layer, torch.split(sums, size), torch.split(change, size), strict=True
            ):
                part.add_(its, alpha=self._coefficients[place])
        self._sums.index_copy_(0, rows, sums)
        return sums

    def _rows(self, batches: Sequence[tuple[int, Batch]]) -> Tensor:
        """Return the rows of equally long batches, one after the other, each from the row at which its table begins."""
        ids = row_numbers([batch for _, batch in batches], self.device)
        begins = [begin for begin, _ in batches]
        return (ids + torch.tensor(begins, device=self.device).view(-1, 1) if any(begins) else ids).flatten()

    def _pieces_of(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        """Return where the embeddings of parties at ``places`` are, of as many of the ``rows`` each."""
        by_place = (rows * self._parties).view(len(places), -1)
        return (by_place + torch.tensor(places, device=self.device).view(-1, 1)).flatten()

    def _coefficient(self, place: int) -> float:
        return 1.0 if self._factor is not None else self._coefficients[place]

    def _rows_of_block(self) -> int:
        return max(1, _BLOCK // (self._parties * self._width * self._values.itemsize))

    def _sum_anew(self, batches: Sequence[tuple[int, Batch]]) -> None:
        rows = self._rows(batches)
        for ids in torch.split(rows, self._rows_of_block() if self.device.type == "cpu" else len(rows)):
            self._sums.index_copy_(0, ids, self._sum(self._values.index_select(0, ids)))
        for begin, batch in batches:
            self._changes[batch.ids + begin] = 0

    def _sum(self, rows: Tensor) -> Tensor:
        values = rows.double().view(len(rows), self._parties, self._width)
        return values.sum(1) if self._factor is not None else (self._weights @ values).squeeze(1)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def _key(begin: int, batch: Batch) -> tuple[int, int, int]:
    return begin, batch.origin, batch.index
