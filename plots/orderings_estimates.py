"""What the runs of the study of orderings cost: restricted means, ranks with intervals, and how far orders agree.

Reads the tables that scenarios/orderings/run.py writes; scenarios/orderings/plan.md says what each word means.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, rankdata

TABLES = Path(__file__).parents[1] / "scenarios" / "orderings" / "tables"
WORLDS = ("exponential", "tails", "shared", "phones", "outages", "lte")
DATA = ("handwritten", "credit", "fashion_mnist")
PROTOCOLS = (
    "wait", "fastest", "t-sync", "async", "fedvs", "fedbcd", "c-vfl", "ef-vfl", "bs-vfl", "celu-vfl", "flex-vfl",
    "laser-vfl", "vimadmm", "fdml",
)  # fmt: skip
COSTS = ("seconds", "bytes", "joules", "rounds")
Block = tuple[str, str]
SAMPLES, HALVES, SEED = 2000, 500, 20
FLOOR = 0.9
"""The τ between two halves of its seeds from which on the order of a block counts as known."""


@cache
def runs(folder: Path = TABLES) -> pd.DataFrame:
    """Read all runs: data, world, network, protocol, seed, measure, value, censored.

    A run that misses a target has the horizon as its seconds, also one that has ended by rounds, and as its other costs
    the greatest of all runs of its block: otherwise one that ends early, and never gets there, would look cheap.
    """
    frame = pd.concat([pd.read_parquet(each) for each in sorted(folder.glob("runs-*.parquet"))], ignore_index=True)
    text = ["data", "world", "network", "protocol", "measure"]
    frame[text] = frame[text].astype(str)
    horizons = tuning(folder).groupby(["data", "world"])["horizon"].first()
    by_horizon = frame["measure"].str.startswith("seconds")
    block = frame["data"].str.cat(frame["world"], "/")
    greatest = frame.groupby([block, "network", "measure"])["value"].transform("max")
    greatest = greatest.where(~by_horizon, block.map({"/".join(key): value for key, value in horizons.items()}))
    frame["value"] = frame["value"].where(~frame["censored"], greatest)
    return frame.astype(dict.fromkeys(text, "category"))


@cache
def tuning(folder: Path = TABLES) -> pd.DataFrame:
    """Read all settings that were tried, with their scores, the targets and the horizon of their block."""
    return pd.concat([pd.read_parquet(each) for each in sorted(folder.glob("tuning-*.parquet"))], ignore_index=True)


def blocks(frame: pd.DataFrame) -> list[Block]:
    """Return the blocks that have run, in the order of the plan."""
    there = set(zip(frame["data"], frame["world"], strict=True))
    return [(data, world) for data in DATA for world in WORLDS if (data, world) in there]


def table(frame: pd.DataFrame, block: Block, measure: str, network: str = "fair") -> pd.DataFrame:
    """Return a measure of a block: protocols by seeds, in the order of the plan; NaN for a run that failed."""
    return _wide(frame, block, measure, network, "value")


def reached(frame: pd.DataFrame, block: Block, measure: str) -> pd.Series:
    """Return with how many seeds each protocol met the target of a cost."""
    return (~_wide(frame, block, measure, "fair", "censored").astype(bool)).sum(axis=1)


def _wide(frame: pd.DataFrame, block: Block, measure: str, network: str, column: str) -> pd.DataFrame:
    here = (frame["data"] == block[0]) & (frame["world"] == block[1]) & (frame["network"] == network)
    own = frame[here & (frame["measure"] == measure)].astype({"protocol": str})
    wide = own.pivot(index="protocol", columns="seed", values=column)
    return wide.reindex(protocols(frame))


def protocols(frame: pd.DataFrame) -> list[str]:
    """Return the protocols that have run, in the order of the plan."""
    there = set(frame["protocol"].astype(str))
    return [name for name in PROTOCOLS if name in there]


# --- orders -----------------------------------------------------------------------------------------------------------


def rank_intervals(costs: pd.DataFrame) -> pd.DataFrame:
    """Rank protocols by their mean costs (protocols × seeds); return rank, and its 95 % interval over samples of seeds.

    Source: the percentile bootstrap of ranks, Goldstein and Spiegelhalter, J. R. Statist. Soc. A 159(3), 1996.
    """
    values = costs.to_numpy(float)
    draws = np.random.default_rng(SEED).integers(values.shape[1], size=(SAMPLES, values.shape[1]))
    sampled = rankdata(values[:, draws].mean(axis=2), axis=0, method="min")
    low, high = np.quantile(sampled, [0.025, 0.975], axis=1, method="inverted_cdf")
    rank = rankdata(values.mean(axis=1), method="min")
    return pd.DataFrame({"rank": rank, "low": low, "high": high}, index=costs.index).astype(int)


def mean_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean over seeds with its 95 % interval (bootstrap percentiles, as restricted means are skewed)."""
    own = values.to_numpy(float)
    draws = np.random.default_rng(SEED).integers(len(own), size=(SAMPLES, len(own)))
    low, high = np.quantile(own[draws].mean(axis=1), [0.025, 0.975])
    return float(own.mean()), float(low), float(high)


def tau(one: pd.Series, other: pd.Series) -> float:
    """Return Kendall's τ-b of two lists of costs of the same protocols."""
    return float(kendalltau(one.to_numpy(float), other.to_numpy(float)).statistic)


def noise_floor(costs: pd.DataFrame) -> float:
    """Return the median τ between the orders of two random halves of the seeds."""
    rng, found = np.random.default_rng(SEED), []
    for _ in range(HALVES):
        seeds = rng.permutation(costs.columns)
        half = len(seeds) // 2
        found.append(tau(costs[seeds[:half]].mean(axis=1), costs[seeds[half : 2 * half]].mean(axis=1)))
    return float(np.median(found))


def agreement(frame: pd.DataFrame, measure: str = "seconds_high") -> pd.DataFrame:
    """Return Kendall's τ of the protocols' mean costs between each two blocks; the noise floors on the diagonal."""
    names = ["/".join(block) for block in blocks(frame)]
    costs = [table(frame, block, measure) for block in blocks(frame)]
    means = [each.mean(axis=1) for each in costs]
    values = np.array([[tau(one, other) for other in means] for one in means])
    np.fill_diagonal(values, [noise_floor(each) for each in costs])
    return pd.DataFrame(values, index=names, columns=names)


def other_measures(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each block, τ of seconds to the high target with other costs, the low target, and ``fifo`` links."""
    rows = {}
    for block in blocks(frame):
        seconds = table(frame, block, "seconds_high")
        row = {cost: tau(seconds.mean(axis=1), table(frame, block, f"{cost}_high").mean(axis=1)) for cost in COSTS[1:]}
        row["the low target"] = tau(seconds.mean(axis=1), table(frame, block, "seconds_low").mean(axis=1))
        serial = table(frame, block, "seconds_high", "fifo")
        row["`fifo` links"] = tau(seconds[serial.columns].mean(axis=1), serial.mean(axis=1))
        rows["/".join(block)] = {"two halves of the seeds": noise_floor(seconds), **row}
    return pd.DataFrame(rows).T
