"""The common plan of a coded run: points, scales, shapes, and the cost of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser, worst_sum
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.training import Training
from vflsim.streams import SHARED

Arithmetic = Literal["coded", "decoded"]
_PER_PRODUCT = 2.0
"""FLOPs of a multiplication and an addition; field operations count like others."""
MOST_KEPT = 2**25
"""The most bytes of data shares that a simulation keeps; more are computed batch by batch."""


@dataclass(frozen=True)
class CodingPlan:
    """K segments, T masks, one share per client, and derived numbers (FedVS Sec. 4, 5.3).

    ``columns`` are Σ_i d_i (plus one for a bias) of every client's expanded features, ``row_bounds`` the largest
    Σ_c |x̄_rc| of its rows, ``batch`` the rows of a full mini-batch. Invariant: while no quantised weight exceeds
    ``weight_limit``, the field represents every sum over clients: none can wrap.
    """

    code: LagrangeCode
    quantiser: Quantiser
    columns: Mapping[int, int]
    row_bounds: Mapping[int, int]
    weight_bound: float
    rows: int
    batch: int
    embedding: int
    arithmetic: Arithmetic
    seed: int

    @property
    def clients(self) -> tuple[int, ...]:
        """The participants in client order; the j-th holds the shares at α_j."""
        return tuple(self.columns)

    @property
    def segments(self) -> int:
        """K."""
        return self.code.segments

    @property
    def masks(self) -> int:
        """T."""
        return self.code.masks

    @property
    def segment_rows(self) -> int:
        """Rows of a segment, the last of which may be padding."""
        return -(-self.rows // self.segments)

    @property
    def batch_places(self) -> int:
        """|B|, the rows that a full mini-batch has of every segment; with ``batch: all`` some may be padding."""
        return -(-self.batch // self.segments)

    @cached_property
    def threshold(self) -> int:
        """R = 2(K+T−1) + 1, the recovery threshold (Thm 5.1)."""
        return self.code.threshold()

    @cached_property
    def places(self) -> dict[int, int]:
        """The position of every client among the shares."""
        return {client: place for place, client in enumerate(self.clients)}

    @cached_property
    def weight_limit(self) -> int:
        """The largest magnitude that a quantised weight may have."""
        return self.quantiser.weight_limit(self.weight_bound)

    @cached_property
    def worst(self) -> int:
        """An upper bound of |Σ X̄W̄|."""
        return worst_sum(list(self.row_bounds.values()), self.weight_limit)

    @property
    def storage(self) -> int:
        """Bytes of data shares at every client: one of each client, its own included (Sec. 5.3)."""
        return self.segment_rows * sum(self.columns.values()) * self.quantiser.field.wire_dtype.itemsize

    def facts(self) -> dict[str, int | float]:
        """Return the facts about the code for the results."""
        return {
            "K": self.segments,
            "T": self.masks,
            "recovery_threshold": self.threshold,
            "clients": len(self.columns),
            "prime": self.quantiser.field.p,
            "data_bits": self.quantiser.data_bits,
            "weight_bits": self.quantiser.weight_bits,
            "weight_bound": self.weight_bound,
            "storage_bytes": self.storage,
        }

    def sharing_factor(self, log_base: float) -> float:
        """Return log² N / |B|, the ratio of the durations of sharing a model and a coded embedding (Sec. 6.2).

        |B| belongs to a full batch in every round: a model share does not shrink with the last batch of an epoch.
        """
        return math.log(len(self.columns), log_base) ** 2 / self.batch_places

    def units(self, client: int, products: float) -> float:
        """Return the factor of a client's sampled time for ``products`` multiplications.

        A sampled time belongs to an ordinary embedding of a full batch: batch · h d D multiplications.
        """
        return products / (self.batch * self.columns[client] * self.embedding)

    # --- multiplications of each step (Sec. 5.3, the constant of every O(·) taken as one) -------------------------

    def data_sharing_products(self, client: int, places: int | None = None) -> float:
        """Count n d D N log² N / K, or those of ``places`` rows of a segment."""
        return (self.segment_rows if places is None else places) * self.columns[client] * self._evaluation

    def model_sharing_products(self, client: int) -> float:
        """Count d h D N log² N."""
        return self.columns[client] * self.embedding * self._evaluation

    def coded_embedding_products(self, places: int) -> float:
        """Count |B| h Σ_i d_i D_i."""
        return float(places * self.embedding * sum(self.columns.values()))

    def decoding_products(self, places: int) -> float:
        """Count |B| h R log² R."""
        return places * self.embedding * self.threshold * math.log2(self.threshold) ** 2

    @property
    def _evaluation(self) -> float:
        """N log² N: a polynomial at N points."""
        return len(self.columns) * math.log2(len(self.columns)) ** 2


def flops(products: float) -> float:
    """Count the FLOPs of ``products`` multiplications with their additions."""
    return _PER_PRODUCT * products


# --- batches cut into segments ----------------------------------------------------------------------------------------


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
        part = training.model_copy(update={"batch": -(-batch // segments), "batches": "shared"})
        super().__init__(self.segment_rows, part, seed, SHARED)

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
        return self.segment_rows * self.segments - self.training_rows

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        """The number of every size, (places, training rows)."""
        places = dict.fromkeys((self.size, self._last))
        sizes = ((some, some * self.segments - padded) for some in places for padded in range(self._padded + 1))
        return {size: number for number, size in enumerate(size for size in sizes if size[1] > 0)}

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
