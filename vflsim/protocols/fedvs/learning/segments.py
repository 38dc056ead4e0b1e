"""Mini-batches of segmented data: the same rows of every segment (FedVS Sec. 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        self.segments = segments

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make batches within segments. Raises ValueError if the segments do not divide the batch."""
        return SegmentedBatches(rows, self.segments, training, seed)

    def messages(self, clients: int) -> int:
        """Count also the shares of every client's model for all others."""
        return super().messages(clients) + clients * (clients - 1)
