"""The common plan of a coded run: points, scales, shapes, and the cost of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser, worst_sum

Arithmetic = Literal["coded", "decoded"]
_PER_PRODUCT = 2.0
"""FLOPs of a multiplication and an addition; field operations count like others."""


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
