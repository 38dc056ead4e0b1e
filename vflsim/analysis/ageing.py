"""How long a time that is under way has still to go, whatever has passed of it: bounds by its hazard rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import (
    Constant,
    Exponential,
    Gamma,
    HyperExponential,
    Maximum,
    Mixture,
    Normal,
    Pareto,
    ShiftedExponential,
    Sum,
    Uniform,
    Weibull,
)
from vflsim.timing.law import Law, Point
from vflsim.timing.sums import SumLaw


def parts_of(law: Law) -> tuple[float, tuple[Law, ...]]:
    """Give the constant and the independent random parts that a cycle is the sum of."""
    if isinstance(law, Point):
        return law.value, ()
    if isinstance(law, OfDelay):
        return law.shift, (law if law.shift == 0 else OfDelay(law.delay, 0.0, law.scale),)
    return (law.constant, law.parts) if isinstance(law, SumLaw) else (0.0, (law,))


def largest_hazard(law: Law) -> float:
    """Give a bound of the hazard rate (1/s): ``law`` ends within dt with at most this probability over dt.

    inf where none is known. The hazard rate of a sum is at most that of each of its parts: its density
    f(z) = E f_X(z − Y) is at most λ E P(X > z − Y), for any part X of hazard rate λ at most and the rest Y.
    """
    if isinstance(law, OfDelay):
        return largest_hazard(law.delay) / law.scale
    if isinstance(law, Exponential | ShiftedExponential):
        return 1 / law.mean
    if isinstance(law, HyperExponential):
        return 1 / min(mean for mean, p in zip(law.means, law.probabilities, strict=True) if p > 0)
    if isinstance(law, Gamma) and law.shape >= 1:
        return law.expectation() / law.variance()
    if isinstance(law, Pareto):
        return law.shape / law.support[0]
    if isinstance(law, Mixture):  # Σ p f ≤ Σ p λ P(X > x)
        return max(largest_hazard(part) for part, p in zip(law.parts, law.weights, strict=True) if p > 0)
    parts: Sequence[Law] = law.parts if isinstance(law, SumLaw | Sum) else ()
    return min(map(largest_hazard, parts), default=math.inf)


def new_better_than_used(law: Law) -> bool:
    """Return whether ``law`` is known to be new better than used (NBU).

    What is left of such a time is stochastically no longer than a new one, whatever has passed. Laws of increasing
    hazard rates are NBU, and so are sums and maxima of independent NBU times (Barlow & Proschan 1975, Statistical
    Theory of Reliability and Life Testing, ch. 6).
    """
    if isinstance(law, OfDelay):
        return new_better_than_used(law.delay)
    if isinstance(law, Gamma | Weibull):
        return law.shape >= 1
    if isinstance(law, SumLaw | Sum | Maximum):
        return all(map(new_better_than_used, law.parts))
    return isinstance(law, Point | Constant | Exponential | ShiftedExponential | Uniform | Normal)


def no_shorter(one: Law, other: Law) -> bool:
    """Return whether ``one`` is stochastically no shorter since each of its parts is ``other``'s part, stretched."""
    (constant, parts), (less, others) = parts_of(one), parts_of(other)
    if one == other:
        return True
    if constant < less or len(parts) != len(others):
        return False
    pairs = zip(_by_size(parts), _by_size(others), strict=True)
    return all(a == b or (isinstance(a, OfDelay) and isinstance(b, OfDelay) and _stretched(a, b)) for a, b in pairs)


def _stretched(one: OfDelay, other: OfDelay) -> bool:
    return one.delay == other.delay and one.scale >= other.scale


def _by_size(parts: Sequence[Law]) -> list[Law]:
    return sorted(parts, key=lambda law: (repr(law.delay), law.scale) if isinstance(law, OfDelay) else (repr(law), 1.0))
