"""What sums over rows tell of single rows: the values closest to a guess that have these sums."""

from __future__ import annotations

from vflsim.vocabulary.on_demand import Tensor, torch

_SMALLEST = 1e-8
"""Singular values below this share of the largest count as zero."""


def closest(guess: Tensor, weights: Tensor, sums: Tensor) -> Tensor:
    """Return the values (rows, n) closest to a ``guess`` with ``weights`` (equations, rows) @ values = ``sums``.

    Equation after equation, batch after batch, this is Kaczmarz's method (1937). Where no values have these sums, those
    with the least square error count.

    Example::

        closest(torch.zeros(2, 1), torch.ones(1, 2), torch.tensor([[1.0]]))  # [[0.5], [0.5]]
    """
    values: Tensor = guess + torch.linalg.pinv(weights, rtol=_SMALLEST) @ (sums - weights @ guess)
    return values
