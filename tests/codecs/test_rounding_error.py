"""Thm 1 of the rounding paper: the bound holds for every rounding, and an estimate says that it is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vflsim.codecs.round import (
    Round,
    RoundingError,
    first_order_error,
    hidden_layer_curvature,
    rounding_error,
    sampled_rounding_error,
    softmax_curvature,
)

ACTIVATIONS: dict[Any, Any] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": F.softplus}


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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_for_the_probabilities_of_a_softmax_head(seed: int, scale: float) -> None:
    weight, bias, (x, z) = scale * drawn(seed, 4, 5), drawn(seed + 9, 4), rows(seed, 5)
    for output in range(4):

        def g(y: Tensor, output: int = output) -> Tensor:
            return torch.softmax(weight @ y + bias, 0)[output]

        bounds = [rounding_error(g, each, softmax_curvature(weight)) for each in z]
        assert worst(g, x, z, bounds) <= 1
        sharpest = max(float(torch.func.jacrev(torch.func.jacrev(g))(y).abs().sum()) for y in x[:10])
        assert sharpest <= softmax_curvature(weight)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_the_bound_holds_for_networks_with_a_smooth_hidden_layer(activation: Any, scale: float) -> None:
    for seed in range(6):
        inner, bias, outer, (x, z) = scale * drawn(seed, 7, 5), drawn(seed + 3, 7), drawn(seed + 4, 7), rows(seed, 5)

        def g(y: Tensor, inner: Tensor = inner, bias: Tensor = bias, outer: Tensor = outer) -> Tensor:
            return outer @ ACTIVATIONS[activation](inner @ y + bias)

        curvature = hidden_layer_curvature(inner, outer, activation)
        assert worst(g, x, z, [rounding_error(g, each, curvature) for each in z]) <= 1
        assert max(float(torch.func.jacrev(torch.func.jacrev(g))(y).abs().sum()) for y in x[:10]) <= curvature


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_stated_largest_second_derivatives_are_those_of_the_activations(activation: Any) -> None:
    grid = torch.linspace(-6, 6, 4001, dtype=torch.float64)
    second = torch.func.vmap(torch.func.grad(torch.func.grad(ACTIVATIONS[activation])))(grid)
    one = torch.ones(1, 1, dtype=torch.float64)
    assert hidden_layer_curvature(one, one[0], activation) == pytest.approx(float(second.abs().max()), rel=1e-5)


def test_no_softmax_is_more_curved_than_the_stated_constant() -> None:
    """The constant is the largest p (1 − p) (2 − p²), rounded up."""
    p = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    largest = float((p * (1 - p) * (2 - p**2)).max())
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    assert largest <= softmax_curvature(ends) <= largest + 0.001


def test_a_sampled_remainder_is_no_certificate_and_never_above_a_proven_one() -> None:
    inner, outer, (_, z) = drawn(1, 7, 5), drawn(2, 7), rows(3, 5)

    def g(y: Tensor) -> Tensor:
        return outer @ torch.tanh(inner @ y)

    points = z[0] + torch.rand(30, 5, dtype=torch.float64) - 0.5
    found, bound = (
        sampled_rounding_error(g, z[0], points),
        rounding_error(g, z[0], hidden_layer_curvature(inner, outer, "tanh")),
    )
    assert (found.certified, bound.certified) == (False, True)
    assert found.first_order == bound.first_order == first_order_error(g, z[0])
    assert 0 < found.remainder < bound.remainder
    with pytest.raises(ValueError, match="outside the cube"):
        sampled_rounding_error(g, z[0], points + 1)
