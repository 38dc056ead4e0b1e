"""What the runs of the study of orderings cost: estimates, ranks, and how far orders agree.

Reads the tables that scenarios/orderings/run.py writes; docs/orderings-plan.md says what each word means.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, Estimate, SeedSample, estimate

TABLES = Path(__file__).parents[1] / "scenarios" / "orderings" / "tables"
WORLDS = ("exponential", "tails", "shared", "phones", "outages", "lte")
DATA = ("fashion_mnist", "credit", "handwritten")
COSTS = {
    "seconds": "time_to_target",
    "bytes": "bytes_to_target",
    "joules": "energy_to_target",
    "rounds": "rounds_to_target",
}
Block = tuple[str, str]


@cache
def runs(folder: Path = TABLES) -> pd.DataFrame:
    """Read the table of all runs: data, world, protocol, seed, measure, value, censored.

    The words that rows are chosen by are categories: comparing these compares integers.
    """
    return pd.read_parquet(folder / "runs.parquet").astype(dict.fromkeys(("data", "world", "measure"), "category"))


def blocks(frame: pd.DataFrame) -> list[Block]:
    """Return the blocks that have run, in the order of the plan."""
    there = set(zip(frame["data"], frame["world"], strict=True))
    return [(data, world) for data in DATA for world in WORLDS if (data, world) in there]


def protocols(frame: pd.DataFrame) -> list[str]:
    """Return the protocols in the order of the scenario."""
    return list(dict.fromkeys(frame["protocol"]))


def of(frame: pd.DataFrame, block: Block, measure: str) -> pd.DataFrame:
    """Return the rows of a measure in a block."""
    return frame[(frame["data"] == block[0]) & (frame["world"] == block[1]) & (frame["measure"] == measure)]


def estimates(frame: pd.DataFrame, block: Block, measure: str) -> dict[str, Estimate]:
    """Estimate a measure of each protocol; geometric means of costs above 0. A protocol with a failed run has none."""
    rows = of(frame, block, measure)
    statistic = GEOMETRIC if measure in COSTS.values() and (rows["value"] > 0).all() else MEAN
    failed = set(of(frame, block, "failed")["protocol"])
    return {
        name: estimate(
            SeedSample((*own["seed"],), own["value"].to_numpy(float), own["censored"].to_numpy(bool)), statistic
        )
        for name, own in rows.groupby("protocol", sort=False)
        if name not in failed
    }


def ranks(found: dict[str, Estimate], names: list[str]) -> dict[str, int]:
    """Rank protocols: one more than the number of those whose interval lies below; the unreached share the last."""
    exact = {name: each for name, each in found.items() if not each.censored}
    last = len(exact) + 1
    return {
        name: 1 + sum(other.high < exact[name].low for other in exact.values()) if name in exact else last
        for name in names
    }


def order(found: dict[str, Estimate], names: list[str]) -> np.ndarray:
    """Return costs to correlate: means, and infinity where some seed did not reach the target."""
    return np.array([found[name].mean if name in found and not found[name].censored else np.inf for name in names])


def tau(one: np.ndarray, other: np.ndarray) -> float:
    """Compute Kendall's τ-b of two lists of costs."""
    greatest = 2 * max(*one[np.isfinite(one)], *other[np.isfinite(other)], 1.0)
    return float(kendalltau(np.minimum(one, greatest), np.minimum(other, greatest)).statistic)


def tau_between_worlds(frame: pd.DataFrame, data: str, measure: str = "seconds") -> pd.DataFrame:
    """Return Kendall's τ between each two worlds of a data set."""
    names, columns = protocols(frame), [block for block in blocks(frame) if block[0] == data]
    costs = [order(estimates(frame, block, COSTS[measure]), names) for block in columns]
    worlds = [world for _, world in columns]
    return pd.DataFrame([[tau(a, b) for b in costs] for a in costs], index=worlds, columns=worlds)


def tau_between_measures(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Kendall's τ of seconds with bytes, joules and rounds in each block."""
    names = protocols(frame)
    rows = {}
    for block in blocks(frame):
        costs = {measure: order(estimates(frame, block, name), names) for measure, name in COSTS.items()}
        rows["/".join(block)] = {m: tau(costs["seconds"], costs[m]) for m in COSTS if m != "seconds"}
    return pd.DataFrame(rows).T
