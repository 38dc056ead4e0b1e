"""Thm 1 of the rounding paper: the bound holds for every rounding, and an estimate says that it is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vflsim.codecs.round import (
    Round,
    RoundingError,
    first_order_error,
    rounding_error,
    sampled_rounding_error,
)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows(seed: int, d: int) -> tuple[Tensor, Tensor]:
    """Embeddings and their whole numbers; among them the corners of the cube."""
    x = 2 * drawn(seed, 40, d)
    z = Round().through(x)
    corners = z[:20] + 0.5 * drawn(seed + 1, 20, d).sign()
    return torch.cat([x, corners]), torch.cat([z, z[:20]])


def worst(g: Any, x: Tensor, z: Tensor, bounds: list[RoundingError]) -> float:
    """The largest share of its bound that a difference takes up."""
    return max(float((g(a) - g(b)).abs()) / bound.total for a, b, bound in zip(x, z, bounds, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_of_a_linear_model_the_first_order_term_is_the_bound_and_is_reached(seed: int) -> None:
    w, (x, z) = drawn(seed, 6), rows(seed, 6)

    def g(y: Tensor) -> Tensor:
        return y @ w + 3

    bounds = [rounding_error(g, each, curvature=0) for each in z]
    assert all(bound == (pytest.approx(float(w.abs().sum()) / 2), 0, True) for bound in bounds)
    assert worst(g, x, z, bounds) <= 1 + 1e-12
    reached = z[0] + 0.5 * w.sign()
    assert float((g(reached) - g(z[0])).abs()) == pytest.approx(bounds[0].total)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_for_the_probabilities_of_a_softmax_head(seed: int, scale: float) -> None:
    weight, bias, (x, z) = scale * drawn(seed, 4, 5), drawn(seed + 9, 4), rows(seed, 5)
    curvature = 0.446 * float(torch.cdist(weight, weight, p=1).max()) ** 2  # p (1 − p) (2 − p²) D² at most
    for output in range(4):

        def g(y: Tensor, output: int = output) -> Tensor:
            return torch.softmax(weight @ y + bias, 0)[output]

        bounds = [rounding_error(g, each, curvature) for each in z]
        assert worst(g, x, z, bounds) <= 1
        sharpest = max(float(torch.func.jacrev(torch.func.jacrev(g))(y).abs().sum()) for y in x[:10])
        assert sharpest <= curvature


def test_a_sampled_remainder_is_no_certificate_and_never_above_a_proven_one() -> None:
    inner, outer, (_, z) = drawn(1, 7, 5), drawn(2, 7), rows(3, 5)

    def g(y: Tensor) -> Tensor:
        return outer @ torch.tanh(inner @ y)

    points = z[0] + torch.rand(30, 5, dtype=torch.float64) - 0.5
    curvature = 4 / 3**1.5 * float((outer.abs() * inner.abs().sum(1) ** 2).sum())  # the largest second derivative
    found, bound = sampled_rounding_error(g, z[0], points), rounding_error(g, z[0], curvature)
    assert (found.certified, bound.certified) == (False, True)
    assert found.first_order == bound.first_order == first_order_error(g, z[0])
    assert 0 < found.remainder < bound.remainder
    with pytest.raises(ValueError, match="outside the cube"):
        sampled_rounding_error(g, z[0], points + 1)
