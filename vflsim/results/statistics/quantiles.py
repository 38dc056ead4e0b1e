"""Quantiles of round durations, each with an interval. Too few rounds for an interval give no number.

For independent rounds the intervals are exact for any distribution: the number of durations below a quantile is
binomial, so two order statistics enclose it with the requested probability. For dependent rounds, batches give an
interval of the share of durations below the quantile, and the corresponding order statistics are its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import bdtr, bdtrik, chdtri, stdtrit

from vflsim.errors import ResultsError
from vflsim.intervals import BATCHES, CONFIDENCE, FEWEST, Variation, batch_means, constant, ranks, warm_up
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.rounds import Rounds, ages_of, outlasting, variation_of
from vflsim.tables import DataTable
from vflsim.timing.floats import Floats
from vflsim.vocabulary.amounts import quantity, spanned

LEVELS = (0.5, 0.9, 0.99, 0.999, 0.9999)
LAGS = 10
"""Largest lag, in rounds, of the test for dependence."""
SIGNIFICANCE = 0.01
"""Level of that test: how often it takes independent rounds for dependent ones (and widens their intervals)."""
BEYOND = 100
"""Rounds needed on either side of a quantile if they are dependent."""
CYCLES = 4
"""Cycles of the slowest change, such as bursts, that a batch of rounds has to last for."""
QUANTILES = "Quantiles of round durations with 95 % intervals, over the rounds of all seeds after each run’s warm-up."
"""Note below tables of quantiles."""

Method = Literal["order statistics", "batch means", "not enough rounds"]


@dataclass(frozen=True)
class QuantileEstimate:
    """A quantile of a sequence with its interval; all NaN for ``not enough rounds``."""

    value: float
    low: float
    high: float
    method: Method


_NONE = QuantileEstimate(np.nan, np.nan, np.nan, "not enough rounds")
_NO_AGES = np.empty(0)


def round_quantiles(results: RunSet, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
    """Estimate quantiles of every protocol's round durations over its finished runs; one row per protocol and level.

    Columns: protocol, level, value, low, high (seconds), method, rounds, runs, warm_up. They are quantiles of the
    steady state, for all protocols alike: each run's warm-up is left out, ``warm_up`` rounds together. ``low``–``high``
    covers the quantile with at least 95 % (asymptotically for rounds that depend on each other, see
    :func:`dependent`). Where the scenario says that rounds change slowly, there are numbers from 20 cycles on.
    Raises NotRecordedError if rounds were not kept, ResultsError for a level outside (0, 1).
    """
    for level in levels:
        if not 0 < level < 1:
            raise ResultsError(f"{level} is no level of a quantile", str(results.folder), "above 0 and below 1")
    rows = []
    for protocol in results.protocols:
        runs, removed, values = _pooled(results, protocol)
        facts = {"rounds": len(values), "runs": len(runs), "warm_up": sum(removed)}
        known = variation_of(results, protocol)
        for level, quantile in zip(levels, quantile_estimates(values, levels, ages_of(runs), known), strict=True):
            rows.append({"protocol": protocol, "level": level, **vars(quantile), **facts})
    return pd.DataFrame(
        rows, columns=["protocol", "level", "value", "low", "high", "method", "rounds", "runs", "warm_up"]
    )


def quantile_estimates(
    values: Floats, levels: Sequence[float], ages: Floats = _NO_AGES, variation: Variation | None = None
) -> list[QuantileEstimate]:
    """Estimate quantiles of one sequence (n,), independent or not, without removing a warm-up.

    ``ages`` are those of rounds in progress at the end of runs; ``variation`` is what the scenario says of the values,
    as durations (s).
    """
    ordered, cycles = _Ordered.of(values, ages), cycles_seen(values, variation)
    if cycles < CYCLES * FEWEST:
        return [_NONE] * len(levels)
    if cycles >= CYCLES * BATCHES and not dependent(values):
        return [_exact(ordered, level) for level in levels]
    batches = int(min(BATCHES, cycles // CYCLES))
    return [_dependent(values, ordered, level, batches) for level in levels]


def cycles_seen(values: Floats, variation: Variation | None) -> float:
    """Return how many cycles of the slowest known change the durations (n,) last for; infinite without any."""
    return float(values.sum()) / variation.cycle_s if variation is not None and variation.cycle_s > 0 else math.inf


def _pooled(results: RunSet, protocol: str) -> tuple[list[Rounds], list[int], Floats]:
    """Return a protocol's finished runs, the rounds of warm-up of each, and the durations of all other rounds."""
    runs = [Rounds.of(run) for run in results.runs if run.protocol == protocol and not run.failed]
    removed = [warm_up(run.complete)[0] for run in runs]
    durations = (run.complete[count:] for run, count in zip(runs, removed, strict=True))
    return runs, removed, np.concatenate([np.empty(0), *durations])


def dependent(values: Floats) -> bool:
    """Test whether the values of a sequence (n,) depend on each other, by a portmanteau test on their ranks.

    Ljung and Box's statistic over lags 1 to 10; ranks make it robust to heavy tails and outliers. For independent
    values it is True with probability 1 %. Always False for fewer than 40 values.
    Source: Ljung and Box, Biometrika 65(2), 1978.
    """
    n = len(values)
    if n < 4 * LAGS or constant(values):
        return False
    place = ranks(values)
    place -= place.mean()
    total = float((place * place).sum())  # not a dot product, whose last bits depend on BLAS and its threads
    products = (float((place[lag:] * place[:-lag]).sum()) for lag in range(1, LAGS + 1))
    statistic = sum((product / total) ** 2 / (n - lag) for lag, product in enumerate(products, start=1))
    return bool(n * (n + 2) * statistic > chdtri(LAGS, SIGNIFICANCE))


def order_statistics(n: int, level: float) -> tuple[int, int] | None:
    """Find the indices (from 0) of two among n ordered independent values that enclose a quantile.

    P(X_(l) ≤ x ≤ X_(u)) ≥ P(l ≤ Bin(n, level) < u), with l, u counted from 1 and an error of at most
    (1 − ``CONFIDENCE``)/2 on either side; None if even the smallest or the largest value does not enclose it.
    Source: David and Nagaraja, Order Statistics, §7.1.
    """
    tail = (1 - CONFIDENCE) / 2
    low, high = _binomial_quantile(tail, n, level), _binomial_quantile(1 - tail, n, level) + 1
    return (low - 1, high - 1) if low >= 1 and high <= n else None


def _binomial_quantile(probability: float, n: int, share: float) -> int:
    """Return the smallest k with P(Bin(n, share) ≤ k) ≥ probability."""
    k = max(int(np.ceil(bdtrik(probability, n, share))), 0) if bdtr(0, n, share) < probability else 0
    return k - 1 if k and bdtr(k - 1, n, share) >= probability else k


@dataclass(frozen=True)
class _Ordered:
    """Durations in ascending order, with rounds in progress at the end of runs: as short and as long as they may be.

    ``low`` has them at their ages, ``high`` without end.
    """

    low: Floats
    high: Floats
    complete: Floats
    shares: Floats

    @classmethod
    def of(cls, values: Floats, ages: Floats) -> _Ordered:
        complete = np.sort(values)
        high = np.concatenate([complete, np.full(len(ages), np.inf)])
        return cls(np.sort(np.concatenate([values, ages])), high, complete, outlasting(complete, ages))

    def estimate(self, level: float, low: int, high: int, method: Method) -> QuantileEstimate:
        """Estimate the quantile of a level, between the order statistics of the indices ``low`` and ``high``."""
        value, top = self.at(level), float(self.high[high])
        if np.isinf(top) or np.isnan(value):
            return _NONE
        return QuantileEstimate(value, float(self.low[low]), top, method)

    def at(self, level: float) -> float:
        """Return the empirical quantile: the smallest value that at least a share ``level`` does not exceed."""
        if len(self.high) == len(self.complete):
            return float(self.complete[max(int(np.ceil(len(self.complete) * level)) - 1, 0)])
        reached = np.flatnonzero(self.shares[1:] <= 1 - level)
        return float(self.complete[reached[0]]) if len(reached) else np.nan


def _exact(ordered: _Ordered, level: float) -> QuantileEstimate:
    n = len(ordered.high)
    if n == 0 or (ends := order_statistics(n, level)) is None:
        return _NONE
    return ordered.estimate(level, *ends, "order statistics")


def _dependent(values: Floats, ordered: _Ordered, level: float, batches: int) -> QuantileEstimate:
    """Use batch means of the share of values up to the quantile; never narrower than for independent values.

    Source: the indirect method, Heidelberger and Lewis, Operations Research 32(1), 1984.
    """
    n = len(ordered.high)
    ends = order_statistics(n, level)
    if ends is None or n * min(level, 1 - level) < BEYOND:
        return _NONE
    value = ordered.at(level)
    shares, _, correlated = batch_means((values <= value).astype(np.float64), batches)
    half = stdtrit(len(shares) - 1, (1 + CONFIDENCE) / 2) * shares.std(ddof=1) / np.sqrt(len(shares))
    low, high = int(np.floor(n * (level - half))) - 1, int(np.ceil(n * (level + half)))
    low, high = min(low, ends[0]), max(high, ends[1])
    if correlated or low < 0 or high >= n:
        return _NONE
    return ordered.estimate(level, low, high, "batch means")


def too_slow(results: RunSet) -> Iterator[str]:
    """Yield a note for every protocol whose runs have seen too few cycles of a slow change."""
    for name in results.protocols:
        known = variation_of(results, name)
        seen = cycles_seen(_pooled(results, name)[-1], known)
        if known is not None and seen < CYCLES * FEWEST:
            cycle = f"{known.cycle} ({quantity(known.cycle_s, 's')} each)"
            yield f"{name}: {seen:.2g} of {CYCLES * FEWEST} cycles of {cycle} seen: run longer, or with more seeds."


def quantile_table(results: RunSet) -> DataTable:
    """Make the table of quantiles for a terminal: one row per protocol, one column per level."""
    quantiles = round_quantiles(results)
    rows = []
    for name, group in quantiles.groupby("protocol", sort=False):
        first = group.iloc[0]
        cells = [
            row["method"] if np.isnan(row["value"]) else spanned(row["value"], row["low"], row["high"], "s")
            for _, row in group.iterrows()
        ]
        rows.append((str(name), int(first["rounds"]), *cells))
    header = ("protocol", "rounds", *(f"{100 * level:.6g} %" for level in LEVELS))
    notes = [QUANTILES]
    warm = quantiles.groupby("protocol", sort=False)["warm_up"].first()
    if warm.any():
        removed = ", ".join(f"{name} {count:,}" for name, count in warm[warm > 0].items())
        notes.append(f"Rounds of warm-up that are left out: {removed}.")
    if related := dict.fromkeys(quantiles.loc[quantiles["method"] == "batch means", "protocol"]):
        notes.append(f"Rounds depend on each other, intervals by batch means: {', '.join(related)}.")
    if any(run.open_round() is not None for run in results.runs if not run.failed and run.has("rounds")):
        notes.append(
            "Rounds in progress when runs stopped by time are censored: intervals hold however long they last."
        )
    if quantiles["value"].isna().any():
        notes.append("“not enough rounds”: too few for an interval, and so for a number.")
    notes += too_slow(results)
    return DataTable(header, rows, title=f"{results.name}: round durations after the warm-up", notes=notes)
