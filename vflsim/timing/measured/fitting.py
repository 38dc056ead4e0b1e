"""Fitting delays to observations: maximum likelihood, family by family, ranked by Akaike's criterion.

A law with more parameters than the exponential has to be clearly better than it. Akaike's criterion alone prefers one
of them to the exponential for nearly half of all exponential data, however many: a shift, which is the smallest
observation, gains 1 on average in log-likelihood, where a regular parameter gains ½.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats
from scipy.special import expit, log_ndtr

from vflsim.streams import BLOCK, SHARED, Uniforms
from vflsim.timing import delays
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats

_SMALLEST = 1e-9
"""The least share and the least mean of a phase, the latter as a part of the mean of all."""
_DIGITS = 6
LEVEL = 0.01
"""The level of the likelihood-ratio test that a law must pass to stand before the exponential, and of the test of
Kolmogorov and Smirnov that rejects a law. By chance all are rejected so often at most: the right one would have to."""


class Family(NamedTuple):
    """A family to fit: ``method`` gives the best member for observations in order, or raises ValueError.

    ``ends`` of its ``parameters`` are the smallest or the largest observation. Twice what one of these gains in
    log-likelihood has a χ² law with 2 degrees of freedom, in place of 1.
    """

    method: Callable[[Floats], Delay]
    parameters: int
    ends: int = 0


@dataclass(frozen=True)
class Fit:
    """The result of fitting one family: its best member, or why there is none.

    ``ks_p_value`` takes the fit into account, not that the family may be the best of several; NaN: too few samples fit.
    """

    kind: str
    delay: Delay | None
    parameters: int
    log_likelihood: float = -math.inf
    ks_statistic: float = math.nan
    ks_p_value: float = math.nan
    why_not: str = ""

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 · parameters − 2 · log-likelihood: lower is better."""
        return 2 * self.parameters - 2 * self.log_likelihood if self.delay is not None else math.inf

    @property
    def rejected(self) -> bool:
        """Whether the distance of the observations from its best member speaks against the family, or is not known."""
        return not self.ks_p_value > LEVEL


def fit_all(values: Iterable[float]) -> list[Fit]:
    """Fit every family to observed delays in seconds: the best first (see ``ranked``), then those that cannot fit.

    Raises ValueError for fewer than 2 observations, and for negative or infinite ones.
    """
    observed = np.sort(np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64))
    if len(observed) < 2:
        raise ValueError(f"{len(observed)} observations; allowed: at least 2")
    if not (observed[0] >= 0 and math.isfinite(observed[-1])):
        raise ValueError("observations that are no delays; allowed: finite numbers, at least 0")

    def with_p_value(fit: Fit) -> Fit:
        method, count = FAMILIES[fit.kind].method, len(observed)
        if fit.delay is None:
            return fit
        return replace(fit, ks_p_value=ks_p_value(fit.delay, method, fit.ks_statistic, count))

    return [with_p_value(fit) for fit in ranked([fitted(kind, family, observed) for kind, family in FAMILIES.items()])]


def ranked(fits: list[Fit]) -> list[Fit]:
    """Order fits, of which the first is the exponential: those that are clearly better, it, the others, each by AIC.

    Clearly better: a likelihood-ratio test at ``LEVEL`` rejects the exponential.
    """
    simplest = fits[0]
    return sorted(fits, key=lambda fit: (not _clearly_better(fit, simplest), fit is not simplest, fit.aic))


def fitted(kind: str, family: Family, observed: Floats) -> Fit:
    """Fit one family to at least 2 observations in order; without a p-value."""
    try:
        if observed[0] == observed[-1]:
            raise ValueError("all observations are equal: that is a constant delay")
        delay = family.method(observed)
    except ValueError as error:  # the best member could come out impossible, such as with an infinite mean
        message = str(error)
        reason = message.partition("Value error, ")[2].partition(" [type=")[0] or message
        return Fit(kind, None, family.parameters, why_not=reason)
    return Fit(kind, delay, family.parameters, log_likelihood(delay, observed), ks_statistic(delay, observed))


def _clearly_better(fit: Fit, simplest: Fit) -> bool:
    """Whether a likelihood-ratio test at ``LEVEL`` prefers a fit to the law with the fewest parameters."""
    if fit.delay is None or fit is simplest:
        return False
    degrees = fit.parameters + FAMILIES[fit.kind].ends - simplest.parameters
    return 2 * (fit.log_likelihood - simplest.log_likelihood) > float(stats.chi2.isf(LEVEL, degrees))


def rounded(delay: Delay, observed: Floats) -> Delay:
    """Round parameters to as few digits (6 or more) as change the log-likelihood of the observations by less than 0.01,
    those at the end of the observations (a minimum, a shift) outwards, so that none is impossible.
    """
    known, fields = log_likelihood(delay, observed), delay.model_dump(mode="json", exclude_none=True)
    names = [name for name, value in fields.items() if isinstance(value, float | list)]
    for digits in range(_DIGITS, 17):
        choices = [_rounded(fields[name], digits) for name in names]
        for values in sorted(product(*choices), key=lambda each: sum(far for far, _ in each)):
            try:
                shorter = type(delay).model_validate(fields | {n: v for n, (_, v) in zip(names, values, strict=True)})
            except ValueError:  # for example, the low end is above the high one
                continue
            if abs(log_likelihood(shorter, observed) - known) < 0.01:
                return shorter
    return delay


def _rounded(value: Any, digits: int) -> list[tuple[int, Any]]:
    """(steps away, a number to so many digits) for the nearest one and its neighbours; of lists the nearest alone."""
    if not isinstance(value, list):
        unit = Decimal(1).scaleb(Decimal(value).adjusted() - digits + 1)
        nearest = Decimal(value).quantize(unit)
        return [(abs(steps), float(nearest + steps * unit)) for steps in (0, -1, 1)]
    if math.isclose(sum(value), 1):  # shares still sum to 1 after rounding
        shares = [round(each, digits) for each in value[:-1]]
        return [(0, [*shares, round(1 - sum(shares), digits)])]
    return [(0, [_rounded(each, digits)[0][1] for each in value])]


def log_likelihood(delay: Delay, observed: Floats) -> float:
    """Give Σ ln density of the observations (−inf if one of them is impossible)."""
    with np.errstate(divide="ignore"):
        return float(np.sum(np.log(delay.density(observed))))


def _exponential(observed: Floats) -> Delay:
    return delays.Exponential(mean=float(observed.mean()))


def _shifted_exponential(observed: Floats) -> Delay:
    return delays.ShiftedExponential(shift=float(observed[0]), mean=float(observed.mean()) - float(observed[0]))


def _uniform(observed: Floats) -> Delay:
    return delays.Uniform(low=float(observed[0]), high=float(observed[-1]))


def _lognormal(observed: Floats) -> Delay:
    logs = _logs(observed)
    return delays.LogNormal(median=math.exp(float(logs.mean())), sigma=float(logs.std()))


def _normal(observed: Floats) -> Delay:
    """Truncated at 0: a search from the parameters of the untruncated law."""
    z, scale = _scaled(observed), float(observed.mean())
    mean, square = float(z.mean()), float((z * z).mean())

    def loss(parameters: Floats) -> float:
        centre, sd = float(parameters[0]), math.exp(float(parameters[1]))
        spread = (square - 2 * centre * mean + centre * centre) / (2 * sd * sd)
        return spread + math.log(sd) + float(log_ndtr(centre / sd))

    start = np.array([mean, math.log(max(float(z.std()), 1e-9))])
    bounds = [(0.0, 2 * float(z[-1])), (math.log(1e-9), math.log(10 * float(z[-1])))]
    precise: Any = {"ftol": 1e-15, "gtol": 1e-10}
    search: Any = optimize.minimize(loss, start, method="L-BFGS-B", bounds=bounds, options=precise)
    precise = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 2000}
    refined: Any = optimize.minimize(loss, search.x, method="Nelder-Mead", bounds=bounds, options=precise)
    centre, log_sd = map(float, (refined if refined.fun < search.fun else search).x)
    return delays.Normal(mean=centre * scale, sd=math.exp(log_sd) * scale)


def _gamma(observed: Floats) -> Delay:
    _logs(observed)
    shape, _, scale = stats.gamma.fit(observed, floc=0)
    return delays.Gamma(shape=float(shape), scale=float(scale))


def _weibull(observed: Floats) -> Delay:
    """The shape is the root of the profile likelihood's derivative, which is monotone; the scale follows."""
    logs = _logs(observed)
    centred = logs - logs.mean()

    def slope(shape: float) -> float:
        weights = np.exp(shape * (centred - centred[-1]))
        return float((weights * centred).sum() / weights.sum() - 1 / shape)

    guess = 1.2825 / float(centred.std())  # of the logarithm, a Gumbel law, sd · shape = π / √6
    low, high = guess / 2, guess * 2
    while slope(low) > 0:
        low /= 2
    while slope(high) < 0:
        high *= 2
    shape = float(optimize.brentq(slope, low, high, xtol=1e-14, rtol=1e-13))
    powers = float(np.log(np.mean(np.exp(shape * (centred - centred[-1]))))) / shape + float(centred[-1])
    return delays.Weibull(shape=shape, scale=math.exp(powers + float(logs.mean())))


def _pareto(observed: Floats) -> Delay:
    logs = _logs(observed)
    return delays.Pareto(minimum=float(observed[0]), shape=1 / float((logs - logs[0]).mean()))


def _hyper_exponential(observed: Floats) -> Delay:
    """Two phases, from the halves below and above the median: a search with gradients over logarithms of the means."""
    z, scale, half = _scaled(observed), float(observed.mean()), len(observed) // 2

    def loss(parameters: Floats) -> tuple[float, Floats]:
        share, means = expit(parameters[0]), np.exp(parameters[1:])
        first, second = (
            np.log(part) - np.log(mean) - z / mean for part, mean in zip((share, 1 - share), means, strict=True)
        )
        total = np.logaddexp(first, second)
        belongs = np.exp(first - total)
        slopes = belongs * (z / means[0] - 1), (1 - belongs) * (z / means[1] - 1)
        return -float(total.mean()), -np.array([belongs.mean() - share, *(slope.mean() for slope in slopes)])

    low, high = math.log(_SMALLEST), math.log(10 * float(z[-1]))
    start = np.log(np.maximum([z[:half].mean(), z[half:].mean()], 1e-6))
    bounds = [(low, -low), (low, high), (low, high)]
    options: Any = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 1000}
    search: Any = optimize.minimize(loss, [0.0, *start], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    share, means = float(expit(search.x[0])), np.exp(search.x[1:])
    if means.min() < 2 * _SMALLEST:
        raise ValueError("many observations are 0, which no exponential gives")
    if len(z) * (1 - search.fun) < 0.5 or not 2 * _SMALLEST < share < 1 - 2 * _SMALLEST:
        raise ValueError("two phases fit no better than one: that is an exponential delay")
    return delays.HyperExponential(probabilities=(share, 1 - share), means=tuple((scale * means).tolist()))


def _scaled(observed: Floats) -> Floats:
    if not observed[-1] > 0:
        raise ValueError("all observations are 0")
    return np.asarray(observed / observed.mean())


def _logs(observed: Floats) -> Floats:
    """Give the logarithms, for a law on (0, inf)."""
    if observed[0] <= 0:
        zeros = int(np.count_nonzero(observed == 0))
        raise ValueError(f"{zeros:,} observations are 0, which has no density under this law")
    return np.log(observed)


FAMILIES: dict[str, Family] = {
    "exponential": Family(_exponential, 1),
    "shifted_exponential": Family(_shifted_exponential, 2, ends=1),
    "uniform": Family(_uniform, 2, ends=2),
    "normal": Family(_normal, 2),
    "lognormal": Family(_lognormal, 2),
    "gamma": Family(_gamma, 2),
    "weibull": Family(_weibull, 2),
    "pareto": Family(_pareto, 2, ends=1),
    "hyper_exponential": Family(_hyper_exponential, 3),
}
"""The families to fit, the simplest first."""


# --- goodness of fit --------------------------------------------------------------------------------------------------


SAMPLES = 199
"""Samples that a p-value is simulated from, so that it is a multiple of 1/200."""
SAMPLE_SIZE = 1000
"""Values in such a sample, at most: beyond, √n times the distance hardly depends on n."""

_FITTED = SAMPLES // 2
"""With fewer fitted samples, p-values of 1 % could not come out."""
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
"""Of the quantiles that are shown."""


class Quantile(NamedTuple):
    """The quantile of ``level`` of observations and of a law, in seconds.

    ``errors``: how many standard errors of the observations' cdf the law's cdf is away from ``level`` there.
    """

    level: float
    observed: float
    law: float
    errors: float

    @property
    def part(self) -> str:
        """The part of the law where it lies."""
        return "lower tail" if self.level < 0.05 else "tail" if self.level > 0.95 else "body"


def quantiles(delay: Delay, observed: Floats) -> list[Quantile]:
    """Give quantiles of observations in order beside those of a law, at the ``LEVELS`` that have some beyond them."""
    count = len(observed)
    levels = [level for level in LEVELS if count * min(level, 1 - level) >= 1]
    places = np.quantile(observed, levels, method="inverted_cdf")
    errors = [
        abs(float(delay.cdf(place)) - level) / math.sqrt(level * (1 - level) / count)
        for level, place in zip(levels, places, strict=True)
    ]
    laws = (float(delay.quantile(level)) for level in levels)
    return [*map(Quantile, levels, places.tolist(), laws, errors)]


def ks_statistic(delay: Delay, observed: Floats) -> float:
    """Give the largest distance between the cdf and that of the observations, which are in order."""
    levels, count = delay.cdf(observed), len(observed)
    steps = np.arange(count + 1) / count
    return float(max(np.max(steps[1:] - levels), np.max(levels - steps[:-1])))


def ks_p_value(delay: Delay, method: Callable[[Floats], Delay], statistic: float, count: int) -> float:
    """Give the p-value of the distance of ``count`` observations from ``delay``, fitted to them by ``method``.

    It is the share of samples of the fitted law whose distance is as large, after the same fit (a parametric bootstrap,
    as Lilliefors 1967). Samples that ``method`` cannot fit count for nothing; NaN if fewer than ``_FITTED`` are left.
    The samples' stream is fixed: equal data have equal p-values.
    """
    size = min(count, SAMPLE_SIZE)
    uniforms = Uniforms(0, SHARED, "fit.samples").blocks(0, -(-SAMPLES * size // BLOCK), delay.uniforms)
    samples = np.sort(np.asarray(delay.sample(uniforms))[: SAMPLES * size].reshape(SAMPLES, size))
    fitted = as_large = 0
    for sample in samples:
        try:
            distance = ks_statistic(method(sample), sample)
        except ValueError:  # no member of the family, or an impossible one, such as with an infinite mean
            continue
        fitted += 1
        as_large += distance * math.sqrt(size) >= statistic * math.sqrt(count)
    return (1 + as_large) / (1 + fitted) if fitted >= _FITTED else math.nan
