"""Exact arithmetic modulo a prime, on any device, for coded computing (FedVS Sec. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from vflsim.coding.limbs import product
from vflsim.vocabulary.on_demand import Tensor, dtype, torch

MERSENNE_31: Final = 2**31 - 1
MERSENNE_61: Final = 2**61 - 1

_LOW_30, _LOW_31 = 2**30 - 1, 2**31 - 1


class Words(Protocol):
    """A source of random 64-bit words: a bit generator of numpy, say."""

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` words."""


@final
class PrimeField:
    """F_p, the integers modulo a prime p: 3 ≤ p < 2^31, or p = 2^61 − 1.

    Elements are int64 tensors with values in [0, p). Methods rely on that and guarantee it.
    """

    __slots__ = ("p",)

    def __init__(self, p: int = MERSENNE_31) -> None:
        if p not in (MERSENNE_31, MERSENNE_61):
            from sympy import isprime

            if not (3 <= p < 2**31 and isprime(p)):
                raise ValueError(
                    f"p = {p} is no order of an available field; allowed: a prime from 3 to 2^31 - 1, or 2^61 - 1"
                )
        self.p = p

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimeField) and self.p == other.p

    def __hash__(self) -> int:
        return hash((PrimeField, self.p))

    def __repr__(self) -> str:
        return f"PrimeField({self.p})"

    @property
    def largest(self) -> int:
        """The largest magnitude that comes back from ``signed(embed(v))``; Eq. 7 reads (p − 1)/2 as negative."""
        return (self.p - 3) // 2

    @property
    def wire_dtype(self) -> torch.dtype:
        """The integers that hold an element on the wire."""
        return dtype("int32" if self.p < 2**31 else "int64")

    def embed(self, values: Tensor) -> Tensor:
        """Give the residues of signed int64 values: φ(v) = v mod p (Sec. 5.1)."""
        return _int64(values).remainder(self.p)

    def signed(self, elements: Tensor) -> Tensor:
        """Give the signed values of elements: v if v < (p − 1)/2, else v − p (Eq. 7, without the scale)."""
        return torch.where(_int64(elements) < (self.p - 1) // 2, elements, elements - self.p)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Give a + b, element by element."""
        return (_int64(a) + _int64(b)).remainder_(self.p)

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        """Give a − b, element by element."""
        return (_int64(a) - _int64(b)).remainder_(self.p)

    def negate(self, a: Tensor) -> Tensor:
        """Give −a, element by element."""
        return _int64(a).neg().remainder_(self.p)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Give a·b, element by element."""
        a, b = _int64(a), _int64(b)
        if self.p < 2**31:
            return (a * b).remainder_(self.p)
        # Halves a = 2^31 a₁ + a₀ with a₁ < 2^30, and 2^62 ≡ 2, 2^61 ≡ 1. The four terms are at most 2 (2^30 − 1)²,
        # (2^30 − 1) 2^31, 2^32 and (2^31 − 1)²: together less than 2^63.
        a1, a0, b1, b0 = a >> 31, a & _LOW_31, b >> 31, b & _LOW_31
        middle = a1 * b0 + a0 * b1
        return (2 * a1 * b1 + ((middle & _LOW_30) << 31) + (middle >> 30) + a0 * b0).remainder_(self.p)

    def power(self, a: Tensor, exponent: int) -> Tensor:
        """Raise a to an exponent ≥ 0, by squaring and multiplying; a⁰ = 1, for a = 0 too."""
        if exponent < 0:
            raise ValueError(f"exponent = {exponent} is negative; allowed: 0 or more (use inverse first)")
        result, square = torch.ones_like(_int64(a)), a
        while exponent:
            if exponent & 1:
                result = self.multiply(result, square)
            exponent >>= 1
            if exponent:
                square = self.multiply(square, square)
        return result

    def inverse(self, a: Tensor) -> Tensor:
        """Give 1/a = a^(p − 2) (Fermat), element by element. Raises ValueError if an element is 0."""
        if bool((_int64(a) == 0).any()):
            raise ValueError("0 has no inverse; allowed: elements from 1 to p - 1")
        return self.power(a, self.p - 2)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Give the exact matrix product: (..., n, k) @ (..., k, m), batches broadcast.

        Raises ValueError for shapes that do not match.
        """
        return product(_int64(a), _int64(b), self.p)

    def uniform(self, shape: Sequence[int], bits: Words) -> Tensor:
        """Draw independent uniform elements on the CPU: low bits of raw 64-bit words, rejecting values from p on.

        They keep the order of their words, and no surplus words are drawn. Raises ValueError for MT19937,
        whose raw words have 32 bits.
        """
        if isinstance(bits, np.random.MT19937):
            raise ValueError("MT19937 gives raw words of 32 bits; give a generator of 64-bit words, such as Philox")
        mask = np.uint64(2 ** self.p.bit_length() - 1)
        elements = np.empty(math.prod(shape), dtype=np.int64)
        filled = 0
        while filled < elements.size:
            words = bits.random_raw(elements.size - filled) & mask
            draws = words[words < self.p]
            elements[filled : filled + draws.size] = draws
            filled += draws.size
        return torch.from_numpy(elements).reshape(tuple(shape))


def _int64(x: Tensor) -> Tensor:
    if x.dtype != torch.int64:
        raise ValueError(f"got a tensor of {x.dtype}; allowed: torch.int64 (convert with .long() what holds integers)")
    return x


@dataclass(frozen=True, slots=True)
class Echelon:
    """A matrix after elimination in its first ``columns`` columns.

    ``rows`` (rank, all columns) are in reduced echelon form: 1 at their pivot, 0 at the others'. ``pivots`` are the
    columns of the pivots. ``rest`` are the other rows, which are 0 in the first ``columns`` columns.
    """

    field: PrimeField
    columns: int
    rows: Tensor
    pivots: tuple[int, ...]
    rest: Tensor

    def explained(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Write vectors (n, ``columns``) as combinations of the rows as far as possible.

        Returns the same combinations of the remaining columns, (n, all − ``columns``), and which vectors are exactly a
        combination, (n,).
        """
        combinations = self.field.matmul(vectors[:, list(self.pivots)], self.rows)
        return combinations[:, self.columns :], (combinations[:, : self.columns] == vectors).all(1)


def eliminated(field: PrimeField, matrix: Tensor, columns: int) -> Echelon:
    """Eliminate in the first ``columns`` columns of a matrix over ``field``, elements (rows, all columns)."""
    a = matrix.clone()
    pivots: list[int] = []
    for column in range(columns):
        rank = len(pivots)
        below = torch.nonzero(a[rank:, column])
        if not len(below):
            continue
        chosen = rank + int(below[0, 0])
        a[[rank, chosen]] = a[[chosen, rank]]
        a[rank] = field.multiply(a[rank], field.inverse(a[rank, column : column + 1]))
        factors = a[:, column].clone()
        factors[rank] = 0
        a = field.subtract(a, field.multiply(factors[:, None], a[rank]))
        pivots.append(column)
    return Echelon(field, columns, a[: len(pivots)], tuple(pivots), a[len(pivots) :])
