"""Quantisation for a prime field: rounding to integers, and the number of bits that fit (FedVS Sec. 4).

The field's sums must be the integers' sums: nothing may wrap around p. So the bits are chosen from the largest sum
that the data and a bound on the weights allow. The choice can be checked exactly once the data are quantised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from vflsim.coding.field import MERSENNE_61, PrimeField
from vflsim.vocabulary.on_demand import Tensor, torch

LEAST_BITS = 8
"""The fewest bits of data and weights together that ``choose_bits`` accepts."""
MOST_BITS = 52
"""The most bits of either: float64, used for rounding, has no more after the point near 1."""
EXTRA_WEIGHT_BITS = 4
"""How many more bits ``choose_bits`` gives the weights than the data."""


@dataclass(frozen=True)
class Quantiser:
    """Fixed-point integers for a field: l_x bits after the point for data, l_w for weights (FedVS Sec. 4.2 and 4.3).

    Products and their sums thus have l_x + l_w bits after the point. Integers are signed int64 of magnitude at most
    ``field.largest``, which ``field.embed`` turns into elements; ``worst_sum`` bounds the sums of products. Results are
    on the device of the arguments.
    Raises ValueError if either number of bits is not in 0..52.
    """

    field: PrimeField
    data_bits: int
    weight_bits: int

    def __post_init__(self) -> None:
        for name, bits in (("data_bits", self.data_bits), ("weight_bits", self.weight_bits)):
            if not 0 <= bits <= MOST_BITS:
                raise ValueError(f"{name} = {bits}; allowed: 0 to {MOST_BITS}")

    def data(self, x: Tensor) -> Tensor:
        """Round(2^l_x · x): the nearest integer, halves up (FedVS Sec. 4.2); signed int64 of x's shape.

        Raises ValueError for values that are not finite or too large for the field.
        """
        floor, fraction = self._split("data", x, self.data_bits)
        return (floor + (fraction >= 0.5)).to(torch.int64)

    def weights(self, w: Tensor, uniforms: Tensor) -> Tensor:
        """Give ⌊2^l_w · w + u⌋, u uniform in [0, 1): stochastic rounding, right on average (FedVS Eq. 3). Signed int64.

        ``uniforms`` is float64 of the weights' shape. Raises ValueError for another shape, and for weights that are not
        finite or too large for the field.
        """
        if uniforms.shape != w.shape:
            raise ValueError(
                f"uniforms of shape {tuple(uniforms.shape)} for weights of shape {tuple(w.shape)}; allowed: one each"
            )
        floor, fraction = self._split("weights", w, self.weight_bits)
        # Not floor(2^l_w w + u): that sum is rounded, which favours some integers.
        return (floor + (uniforms >= 1.0 - fraction)).to(torch.int64)

    def mean(self, total: Tensor, clients: int) -> Tensor:
        """Give the mean embedding of Σ_n X̄_n W̄_n: total · 2^−(l_x + l_w) / clients (FedVS Eq. 7).

        From signed int64 to float64, two roundings away from the exact quotient.
        Raises ValueError if ``clients`` < 1.
        """
        if clients < 1:
            raise ValueError(f"clients = {clients}; allowed: clients >= 1")
        return total.to(torch.float64) * 2.0 ** -(self.data_bits + self.weight_bits) / clients

    def data_values(self, quantised: Tensor) -> Tensor:
        """Give the numbers of quantised data: quantised · 2^−l_x, float64, exact for the result of ``data``."""
        return quantised.to(torch.float64) * 2.0**-self.data_bits

    def weight_limit(self, weight_bound: float) -> int:
        """The largest magnitude of a quantised weight when no weight exceeds ``weight_bound``: ⌈2^l_w · weight_bound⌉.

        Raises ValueError unless the bound is positive and finite.
        """
        return _weight_limit(weight_bound, self.weight_bits)

    def _split(self, name: str, values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
        """Return ⌊2^bits · values⌋ and the remainder, in [0, 1], both float64."""
        scaled = values.detach().to(torch.float64) * 2.0**bits
        # One comparison finds values that are too large, infinite or NaN.
        if not bool((scaled.abs() < self.field.largest).all()):
            raise ValueError(
                f"{name} with magnitudes up to {values.abs().max().item():g} cannot be written with {bits} bits after "
                f"the point in the field of p = {self.field.p}: 2^{bits} times that must stay below "
                f"{self.field.largest}; use fewer bits, a larger prime, or smaller values"
            )
        floor = scaled.floor()
        return floor, scaled - floor


def worst_sum(row_bounds: Sequence[int], weight_limit: int) -> int:
    """Bound |Σ_n X̄_n W̄_n| by the clients' row bounds together, times the largest quantised weight.

    Nothing wraps in a field whose ``largest`` is at least this.
    """
    return sum(row_bounds) * weight_limit


def choose_bits(field: PrimeField, magnitude: float, columns: int, weight_bound: float) -> tuple[int, int]:
    """Choose the most bits (l_x, l_w) with which no sum of products wraps in ``field``; weights get about four more.

    ``magnitude`` is Σ_n max_row Σ_c |x̂| over the clients' data before quantisation (or more), ``columns`` the number of
    all clients' columns, and no weight exceeds ``weight_bound``. Rounding moves each number by up to 1/2, so no sum
    exceeds ⌊2^l_x · magnitude + columns / 2⌋ · ⌈2^l_w · weight_bound⌉, and that is at most ``field.largest``.

    Weights get more bits (four; five or three for an odd total) because they are smaller, about 1 / √columns of a
    client for features of about 1, and because they are rounded every round, while data are rounded once. The two
    roundings then move the embeddings about equally.
    Raises ValueError where fewer than 8 bits are left in total, and for numbers that are negative, not finite, or 0
    (the magnitude may be 0).
    """
    if not 0 <= magnitude < math.inf:
        raise ValueError(f"magnitude = {magnitude}; allowed: finite numbers from 0")
    if columns < 1:
        raise ValueError(f"columns = {columns}; allowed: columns >= 1")
    for total in range(2 * MOST_BITS, LEAST_BITS - 1, -1):
        for extra in (EXTRA_WEIGHT_BITS, EXTRA_WEIGHT_BITS + 1, EXTRA_WEIGHT_BITS - 1):
            data_bits, odd = divmod(total - extra, 2)
            weight_bits = data_bits + extra
            if odd or weight_bits > MOST_BITS:
                continue
            if _worst(data_bits, weight_bits, magnitude, columns, weight_bound) <= field.largest:
                return data_bits, weight_bits
    data_bits = (LEAST_BITS - EXTRA_WEIGHT_BITS) // 2
    worst = _worst(data_bits, LEAST_BITS - data_bits, magnitude, columns, weight_bound)
    prime = "" if field.p == MERSENNE_61 else "prime: 2^61-1, "
    raise ValueError(
        f"the field of p = {field.p} is too small: rows of magnitude {magnitude:g} in {columns} columns and weights up "
        f"to {weight_bound:g} give sums up to about 2^{worst.bit_length()} at {LEAST_BITS} bits, the fewest that are "
        f"sensible; allowed: sums up to {field.largest}; choose {prime}a smaller weight bound, or features scaled to "
        f"smaller values"
    )


def _worst(data_bits: int, weight_bits: int, magnitude: float, columns: int, weight_bound: float) -> int:
    rows = math.floor(Fraction(magnitude) * (1 << data_bits) + Fraction(columns, 2))
    return rows * _weight_limit(weight_bound, weight_bits)


def _weight_limit(weight_bound: float, bits: int) -> int:
    if not 0 < weight_bound < math.inf:
        raise ValueError(f"weight_bound = {weight_bound}; allowed: finite numbers above 0")
    return math.ceil(Fraction(weight_bound) * (1 << bits))
