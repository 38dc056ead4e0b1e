"""Trial of a delay from outside: whether its cdf, quantiles, samples and moments belong to one law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.stats import kstwo

from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.atoms import Atoms
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law
from vflsim.timing.moments import moments

ROUNDING: Final = 1e-12
"""The largest amount by which a cdf may leave [0, 1] or fall, which is the accuracy that closed forms assume."""
_AGREE: Final = 1e-6
_LEVELS = np.concatenate([[1e-9, 1e-6, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 1 - 1e-6, 1 - 1e-9]])
_DRAWS: Final = 16 * BLOCK
_FALSE_ALARM: Final = 1e-6


@np.errstate(all="ignore")
def try_out(delay: Law, sample: Callable[[Floats], Floats], uniforms: int) -> None:
    """Compare what a delay says about itself. Raises ValueError for the first thing that does not agree.

    ``sample`` turns ``uniforms`` uniforms into one draw of it.
    """
    own = type(delay)
    _results(delay, own.__name__)
    name, (shortest, longest) = own.__name__, delay.support
    if not 0 <= shortest <= longest or math.isinf(shortest):
        _refuse(f"{name}.support is {shortest} to {longest}", "0 ≤ shortest ≤ longest, the shortest finite", "support")
    x = delay.quantile(_LEVELS)
    _check(
        np.all(np.diff(x) >= 0) and np.all(np.isfinite(x)),
        f"{name}.inverse_cdf decreases, or is not finite",
        "non-decreasing and finite below the level 1",
        "inverse_cdf",
    )
    beyond = min(longest, 1e300)
    around = np.unique(np.concatenate([[-1.0, 0.0, shortest], x, (x[1:] + x[:-1]) / 2, [2 * x[-1] + 1, beyond]]))
    p = floats(delay.cdf(around))
    _check(p.shape == around.shape, f"{name}.cdf returns shape {p.shape} for {around.shape}", "elementwise", "cdf")
    wrong = ~((p >= -ROUNDING) & (p <= 1 + ROUNDING))
    _at(wrong, around, p, f"{name}.cdf", "between 0 and 1", "cdf")
    _at(np.append(False, np.diff(p) < -ROUNDING), around, p, f"{name}.cdf falls: it", "non-decreasing", "cdf")
    _at((around < shortest) & (p > _AGREE), around, p, f"{name}.cdf, before the shortest time,", "0", "cdf")
    _at((around >= beyond) & (p < 1 - _AGREE), around, p, f"{name}.cdf, at the end,", "1", "cdf")
    below = floats(delay.cdf(x * (1 - 1e-9)))
    reached = floats(delay.cdf(x * (1 + 1e-9)))
    _at(
        (reached < _LEVELS - _AGREE) | (below > _LEVELS + _AGREE),
        x,
        reached,
        f"{name}.inverse_cdf disagrees with the cdf, which",
        "the level whose quantile it is",
        "inverse_cdf",
    )
    if own.survival is not Law.survival:
        s = floats(delay.survival(around))
        _at(~(np.abs(s + p - 1) < _AGREE), around, s, f"{name}.survival", "1 − cdf", "survival")
    _samples(delay, name, sample, uniforms)
    _moments(delay, name)


def _results(delay: Law, name: str) -> None:
    """Check the types of what the class's own methods return."""
    for method in ("inverse_cdf", "cdf", "survival", "density"):
        for at in (np.array([0.25, 0.5, 0.75]), np.full((2, 3), 0.5)):
            if getattr(type(delay), method) is not getattr(Law, method):
                given = getattr(delay, method)(at)
                fits = isinstance(given, np.ndarray) and given.shape == at.shape and given.dtype.kind in "fiub"
                shape = f" of shape {np.shape(given)}" if isinstance(given, np.ndarray) else ""
                what = f"{name}.{method} returns a {type(given).__name__}{shape} for an array of shape {at.shape}"
                _check(fits, what, "an array of that shape, each number from its own, as np.sqrt(x) returns", method)
    what = f"{name}.support is {delay.support!r}"
    _check(
        len(delay.support) == len(("shortest", "longest")), what, "two numbers, the shortest and the longest", "support"
    )
    what = f"{name}.atoms returns a {type(delay.atoms()).__name__}"
    _check(isinstance(delay.atoms(), Atoms), what, "Atoms (vflsim.timing.atoms) of values and masses", "atoms")
    for method in ("expectation", "variance"):
        given = getattr(delay, method)()
        what = f"{name}.{method} returns a {type(given).__name__}"
        _check(isinstance(given, int | float | np.number), what, "one number", method)


def _samples(delay: Law, name: str, sample: Callable[[Floats], Floats], uniforms: int) -> None:
    """Check draws, and their distribution by the test of Kolmogorov and Smirnov, wrong once in a million."""
    u = Uniforms(0, 0, "trial").blocks(0, _DRAWS // BLOCK, uniforms)
    given = u.copy()
    drawn = sample(u)
    returned = f"shape {drawn.shape}" if isinstance(drawn, np.ndarray) else f"a {type(drawn).__name__}"
    fits = isinstance(drawn, np.ndarray) and drawn.shape == (_DRAWS,)
    _check(fits, f"{name}.sample returns {returned}", f"an array of shape {(_DRAWS,)}", "sample")
    _check(
        bool(np.all((drawn >= 0) & np.isfinite(drawn))),
        f"{name}.sample gives {drawn.min():.6g} s",
        "finite and at least 0",
        "sample",
    )
    same = np.array_equal(drawn, sample(given)) and np.array_equal(u, given)
    _check(
        same,
        f"{name}.sample gives other times for the same uniforms, or changes them",
        "a function of the uniforms, without random numbers of its own",
        "sample",
    )
    values, counts = np.unique(drawn, return_counts=True)
    upto = np.cumsum(counts) / _DRAWS
    before = np.append(0.0, upto[:-1])
    gap = max(np.max(upto - delay.cdf(values * (1 + 1e-9))), np.max(delay.cdf(values * (1 - 1e-9)) - before))
    _check(
        kstwo.sf(max(float(gap), 0.0), _DRAWS) > _FALSE_ALARM,
        f"{_DRAWS} draws of {name}.sample are {gap:.3f} off its cdf",
        "samples of the law of the cdf",
        "sample",
    )


def _moments(delay: Law, name: str) -> None:
    own = type(delay)
    if own.expectation is Law.expectation and own.variance is Law.variance:
        return
    known = moments(delay)
    for what, default, said, found, error in (
        ("expectation", Law.expectation, delay.expectation(), known.mean, known.error),
        ("variance", Law.variance, delay.variance(), known.variance, known.variance_error),
    ):
        alike = math.isfinite(found) and abs(said - found) <= _AGREE * abs(found) + 4 * error
        agree = said == found or alike
        _check(
            getattr(own, what) is default or agree,
            f"{name}.{what} is {said:.6g}, where the cdf has {found:.6g}",
            "that of the cdf",
            what,
        )


def _at(wrong: np.ndarray, x: Floats, p: Floats, what: str, allowed: str, method: str) -> None:
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        _refuse(f"{what} is {p[first]:.6g} at {x[first]:.6g} s", allowed, method)


def _check(holds: object, what: str, allowed: str, method: str) -> None:
    if not holds:
        _refuse(what, allowed, method)


def _refuse(what: str, allowed: str, method: str) -> None:
    raise ValueError(f"{what}; allowed: {allowed}; mend '{method}' of the class")
