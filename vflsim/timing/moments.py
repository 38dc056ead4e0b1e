"""Mean and variance of a law from its cdf and survival function, with an estimate of the error of each.

About the median c nothing cancels. With S = 1 − F,

    E[X] = c + ∫_c S − ∫^c F,  E[(X − c)²] = 2 ∫_c (x − c) S + 2 ∫^c (c − x) F

``scipy.integrate.quad_vec`` takes the integrals over panels that follow the law's own scales, all folded onto [0, 1].
An unbounded tail is integrated until nothing is left of it, or until rounding hides it; what is then left of a heavy
tail is extrapolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from vflsim.timing.floats import Floats, floats
from vflsim.timing.quadrature import gauss
from vflsim.timing.tails import Tail, tail_of

if TYPE_CHECKING:
    from vflsim.timing.law import Law

_RELATIVE: Final = 1e-12
"""The error that the quadrature is asked for, relative to the integral of absolute values."""
_ROUNDING: Final = 4 * 2.0**-53
_NEARLY: Final = 1e3
"""A larger error, in units of what is allowed, comes from jumps."""
_FEW_INTERVALS: Final = 25
_MANY_INTERVALS: Final = 400
_LEVELS = (1e-8, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1 - 1e-4, 1 - 1e-6, 1 - 1e-8)
_FINE = np.concatenate([np.linspace(0.001, 0.999, 999), 1 - 0.001 * 2.0 ** -np.arange(0, 30, 1 / 32)])
"""Levels whose quantiles show where a law jumps, by a five-hundredth or by a twentieth of what is left."""
_MOST_ATOMS: Final = 1000
_GRADE: Final = 4.0
"""How much wider a panel may be than the one beside it."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a law, and estimates of their absolute errors; all infinite where the mean is."""

    mean: float
    variance: float
    error: float
    variance_error: float


@np.errstate(over="ignore", invalid="ignore")
def moments(law: Law) -> Moments:
    """Compute mean and variance of ``law``; infinite where its tail, as far as it can be seen, is too heavy."""
    shortest, longest = law.support
    if not longest > shortest:
        return Moments(shortest, 0.0, 0.0, 0.0)
    quantiles = law.quantile(floats(_LEVELS))
    centre = float(quantiles[_LEVELS.index(0.5)])
    scale = _spread(quantiles, shortest, longest)
    tail = Tail.none(longest - centre) if math.isfinite(longest) else tail_of(law, centre, scale)
    if math.isinf(tail.rest[0]):
        return Moments(math.inf, math.inf, math.inf, math.inf)
    powers = 1 if math.isinf(tail.rest[1]) else 2
    edges = _edges(law, quantiles, centre, scale, tail.start)
    found, errors, fine = _integrals(law, centre, edges, powers, tail.blurred, _FEW_INTERVALS)
    if not fine and len(jumps := _jumps(law, edges[-1])):  # the law does not list its jumps
        edges = np.union1d(edges, jumps)
        found, errors, _ = _integrals(law, centre, edges, powers, tail.blurred, _MANY_INTERVALS)
    errors += tail.doubt[:powers]
    first, error = float(found[0]) + tail.rest[0], float(errors[0])
    if powers == 1:
        return Moments(centre + first, math.inf, error, math.inf)
    second = float(found[1]) + tail.rest[1]
    variance = max(0.0, second - first * first)
    return Moments(centre + first, variance, error, float(errors[1]) + 2 * abs(first) * error)


def _edges(law: Law, quantiles: Floats, centre: float, scale: float, reach: float) -> Floats:
    """Give the ends of panels: breaks, atoms, quantiles, and powers of 2 away from median and ends."""
    shortest, end = law.support[0], centre + reach
    halves = 2.0 ** -np.arange(61.0)
    doubles = scale * 2.0 ** np.arange(0, 1 + max(0, math.ceil(math.log2(reach / scale)) if reach > scale else 0))
    atoms = law.atoms().values
    points = [
        floats([shortest, centre, end]),
        law.breaks,
        quantiles,
        shortest + (centre - shortest) * halves,
        centre + doubles,
    ]
    if math.isfinite(law.support[1]):
        points.append(end - reach * halves)
    if len(atoms) <= _MOST_ATOMS:
        points.append(atoms)
    merged = np.unique(np.concatenate(points))
    return _graded(merged[(merged >= shortest) & (merged <= end)])


def _spread(quantiles: Floats, shortest: float, longest: float) -> float:
    """Give the size of a typical distance from the median, positive, whatever atoms there are."""
    centre = float(quantiles[_LEVELS.index(0.5)])
    for level in (0.25, 0.1, 0.01, 1e-4, 1e-8):
        below, above = (float(quantiles[_LEVELS.index(each)]) for each in (level, 1 - level))
        if math.isfinite(distance := max(centre - below, above - centre)) and distance > 0:
            return distance
    return min(longest - centre, 1.0) or centre - shortest


def _graded(edges: Floats) -> Floats:
    """Add points in gaps beside much narrower ones: within a wide panel no node would see where a law changes."""
    widths, more = np.diff(edges), [edges]
    powers = _GRADE ** np.arange(1.0, 40.0)
    for gap, beside, near, sign in (
        (widths[1:], widths[:-1], edges[1:-1], 1.0),
        (widths[:-1], widths[1:], edges[1:-1], -1.0),
    ):
        steps = beside[:, None] * powers
        more.append((near[:, None] + sign * steps)[steps < gap[:, None] / 2])
    return floats(np.unique(np.concatenate(more)))


def _jumps(law: Law, end: float) -> Floats:
    """Give the times that several levels have as their quantile, up to ``end``."""
    times, counts = np.unique(law.quantile(_FINE), return_counts=True)
    return floats(times[(counts > 1) & (times < end)])


def _integrals(
    law: Law, centre: float, edges: Floats, powers: int, blurred: float, most: int
) -> tuple[Floats, Floats, bool]:
    """Give ∫_c S − ∫^c F and, for two ``powers``, 2 ∫_c (x − c) S + 2 ∫^c (c − x) F; estimates of their errors.

    Third, whether they are small, but for what rounding in the cdf may leave.
    """
    from scipy.integrate import quad_vec  # brings scipy.optimize, which most runs do without

    left, width = edges[:-1], np.diff(edges)
    below = left < centre

    def panels(u: Floats) -> Floats:
        """Give both integrands at the fractions ``u`` of every panel: (powers, panels, len(u)), times the widths."""
        x = left[:, None] + width[:, None] * u
        height = np.concatenate([law.cdf(x[below]), law.survival(x[~below])]) * width[:, None]
        return np.stack([np.where(below[:, None], -height, height), 2 * np.abs(x - centre) * height][:powers])

    nodes, weights = gauss(20)
    size = np.abs(panels(nodes) @ weights).sum(axis=1)
    if not np.all(np.isfinite(size)):  # quad_vec would look for the reason until its limit
        return size * math.nan, size * math.nan, True
    # Times are rounded, and 1 − cdf is wherever it is integrated: no quadrature can do better.
    rounding = _ROUNDING * floats([abs(centre) + size[0] + blurred, 2 * abs(centre) * size[0] + size[-1] + blurred**2])
    rounding += (law.accuracy if law.accuracy > _RELATIVE else 0.0) * (edges[-1] - edges[0]) ** np.array([1.0, 2.0])
    allowed = np.maximum(_RELATIVE * size, rounding[:powers]) + np.finfo(np.float64).tiny

    def folded(u: float) -> Floats:
        return floats(panels(floats([u]))[..., 0].sum(axis=1) / allowed)

    found, error = quad_vec(folded, 0.0, 1.0, epsabs=1.0, epsrel=0.0, norm="max", limit=most)[:2]
    return floats(found) * allowed, max(1.0, float(error)) * allowed, bool(error <= _NEARLY)
