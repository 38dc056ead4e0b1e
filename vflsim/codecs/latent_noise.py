"""The guarantees of Laplace noise on rounded embeddings (Qiu et al. 2024, Eq. 9, 10), and their limits.

A client releases [[x] + Lap(1/ε)], with all numbers held within ±m. The paper calls the sensitivity of rounding 1. That
is the case of **one element whose rounded value moves by at most 1**, as it does if the element moves by less than 1:
then a release is ε-differentially private. The general law, for independent noise on each element, is

    P[M(x) ∈ S] ≤ exp(ε ‖z − z′‖₁) P[M(x′) ∈ S],   z and z′ the rounded elements of x and x′.

So a row of d elements whose features are replaced by any others has 2 m d ε: saturation alone bounds it. Releases of a
sample add up, also adaptive ones: n of them have n times the ε.

**What is not protected.** Rounding without noise: a function without randomness has no finite ε, however probable it is
that small noise would not have changed its values (Eq. 10). Labels, gradients, the weights of the client's model, and
evaluations are outside, as they are for every mechanism (``vflsim.learning.privacy.base``).
"""

from __future__ import annotations

import math


def unchanged(epsilon: float) -> float:
    """Return P[|Lap(1/ε)| < 1/2] = 1 − exp(−ε/2), the probability that noise leaves a whole number as is (Eq. 10)."""
    return -math.expm1(-epsilon / 2)


def release_epsilon(epsilon: float, elements: int = 1, difference: float = 1, releases: int = 1) -> float:
    """Return the ε of ``releases`` of a row of which ``elements`` rounded values differ by up to ``difference`` each.

    ``epsilon`` is that of the noise, Lap(1/ε). Whole numbers within ±m differ by at most 2 m.
    """
    return epsilon * elements * difference * releases
