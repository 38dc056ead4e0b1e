"""Linear equations over a prime field, by Gaussian elimination."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflsim.coding.field import PrimeField


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
        found = self.field.matmul(vectors[:, list(self.pivots)], self.rows)
        return found[:, self.columns :], (found[:, : self.columns] == vectors).all(1)


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
