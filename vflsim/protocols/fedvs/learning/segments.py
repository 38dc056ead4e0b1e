"""Mini-batches of segmented data: the same rows of every segment (FedVS Sec. 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.training import Training
from vflsim.setting import BatchPlan
from vflsim.streams import SHARED


@dataclass(frozen=True, kw_only=True)
class SegmentedBatch(Batch):
    """|B| rows of each of K segments, stacked segment by segment.

    ``rows`` are the K|B| rows of the padded training data, ``real`` marks the training rows among them, which are
    ``ids``. ``positions`` are the |B| places within a segment. All read-only.
    """

    positions: NDArray[np.int64] = field(compare=False, repr=False)
    rows: NDArray[np.int64] = field(compare=False, repr=False)
    real: NDArray[np.bool_] = field(compare=False, repr=False)


class SegmentedBatches(BatchSequence):
    """Batches over ``rows`` training rows, padded to a multiple of ``segments`` and cut into ``segments``.

    Each epoch permutes the places within a segment; a batch has ``training.batch`` rows, |B| of each segment (all
    places with ``batch: all``). Segments are consecutive rows of the data. ``size`` and ``length`` count places. Raises
    ValueError if the segments do not divide the batch, or if there are fewer rows than segments or than a batch has.
    """

    def __init__(self, rows: int, segments: int, training: Training, seed: int) -> None:
        if rows < segments:
            raise ValueError(f"{rows} training rows cannot be cut into K = {segments} segments; lower K")
        batch = training.batch_of(rows)
        if training.batch != "all" and batch % segments:
            raise ValueError(
                f"a batch of {batch} rows cannot be drawn in equal parts from K = {segments} segments; "
                f"allowed: a multiple of {segments}, such as {max(1, round(batch / segments)) * segments}"
            )
        self.training_rows, self.segments = rows, segments
        self.segment_rows = -(-rows // segments)
        own = training.model_copy(update={"batch": -(-batch // segments), "batches": "shared"})
        super().__init__(self.segment_rows, own, seed, SHARED)

    @property
    def smallest(self) -> int:
        """The fewest training rows of a batch, some rows of which may be padding."""
        fewest = range(self.segment_rows - self._last, self.segment_rows)  # padding is at the last places
        return sum(1 + (self.training_rows - 1 - place) // self.segment_rows for place in fewest)

    def sizes(self) -> tuple[Batch, ...]:
        """Return a batch of each size: of so many places, and with so many padded rows."""
        return super().sizes() if not self._padded else tuple(self._of_size(*each) for each in self._numbers)

    def sizes_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each number of a batch the place of its size in ``sizes``."""
        if not self._padded:
            return super().sizes_of(numbers)
        epochs, places = np.divmod(numbers, self.per_epoch)
        known: dict[int, list[int]] = {epoch: self._sizes_in(epoch) for epoch in np.unique(epochs).tolist()}
        return np.array([known[epoch][place] for epoch, place in zip(epochs.tolist(), places.tolist(), strict=True)])

    def _sizes_in(self, epoch: int) -> list[int]:
        """Return the place in ``sizes`` of each batch of an epoch, without cutting it."""
        starts = np.arange(0, self.per_epoch * self.size, self.size)
        drawn = self._drawn(epoch)[: starts[-1] + self._last]
        padded = np.add.reduceat(self._padded_at[drawn], starts).tolist()
        lengths = [*[self.size] * (self.per_epoch - 1), self._last]
        return [
            self._numbers[places, places * self.segments - each] for places, each in zip(lengths, padded, strict=True)
        ]

    @cached_property
    def _padded_at(self) -> NDArray[np.int64]:
        """The padded rows at each place within a segment."""
        rows = np.arange(self.segments * self.segment_rows).reshape(self.segments, self.segment_rows)
        padded: NDArray[np.int64] = (rows >= self.training_rows).sum(axis=0)
        return padded

    @property
    def _padded(self) -> int:
        """The padded rows of an epoch."""
        return self.segment_rows * self.segments - self.training_rows

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        """The number of every size, (places, training rows)."""
        places = dict.fromkeys((self.size, self._last))
        found = ((some, some * self.segments - padded) for some in places for padded in range(self._padded + 1))
        return {size: number for number, size in enumerate(size for size in found if size[1] > 0)}

    def _of_size(self, places: int, count: int) -> SegmentedBatch:
        """Make a batch of this size, of any rows."""
        rows = np.arange(places * self.segments)
        return SegmentedBatch(0, rows[:count], self.origin, positions=rows[:places], rows=rows, real=rows < count)

    def _cut(self, epoch: int) -> tuple[Batch, ...]:
        starts = np.arange(self.segments)[:, np.newaxis] * self.segment_rows
        batches: list[Batch] = []
        for batch in super()._cut(epoch):
            rows = (starts + batch.ids).ravel()
            real = rows < self.training_rows
            ids = rows[real]
            for array in (rows, real, ids):
                array.setflags(write=False)
            batches.append(
                SegmentedBatch(batch.index, ids, batch.origin, positions=batch.ids, rows=rows, real=real)
            )  # fmt: skip
        self._epochs[epoch] = tuple(batches)
        return self._epochs[epoch]


class SegmentedPlan(BatchPlan):
    """Batches within ``segments``: |B| = batch / K rows of each, with ``batch: all`` every row."""

    def __init__(self, segments: int) -> None:
        super().__init__()
        self.segments = segments

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make batches within segments. Raises ValueError if the segments do not divide the batch."""
        return SegmentedBatches(rows, self.segments, training, seed)

    def messages(self, clients: int) -> int:
        """Count also the shares of every client's model for all others."""
        return super().messages(clients) + clients * (clients - 1)
