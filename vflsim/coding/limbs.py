"""Exact matrix products modulo a prime, by float64 products of limbs.

A float64 product of integer matrices is exact if the magnitudes of the terms of every inner product add up to no more
than 2^53: then each term, and each sum of terms in whatever order and with or without fused multiply-add, is an integer
that float64 holds. So factors are split into small enough limbs, and the inner dimension into short enough blocks.
Every BLAS and the tensor cores of data-centre GPUs are fast at float64; int8 limbs, which other GPUs would multiply
faster, have not been measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import isqrt
from typing import Final, final

import numpy as np
from typing_extensions import override

from vflsim.vocabulary.on_demand import Tensor, torch

EXACT: Final = 2**53
"""Float64 holds every integer up to this magnitude."""
AT_A_TIME: Final = {"cpu": 2**18, "cuda": 2**25}
"""Elements of the result computed at a time, by device: they fit a CPU's caches, or fill a GPU."""
LONG_ENOUGH: Final = 256
"""The block length from which blocks cost little; for shorter ones another limb pays."""


class Limbs(ABC):
    """A way to split factors so that their float64 products are exact, and to join the products."""

    block: int
    """The longest inner dimension for which products are exact."""

    @abstractmethod
    def fixed(self, x: Tensor) -> Tensor:
        """Split the left factor, which is reused: elements (..., n, k) to float64, as ``join`` takes the products."""

    @abstractmethod
    def moving(self, x: Tensor) -> Tensor:
        """Split columns of the right factor (..., k, m)."""

    @abstractmethod
    def join(self, products: Tensor) -> Tensor:
        """Join the product of split factors, overwriting it, to elements (..., n, m), int64 or float64."""


@final
class DigitLimbs(Limbs):
    """For p < 2^31: the right factor whole, the left split into ``limbs`` = 1 or 2 digits, whose rows are stacked.

    The left one is centred: |a| ≤ h = (p − 1)/2. Two digits to the base B = ⌈√p⌉, a = B a₁ + a₀ with a₁ = ⌊a/B⌉, have
    |a₀| ≤ B/2 and |a₁| ≤ h/B + 1/2 ≤ (B + 1)/2; call D = (B + 1)/2, or D = h where there is one digit and B = 0. With
    an inner dimension k such that k p D ≤ 2^53 − p (B + 1), C₁ = Σ a₁ b and C₀ = Σ a₀ b are exact. Centring C₁ leaves
    at most (p + 3)/2 ≤ p, so |B C₁ + C₀| ≤ 2^53 − p, which ``_floored`` reduces exactly. That is k ≤ 179 for
    p = 2^31 − 1: centring the longer factor would double it, and take longer than joining twice as many blocks.
    """

    def __init__(self, p: int, limbs: int) -> None:
        half = (p - 1) // 2
        self.p, self.limbs = p, limbs
        self.base = isqrt(p) + 1 if limbs == 2 else 0
        self.block = (EXACT - p * (self.base + 1)) // (p * ((self.base + 2) // 2 if limbs == 2 else half))

    @override
    def fixed(self, x: Tensor) -> Tensor:
        low = _centred(x.double(), self.p)
        if self.limbs == 1:
            return low
        high = low.div(self.base).round_()
        return torch.cat((high, low.sub_(high, alpha=self.base)), -2)

    @override
    def moving(self, x: Tensor) -> Tensor:
        return x.double()

    @override
    def join(self, products: Tensor) -> Tensor:
        *high, low = products.chunk(self.limbs, -2)
        for product in high:
            low.add_(_centred(product, self.p), alpha=self.base)
        return _floored(low, self.p)


@final
class MersenneLimbs(Limbs):
    """For p = 2^61 − 1: three digits a = a₀ + 2^21 a₁ + 2^42 a₂, and Karatsuba's six products instead of nine.

    0 ≤ a₀, a₁ < 2^21 and 0 ≤ a₂ < 2^19. A product P_i = Σ a_i b_i, and Q_ij = Σ (a_i − a_j)(b_i − b_j), is less than
    2^42 k in magnitude, where k is the inner dimension; P_i + P_j − Q_ij = Σ (a_i b_j + a_j b_i). As 2^63 ≡ 4,
    Σ a b ≡ Z₀ + 2^21 Z₁ + 2^42 Z₂ with Z₀ = P₀ + 4 (P₁ + P₂ − Q₁₂), Z₁ = P₀ + P₁ − Q₀₁ + 4 P₂, Z₂ = P₀ + P₁ + P₂ − Q₀₂.
    None of them, nor a sum on the way to them, exceeds 3 · 2^42 k: exact for k ≤ 682.
    """

    p: Final = 2**61 - 1
    block = EXACT // (3 * 2**42)

    @override
    def fixed(self, x: Tensor) -> Tensor:
        digit = 2**21 - 1
        low, middle, high = (x & digit).double(), (x >> 21 & digit).double(), (x >> 42).double()
        return torch.stack((low, middle, high, low - middle, low - high, middle - high), -3)

    @override
    def moving(self, x: Tensor) -> Tensor:
        return self.fixed(x)

    @override
    def join(self, products: Tensor) -> Tensor:
        p0, p1, p2, q01, q02, q12 = products.unbind(-3)
        both = p0 + p1
        z0 = p0.add_(p1.add_(p2).sub_(q12), alpha=4)
        z1 = (both - q01).add_(p2, alpha=4)
        z2 = both.add_(p2).sub_(q02)
        # Not reduced in between: a value below 2^61 + 2^54 stays so when it is shifted and the next one added.
        total = _shifted(z2.long()).add_(z1.long())
        return _shifted(total).add_(z0.long()).remainder_(self.p)


def product(a: Tensor, b: Tensor, p: int) -> Tensor:
    """Give the product of integer matrices with values in [0, p), modulo p: (..., n, k) @ (..., k, m), as int64.

    Batches broadcast. p is a prime below 2^31, or 2^61 − 1. Raises ValueError for shapes that do not match and for
    devices that are not in ``AT_A_TIME``.
    """
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not make a matrix product; "
            "allowed: (..., n, k) and (..., k, m)"
        )
    if a.device.type not in AT_A_TIME:
        raise ValueError(f"exact products on {a.device.type} are not known; allowed: {', '.join(AT_A_TIME)}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # PyTorch's own imports sympy
    result = a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=torch.int64)
    if 0 in (result.numel(), a.shape[-1]):
        return result.zero_()
    limbs = _limbs(p, a.shape[-1])
    # A result is cut into chunks of columns, so the left limbs are made once; wide products are faster than tall ones.
    fixed, moving, wide = (a, b, result) if a.shape[-2] < b.shape[-1] else (b.mT, a.mT, result.mT)
    chunk = max(1, AT_A_TIME[a.device.type] * wide.shape[-1] // result.numel())
    blocks = -(-a.shape[-1] // limbs.block)
    length = -(-a.shape[-1] // blocks)
    left = torch.split(limbs.fixed(fixed), length, -1)
    for into, part in zip(torch.split(wide, chunk, -1), torch.split(moving, chunk, -1), strict=True):
        right = torch.split(limbs.moving(part), length, -2)
        total: Tensor | None = None
        for x, y in zip(left, right, strict=True):
            joined = limbs.join(x @ y)
            total = joined if total is None else total.add_(joined).remainder_(p)
        assert total is not None
        into.copy_(total)
    return result


def _limbs(p: int, inner: int) -> Limbs:
    if p == MersenneLimbs.p:
        return MersenneLimbs()
    whole = DigitLimbs(p, 1)
    return whole if whole.block >= min(inner, LONG_ENOUGH) else DigitLimbs(p, 2)


def _centred(x: Tensor, p: int) -> Tensor:
    """Integers of at most 2^53 − p in magnitude modulo p, in place: at most (p + 3)/2 in magnitude.

    The two roundings of the quotient move it by less than 2/p, as they are 2^-53 of it each. Elements come out right,
    at most (p − 1)/2: their quotients are at least 1/(2p) away from 1/2, and move by less than 2^-51.
    """
    return x.sub_((x * (1 / p)).round_(), alpha=p)


def _floored(x: Tensor, p: int) -> Tensor:
    """Integers of at most 2^53 − p in magnitude modulo p, in place: in [0, p).

    Where p does not divide x, x/p is at least 1/p below the next integer, and its rounding moves it by less: at most
    2^-53 |x|/p < 1/p. So the floor of the rounded quotient is that of the exact one, and p times it is at most 2^53.
    """
    # By a tensor on the device, not by a number: CUDA would make that a multiplication by a rounded reciprocal.
    return x.sub_(x.div(x.new_full((), p)).floor_(), alpha=p)


def _shifted(x: Tensor) -> Tensor:
    """2^21 x modulo 2^61 − 1, less than 2^61 + 2^23 for x ≥ 0."""
    return (x & (2**40 - 1)).bitwise_left_shift_(21).add_(x >> 40)
