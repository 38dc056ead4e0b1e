"""The tail of an unbounded law beyond the times at which its survival function can be integrated.

There log S(c + z) is continued as a parabola in log z. It is straight for a power law, and bends downwards for lighter
tails, such as the log-normal one. If it is straight and no steeper than z^−1, the mean is infinite; z^−2, the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import erfcx

from vflsim.timing.floats import Floats
from vflsim.timing.quadrature import gauss

if TYPE_CHECKING:
    from vflsim.timing.law import Law

_PRECISE: Final = 1e-20
"""A survival function that falls below this is no rounded difference, 1 − cdf."""
_LEAST: Final = 1e-280
_NEGLIGIBLE: Final = 45.0
"""A contribution below e^−45 of the largest one is negligible."""
_FROM: Final = 1e-11
"""A survival function that is 1 − cdf is continued from here, where rounding has reached its fifth digit."""
_BENT: Final = 1e-3
"""A curvature below this is rounding, or the difference between x and x − c."""
_OFF: Final = {True: 1e-9, False: 1e-4}
"""The allowed error of the slope of a power law, by whether the survival function is precise."""
_SAFETY: Final = 3.0

_Both = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tail:
    """∫ p z^(p−1) S(c + z) dz from ``start`` on, for p = 1 and 2: the ``rest``, and the ``doubt`` about it.

    ``blurred`` is how far the survival function has absolute errors of rounding.
    """

    start: float
    rest: _Both
    doubt: _Both
    blurred: float

    @classmethod
    def none(cls, start: float) -> Tail:
        """Give the tail of a bounded law."""
        return cls(start, (0.0, 0.0), (0.0, 0.0), start)


@dataclass(frozen=True, slots=True)
class _Parabola:
    """log S from z on: its value there, and −dlogS/dlogz and −d²logS/dlogz²."""

    z: float
    height: float
    slope: float
    bend: float

    @classmethod
    def through(cls, z: Floats, height: Floats) -> _Parabola:
        """Fit three points, the last at ``z``."""
        t = np.log(z)
        one, two = (height[2] - height[1]) / (t[2] - t[1]), (height[1] - height[0]) / (t[1] - t[0])
        curvature = (one - two) / ((t[2] - t[0]) / 2)
        return cls(float(z[2]), float(height[2]), -float(one + curvature * (t[2] - t[1]) / 2), -float(curvature))

    def beyond(self, power: int, off: float) -> float:
        """Give ∫ power · t^(power − 1) S(c + t) dt from z on: inf for a straight line that is too flat."""
        excess = self.slope - power
        if self.bend <= _BENT and excess <= off:
            return math.inf
        width = math.sqrt(2 * max(self.bend, 0.0))
        bent = self.bend > _BENT
        ratio = math.sqrt(math.pi) / width * float(erfcx(excess / width)) if bent else 1 / excess
        logarithm = self.height + power * math.log(self.z)
        return power * ratio * math.exp(logarithm) if logarithm < 700 else math.inf


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def tail_of(law: Law, centre: float, scale: float) -> Tail:
    """Give the tail of an unbounded law whose distances from its median ``centre`` have the size ``scale``."""
    z = scale * 2.0 ** np.arange(1100.0)
    z = z[np.isfinite(centre + z)]
    left = law.survival(centre + z)
    if np.any((left > 0) & (left < _PRECISE)):
        return _precise(law, centre, z[left > _LEAST], np.log(left[left > _LEAST]))
    return _of_differences(law, centre)


def _precise(law: Law, centre: float, z: Floats, height: Floats) -> Tail:
    """Give the tail of a survival function that keeps its digits, known at the distances ``z``."""
    last, step = len(z) - 1, min(3, (len(z) - 1) // 4)
    if step < 1:  # it falls from nearly 1 to 0
        return Tail(float(2 * z[-1]) if len(z) else float(law.quantile(1 - 1e-15)) - centre, (0, 0), (0, 0), 0.0)
    early, late = (
        _Parabola.through(z[marks], height[marks])
        for marks in ([end - 2 * step, end - step, end] for end in (max(last // 2, 2 * step), last))
    )
    tail = _continued(law, centre, early, late, precise=True)
    powers = sum(map(math.isfinite, tail.rest))
    contributions = height + powers * np.log(z)
    end = int(np.flatnonzero(contributions > contributions.max() - _NEGLIGIBLE)[-1])
    if powers and end < last:
        return Tail(float(z[end + 1]), (0.0, 0.0 if powers == 2 else math.inf), (0.0, 0.0), 0.0)
    return tail


def _of_differences(law: Law, centre: float) -> Tail:
    """Give the tail of a survival function that is 1 − cdf, with the cdf's rounding."""
    least = _FROM if law.accuracy < _FROM else min(10 * law.accuracy, 1e-6)
    x = law.quantile(1 - least * 10.0 ** np.arange(4, -1, -1))
    x = np.unique(x[np.isfinite(x) & (x > centre)])
    left = law.survival(x)
    z, height = (x - centre)[left > 0], np.log(left[left > 0])
    if len(z) < 5:  # it falls in jumps, or has an end
        end = float(law.quantile(1 - 1e-15)) - centre
        return Tail(end, (0.0, 0.0), (1e-15 * end, 1e-15 * end * end), end)
    early, late = _Parabola.through(z[:3], height[:3]), _Parabola.through(z[2:], height[2:])
    return _continued(law, centre, early, late, precise=False)


def _continued(law: Law, centre: float, early: _Parabola, late: _Parabola, precise: bool) -> Tail:
    """Continue the tail from ``late.z``.

    Its doubt is the error with which ``early`` predicts the later known values.
    """
    t = np.geomspace(early.z, late.z, 41)
    nodes, weights = gauss(20)
    between = t[:-1, None] + np.diff(t)[:, None] * nodes
    height = law.survival(centre + between)
    rest, doubt = [0.0, 0.0], [0.0, 0.0]
    for p in (1, 2):
        rest[p - 1] = left = late.beyond(p, _OFF[precise])
        known = float(((p * between ** (p - 1) * height) @ weights) @ np.diff(t))
        doubt[p - 1] = _SAFETY * abs(early.beyond(p, 0.0) - known - left) if math.isfinite(left) else math.inf
        doubt[p - 1] = doubt[p - 1] if math.isfinite(doubt[p - 1]) else left
    return Tail(late.z, (rest[0], rest[1]), (doubt[0], doubt[1]), 0.0 if precise else late.z)
