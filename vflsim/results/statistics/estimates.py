"""Estimates of one number from several runs, some of which may be censored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsim.results.statistics.means import (
    Interval,
    log_interval,
    narrower,
    one_sided,
    t_interval,
    welch_interval,
)
from vflsim.results.statistics.quantiles import order_statistics
from vflsim.timing.floats import Floats

MEAN = "mean"
GEOMETRIC = "geometric mean"


@dataclass(frozen=True)
class Estimate:
    """Estimate of one number from ``n`` runs, ``reached`` of them exact, the others lower bounds (censored).

    ``mean`` and its 95 % interval ``low``–``high`` exist if all runs are exact, else they are NaN; ``statistic`` says
    which mean it is. Otherwise ``horizon`` is the smallest censored value, ``median`` is that of the exact runs, with
    its 95 % interval ``median_low``–``median_high`` from six of them on, and ``at_least`` / ``at_most`` are one-sided
    95 % limits of the mean, where there can be any (for a single run, or pair, they are its bound). ``narrower`` is the
    gain from pairing for a paired difference (:func:`~vflsim.results.statistics.means.narrower`), and ``p`` the p-value
    of no difference, of the ratio for geometric means.
    """

    n: int
    reached: int
    mean: float = np.nan
    low: float = np.nan
    high: float = np.nan
    at_least: float = np.nan
    at_most: float = np.nan
    horizon: float = np.nan
    narrower: float = np.nan
    median: float = np.nan
    median_low: float = np.nan
    median_high: float = np.nan
    p: float = np.nan
    statistic: str = MEAN

    @classmethod
    def of(cls, row: Mapping[Any, Any] | pd.Series) -> Self:
        """Read the estimate in a row of :func:`~vflsim.results.statistics.summary.summarise`."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})

    def within(self, least: float, greatest: float) -> Self:
        """Return the estimate with an interval that ends where the measure does.

        The mean of values in a range lies in that range, so the cut interval covers it as often as the whole one.
        """
        return replace(self, low=max(self.low, least), high=min(self.high, greatest))  # NaN stays: it is the first

    @property
    def censored(self) -> bool:
        """Whether some run is censored."""
        return self.reached < self.n


def estimate(values: Floats, censored: npt.NDArray[np.bool_], statistic: str = MEAN) -> Estimate:
    """Estimate a mean from values; censored ones are lower bounds. A geometric mean needs positive values."""
    interval = log_interval if statistic == GEOMETRIC else t_interval
    n, reached = len(values), int((~censored).sum())
    if reached == n:
        found = interval(values)
        return Estimate(n, n, found.mean, found.low, found.high, statistic=statistic)
    known = np.sort(values[~censored])
    ends = order_statistics(len(known), 0.5)
    low, high = (float(known[end]) for end in ends) if ends else (np.nan, np.nan)
    return Estimate(
        n,
        reached,
        at_least=max(0.0, _limit(interval(values, one_sided()), "low")),  # no cost is below 0
        horizon=float(values[censored].min()),
        median=float(np.median(known)) if reached else np.nan,
        median_low=low,
        median_high=high,
        statistic=statistic,
    )


def paired(
    values: Floats,
    censored: npt.NDArray[np.bool_],
    others: Floats,
    others_censored: npt.NDArray[np.bool_],
    statistic: str = MEAN,
) -> Estimate:
    """Estimate the mean of ``values - others``, seed by seed; a one-sided limit if only one side is censored.

    ``p`` tests whether the ``statistic`` of both is the same.
    """
    difference = values - others
    either = censored | others_censored
    n, reached = len(difference), int((~either).sum())
    if n == 0:
        return Estimate(0, 0)
    if either.any():
        known = t_interval(difference, one_sided())
        return _bounded(n, reached, known, bool(censored.any()), bool(others_censored.any()))
    found = t_interval(difference)
    logarithms = statistic == GEOMETRIC and bool((values > 0).all() and (others > 0).all())
    tested = t_interval(np.log(values / others)) if logarithms else found
    return Estimate(n, n, found.mean, found.low, found.high, narrower=narrower(values, others), p=tested.p)


def independent(
    values: Floats,
    censored: npt.NDArray[np.bool_],
    others: Floats,
    others_censored: npt.NDArray[np.bool_],
    statistic: str = MEAN,
) -> Estimate:
    """Estimate the mean of ``values`` − the mean of ``others`` from independent runs; limits as in :func:`paired`.

    ``n`` and ``reached`` count the runs of both.
    """
    late, waiting = bool(censored.any()), bool(others_censored.any())
    n = len(values) + len(others)
    reached = n - int(censored.sum()) - int(others_censored.sum())
    if late or waiting:
        return _bounded(n, reached, welch_interval(values, others, one_sided()), late, waiting)
    found = welch_interval(values, others)
    logarithms = statistic == GEOMETRIC and bool((values > 0).all() and (others > 0).all())
    tested = welch_interval(np.log(values), np.log(others)) if logarithms else found
    return Estimate(n, n, found.mean, found.low, found.high, p=tested.p)


def _bounded(n: int, reached: int, known: Interval, late: bool, waiting: bool) -> Estimate:
    """Bound a difference from the interval of what is ``known`` of it; ``late``: its first side is censored."""
    at_least = np.nan if waiting else _limit(known, "low")
    return Estimate(n, reached, at_least=at_least, at_most=np.nan if late else _limit(known, "high"))


def _limit(found: Interval, side: Literal["low", "high"]) -> float:
    """Return a limit of a mean; of a single value, the value itself."""
    return found.mean if found.n < 2 else getattr(found, side)
