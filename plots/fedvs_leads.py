"""Lead of FedVS over each baseline in points of accuracy, paired over seeds: a Markdown table per results folder."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflsim.errors import ResultsError, VflsimError
from vflsim.intervals import band, step_values
from vflsim.results import Results
from vflsim.timing.floats import Floats

PARTS = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Parts of a run's virtual time at which the differences are shown."""


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
    results: Results, protocol: str, metric: str | None = None, times: Sequence[float] | None = None
) -> list[Lead]:
    """Compare ``protocol`` with every other one at ``times`` (default: its evaluations up to the first end of a run).

    Between evaluations a metric (default: the main one) keeps its last value. Baselines without a common finished seed
    are left out. Raises ResultsError for a protocol without a finished run, and for a metric that was not evaluated.
    """
    metric = metric or results.main_metric
    if metric not in results.evaluated:
        raise ResultsError(f"{metric!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    curves = _curves(results, protocol, metric)
    if not curves:
        raise ResultsError(f"{protocol!r} has no finished run", str(results.folder), ", ".join(results.protocols))
    comparisons = []
    for baseline in results.protocols:
        other = _curves(results, baseline, metric) if baseline != protocol else {}
        seeds = tuple(sorted(curves.keys() & other.keys()))
        if seeds:
            pairs = [(curves[seed], other[seed]) for seed in seeds]
            grid = _common(pairs) if times is None else np.asarray(times, dtype=np.float64)
            gaps = np.stack([step_values(*mine, grid) - step_values(*its, grid) for mine, its in pairs])
            comparisons.append(Lead(protocol, baseline, seeds, grid, *band(gaps)))
    return comparisons


def _curves(results: Results, protocol: str, metric: str) -> dict[int, tuple[Floats, Floats]]:
    """Return (times, values) of every finished run, by seed."""
    failed = {run.seed for run in results.failed if run.protocol == protocol}
    frame = results.metrics[(results.metrics["protocol"] == protocol) & results.metrics[metric].notna()]
    curves = {}
    for seed in results.seeds:
        rows = frame[frame["seed"] == seed]
        if seed not in failed and len(rows):
            curves[seed] = rows["time_s"].to_numpy(dtype=np.float64), rows[metric].to_numpy(dtype=np.float64)
    return curves


def _common(pairs: Sequence[tuple[tuple[Floats, Floats], tuple[Floats, Floats]]]) -> Floats:
    """List the evaluation times of the first of each pair, up to the earliest end of all runs."""
    end = min(float(x[-1]) for pair in pairs for x, _ in pair)
    grid = np.unique(np.concatenate([mine[0] for mine, _ in pairs]))
    return grid[grid <= end]


def table(results: Results, protocol: str) -> Iterator[str]:
    """Yield the lines of the table: differences at a few times, and how often the interval excludes 0 on each side."""
    end = float(results.metrics.groupby(["protocol", "seed"])["time_s"].max().min())
    times = [part * end for part in PARTS]
    yield f"| {results.name}: {protocol} minus | " + " | ".join(f"{t:g} s" for t in times) + " | leads | trails |"
    yield "|---|" + "---|" * (len(times) + 2)
    over = leads(results, protocol)
    for there, all_along in zip(leads(results, protocol, times=times), over, strict=True):
        half = (there.high - there.low) / 2
        differences = [
            f"{100 * mean:+.1f}" + ("" if np.isnan(width) else f" ± {100 * width:.1f}")
            for mean, width in zip(there.mean, half, strict=True)
        ]
        shares = [f"{100 * all_along.share(sign):.0f} %" for sign in (1, -1)]
        yield f"| {there.baseline} | " + " | ".join([*differences, *shares]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run has written")
    parser.add_argument("--protocol", default="fedvs", help="protocol to compare with all others")
    given = parser.parse_args()
    try:
        for folder in given.results:
            print("\n".join(table(Results.open(folder), given.protocol)), end="\n\n")
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
