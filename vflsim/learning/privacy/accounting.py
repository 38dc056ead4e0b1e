"""Privacy accounting of Gaussian noise: ε from a noise multiplier and back, against two adversaries.

**One that knows which samples are in a batch.** n Gaussian releases with multiplier z reveal as much as one with
multiplier z/√n, even if each is chosen after seeing those before: their privacy losses are normal and add up (Dong,
Roth and Su 2019, Cor. 3.3). The privacy loss distribution is therefore known in closed form, and so is ε (Balle and
Wang 2018, Thm. 8), which dp-accounting evaluates: to 7 digits, where a Rényi accountant gives a bound only (5.4 for 5
at δ = 10⁻⁵), and where a distribution on a grid takes seconds and, for a large ε, gigabytes. No sub-sampling amplifies
this: the batches are no secret.

**One that does not know it**, where each batch is a uniform sample of the rows without replacement, drawn anew. Then
the Rényi divergence of the sub-sampled Gaussian composes (Wang, Balle and Kasiviswanathan 2019, Thm 27) and converts to
ε (Balle et al. 2020). VIM Thm 1 (Eq. 11) bounds the same divergence, more loosely where noise is strong: in its setting
for MNIST (53 batches of 1,024 out of 54,000 rows, δ = 10⁻⁵) ε is 1.96 by both with a multiplier of 1, 0.42 in place of
0.21 with 5, and 0.37 in place of 0.13 with 10. These are upper bounds, by dp-accounting. Its bound of a large or weakly
noised sample can exceed that of the Gaussian without sampling, which holds as well (divergences are quasi-convex): the
smaller one counts. Shuffled epochs are no such samples: their batches depend on each other.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import of_extra

MULTIPLIERS = 1e-12, 1e12
"""The range of noise multipliers, from next to nothing to far more than any embedding survives."""
EPSILONS = 1e-6, 1e6
"""The range of ε that noise can be calibrated for."""


WITHIN = 1 + 1e-6
"""What is within a budget: up to this times it, as calibrated noise meets it up to rounding."""
ORDERS = (*range(2, 65), 128, 256, 512, 1024)
"""The orders α of the Rényi divergence: whole ones, as the theorems have."""


_NEEDED_BY = "an account of privacy"


class Released(NamedTuple):
    """What one client has released: all that ε depends on.

    Example::

        Released(most=2, sampled=((0.1, 1, 20),)).batches  # 20
    """

    most: int = 0
    """The most often that any sample was released."""
    sampled: tuple[tuple[float, int, int], ...] = ()
    """(rate, times, number) of the batches, sorted: so many batches, each ``rate`` of the rows, released so often each.

    A batch that is released again, after a crash say, is no new sample of the rows.
    """

    @property
    def batches(self) -> int:
        """How many mini-batches were released; a repeated one counts each time."""
        return sum(times * number for _, times, number in self.sampled)


def accountant(secret: bool = False) -> str:
    """Give the accountant's name and version, for the records; ``secret``: of batches that the adversary cannot see."""
    how = "Rényi divergence of Gaussian noise on batches sampled without replacement"
    closed = "closed-form privacy loss distribution of Gaussian noise"
    return f"dp-accounting {version('dp-accounting')}, {how if secret else closed}"


@lru_cache(maxsize=1024)
def epsilon_of(noise_multiplier: float, delta: float, releases: int = 1) -> float:
    """Give the smallest ε for which ``releases`` adaptive Gaussian releases are (ε, ``delta``)-differentially private.

    ``noise_multiplier`` is the noise's standard deviation over the sensitivity of one release. 0 for no release. Raises
    ValueError for arguments out of range.
    """
    _check(delta, releases, "noise_multiplier", noise_multiplier)
    if releases == 0:
        return 0.0
    with of_extra("privacy", _NEEDED_BY):  # slow to import, and rarely needed
        from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    with np.errstate(divide="ignore"):  # log 0 on the way, for very weak and for very strong noise
        return float(get_epsilon_gaussian(noise_multiplier / math.sqrt(releases), delta))


@lru_cache(maxsize=1024)
def noise_multiplier_for(epsilon: float, delta: float, releases: int = 1) -> float:
    """Give the least noise multiplier with which ``releases`` releases together are (``epsilon``, ``delta``)-private.

    Raises ValueError for arguments out of range.
    """
    _check(delta, releases, "epsilon", epsilon)
    if releases == 0:
        raise ValueError("0 releases need no noise; allowed: at least 1 release")
    with of_extra("privacy", _NEEDED_BY):
        from dp_accounting.gaussian_mechanism import get_sigma_gaussian

    with np.errstate(divide="ignore"):
        return float(get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)


@lru_cache(maxsize=1024)
def sampled_epsilon_of(noise_multiplier: float, delta: float, released: Released) -> float:
    """Give an ε for which the releases are (ε, ``delta``)-private against an adversary that does not know the batches.

    Neighbours differ in one replaced sample. Every batch in ``released.sampled`` must be a uniform sample without
    replacement, independent of the others. 0 for no release. Raises ValueError for arguments out of range.
    """
    _check(delta, released.batches, "noise_multiplier", noise_multiplier)
    with of_extra("privacy", _NEEDED_BY):
        from dp_accounting.rdp import compute_epsilon

    divergence = np.zeros(len(ORDERS))
    for rate, times, number in released.sampled:
        divergence += number * _divergence(rate, noise_multiplier / math.sqrt(times))
    return float(compute_epsilon(ORDERS, divergence, delta)[0])


@lru_cache(maxsize=256)
def _divergence(rate: float, noise_multiplier: float) -> NDArray[np.float64]:
    with of_extra("privacy", _NEEDED_BY):
        from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
        from dp_accounting.rdp import RdpAccountant

    gaussian = GaussianDpEvent(noise_multiplier)
    both = [RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE) for _ in range(2)]
    both[0].compose(gaussian)
    both[1].compose(SampledWithoutReplacementDpEvent(1, rate, gaussian))  # it uses the ratio of the sizes alone
    return np.minimum(both[0].rdp, both[1].rdp)  # type: ignore[no-any-return]  # dp-accounting has no types


@lru_cache(maxsize=64)
def sampled_noise_multiplier_for(epsilon: float, delta: float, rate: float, batches: int) -> float:
    """Give the least noise multiplier (to 10⁻⁹) with which ``sampled_epsilon_of`` so many batches is ``epsilon``.

    ``rate`` is the share of the rows in a batch. Raises ValueError for arguments out of range.
    """
    most = noise_multiplier_for(epsilon, delta, batches)
    return least(lambda z: sampled_epsilon_of(z, delta, Released(0, ((rate, 1, batches),))), epsilon, most)


def least(cost: Callable[[float], float], limit: float, start: float) -> float:
    """Give the least x, to 10⁻⁹ of it, with ``cost(x)`` ≤ ``limit``; ``cost`` must fall. The search begins at start."""
    from scipy.optimize import brentq

    low = high = start
    while cost(high) > limit:
        low, high = high, 2 * high
    while low == high or cost(low) <= limit:
        low, high = low / 2, low
    root = float(np.exp(brentq(lambda x: cost(math.exp(x)) - limit, math.log(low), math.log(high), xtol=1e-10)))
    return next(x for x in (root, root * (1 + 1e-9), high) if cost(x) <= limit)


def sampled_mu_of(noise_multiplier: float, released: Released) -> float:
    """Give the μ of Gaussian differential privacy that the releases have in the limit of many small batches.

    μ² is the sum over batches of 2 rate² (exp(z⁻²) Φ(3/(2z)) + 3 Φ(−1/(2z)) − 2), about (rate/z)² for a large
    multiplier z (Dong, Roth and Su 2019, Cor. 5.4): Eq. 15 of VAFL. A limit, and no bound, as ``sampled_epsilon_of``
    is one.
    """
    from scipy.special import ndtr

    total = 0.0
    for rate, times, number in released.sampled:
        if rate == 1:  # all rows: nothing is sampled
            total += number * times / noise_multiplier**2
            continue
        s = math.sqrt(times) / noise_multiplier
        with np.errstate(over="ignore"):
            term = float(np.exp(s * s) * ndtr(1.5 * s) + 3 * ndtr(-0.5 * s) - 2) if s > 1e-5 else s * s / 2
        total += number * 2 * rate**2 * term
    return math.sqrt(max(total, 0.0))


@lru_cache(maxsize=64)
def sampled_mu_multiplier_for(mu: float, rate: float, batches: int) -> float:
    """Give the least noise multiplier with which ``sampled_mu_of`` so many batches, each ``rate`` of the rows, is μ."""
    start = rate * math.sqrt(batches) / mu
    return least(lambda z: sampled_mu_of(z, Released(0, ((rate, 1, batches),))), mu, start)


def _check(delta: float, releases: int, name: str, value: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta {delta:g} is out of range; allowed: above 0 and below 1")
    if not 0 < value < math.inf:  # also refuses NaN
        raise ValueError(f"{name} {value:g} is out of range; allowed: a number above 0")
    if releases < 0:
        raise ValueError(f"{releases} releases; allowed: at least 0")
