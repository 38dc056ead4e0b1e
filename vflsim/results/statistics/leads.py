"""Compute one protocol's lead over the others: differences at equal virtual times, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflsim.errors import ResultsError
from vflsim.intervals.means import band, step_values
from vflsim.results.run_set import RunSet
from vflsim.timing.floats import Floats


@dataclass(frozen=True)
class Lead:
    """``protocol``'s metric minus ``baseline``'s over ``time_s`` (points,): mean over ``seeds`` and 95 % interval.

    Limits are NaN for one seed. Intervals are pointwise, not simultaneous.
    """

    protocol: str
    baseline: str
    seeds: tuple[int, ...]
    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats

    def share(self, sign: int) -> float:
        """Return the share of points at which the whole interval is above (``sign`` 1) or below (−1) zero."""
        return float(np.mean(self.low > 0 if sign > 0 else self.high < 0))


def leads(
    results: RunSet, protocol: str, metric: str | None = None, times: Sequence[float] | None = None
) -> list[Lead]:
    """Compare ``protocol`` with every other one at ``times`` (default: its evaluations up to the first end of a run).

    Between evaluations a metric (default: the main one) keeps its last value. Baselines without a common finished seed
    are left out. Raises ResultsError for a protocol without a finished run, and for a metric that was not evaluated.
    """
    metric = metric or results.main_metric
    if metric not in results.evaluated:
        raise ResultsError(f"{metric!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    own = _curves(results, protocol, metric)
    if not own:
        raise ResultsError(f"{protocol!r} has no finished run", str(results.folder), ", ".join(results.protocols))
    found = []
    for baseline in results.protocols:
        other = _curves(results, baseline, metric) if baseline != protocol else {}
        seeds = tuple(sorted(own.keys() & other.keys()))
        if seeds:
            pairs = [(own[seed], other[seed]) for seed in seeds]
            grid = _common(pairs) if times is None else np.asarray(times, dtype=np.float64)
            gaps = np.stack([step_values(*mine, grid) - step_values(*its, grid) for mine, its in pairs])
            found.append(Lead(protocol, baseline, seeds, grid, *band(gaps)))
    return found


def _curves(results: RunSet, protocol: str, metric: str) -> dict[int, tuple[Floats, Floats]]:
    """Return (times, values) of every finished run, by seed."""
    failed = {run.seed for run in results.failed if run.protocol == protocol}
    frame = results.metrics[(results.metrics["protocol"] == protocol) & results.metrics[metric].notna()]
    curves = {}
    for seed in results.seeds:
        own = frame[frame["seed"] == seed]
        if seed not in failed and len(own):
            curves[seed] = own["time_s"].to_numpy(dtype=np.float64), own[metric].to_numpy(dtype=np.float64)
    return curves


def _common(pairs: Sequence[tuple[tuple[Floats, Floats], tuple[Floats, Floats]]]) -> Floats:
    """List the evaluation times of the first of each pair, up to the earliest end of all runs."""
    end = min(float(x[-1]) for pair in pairs for x, _ in pair)
    grid = np.unique(np.concatenate([mine[0] for mine, _ in pairs]))
    return grid[grid <= end]
