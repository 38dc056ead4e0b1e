"""The effect of rounding on a prediction (Qiu et al. 2024, Thm 1): Taylor's first-order term and a remainder.

With x = z + r, z whole and every |r_i| ≤ 1/2, |g(x) − g(z)| ≤ ½ Σ_i |∂g(z)/∂z_i| + remainder. The remainder is at most
⅛ max_y Σ_ij |∂²g(y)/∂y_i∂y_j| over the cube |y_i − z_i| ≤ 1/2, where x and every point between lie: Lagrange's form is
½ rᵀ H(y) r. (The paper writes the ball of radius 1/2 without its norm; it has to be that of the largest element. Its
sum has one maximum over all second derivatives; this one takes the sum inside, which is never larger.) The rounding
must not have saturated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Scalar = Callable[[Tensor], Tensor]
"""A twice differentiable function of one embedding, (d,), to a number: one output of a top model."""


class RoundingError(NamedTuple):
    """A bound on |g(x) − g(z)|, or an estimate of it; numbers, in the units of g.

    ``certified``: the ``remainder`` is a proven bound. If not, it is the largest found at a sample of points: an
    estimate from below, and no certificate.
    """

    first_order: float
    remainder: float
    certified: bool

    @property
    def total(self) -> float:
        """The sum of first-order term and remainder."""
        return self.first_order + self.remainder


def first_order_error(g: Scalar, z: Tensor) -> float:
    """Return ½ Σ_i |∂g(z)/∂z_i|, the exact first-order term of Thm 1."""
    return float(torch.func.jacrev(g)(z).detach().abs().sum() / 2)


def rounding_error(g: Scalar, z: Tensor, curvature: float) -> RoundingError:
    """Return the bound of Thm 1 at the rounded embedding ``z``, (d,).

    ``curvature`` bounds Σ_ij |∂²g/∂y_i∂y_j| in the cube around ``z``: 0 for a linear g, else
    ``softmax_curvature``, ``hidden_layer_curvature``, or a bound of your own, as sound as it is.
    """
    return RoundingError(first_order_error(g, z), curvature / 8, True)


def sampled_rounding_error(g: Scalar, z: Tensor, points: Tensor) -> RoundingError:
    """Return the first-order term and the largest remainder found at ``points``, (n, d) in the cube around ``z``.

    For models without a known bound of their curvature. The maximum of a sample is no bound.
    """
    if len(points) and float((points - z).abs().max()) > 0.5:
        raise ValueError("points outside the cube of the theorem; allowed: at most 1/2 from z in every element")
    curvatures = [float(torch.func.jacrev(torch.func.jacrev(g))(y).detach().abs().sum()) for y in points]
    return RoundingError(first_order_error(g, z), max(curvatures, default=0.0) / 8, False)


def softmax_curvature(weight: Tensor) -> float:
    """Bound Σ_ij |∂²p/∂y_i∂y_j| everywhere, for any class's probability p under softmax(W y + b), W (classes, d).

    The second derivatives are p [(w − w̄)(w − w̄)ᵀ − Σ_c p_c (w_c − w̄)(w_c − w̄)ᵀ], w̄ = Σ_c p_c w_c. With D the largest
    ‖w_c − w_c′‖₁, ‖w − w̄‖₁ ≤ (1 − p) D, and the sum is at most p (1 − p) (2 − p²) D² ≤ 0.446 D².
    """
    return 0.446 * float(torch.cdist(weight, weight, p=1).max()) ** 2


def hidden_layer_curvature(inner: Tensor, outer: Tensor, activation: Literal["tanh", "sigmoid", "softplus"]) -> float:
    """Bound Σ_ij |∂²g/∂y_i∂y_j| everywhere, for g(y) = vᵀ σ(A y + b): ``inner`` is A, (hidden, d), ``outer`` v.

    The second derivatives are Σ_k v_k σ″ a_k a_kᵀ over the rows a_k of A: at most max |σ″| Σ_k |v_k| ‖a_k‖₁² in sum.
    """
    return _SHARPEST[activation] * float((outer.abs() * inner.abs().sum(1) ** 2).sum())


_SHARPEST = {"tanh": 4 / 3**1.5, "sigmoid": 1 / (6 * 3**0.5), "softplus": 1 / 4}
"""The largest |σ″| of an activation."""
