"""Markdown tables of the study of orderings: ranks, agreement, claims, costs, rates.

Reads the tables that scenarios/orderings/run.py writes; docs/orderings-plan.md says what each word means.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, Estimate, estimate, paired
from vflsim.results.statistics.ratios import ratio, three_digits
from vflsim.text_table import markdown_table

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
    """Read the table of all runs: data, world, protocol, seed, measure, value, censored."""
    return pd.read_parquet(folder / "runs.parquet")


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
        name: estimate(own["value"].to_numpy(float), own["censored"].to_numpy(bool), statistic)
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


def rank_table(frame: pd.DataFrame, data: str, measure: str = "seconds") -> Iterator[str]:
    """Yield a row per protocol, its rank in each world."""
    names = protocols(frame)
    columns = [block for block in blocks(frame) if block[0] == data]
    by_block = [ranks(estimates(frame, block, COSTS[measure]), names) for block in columns]
    found = [estimates(frame, block, COSTS[measure]) for block in columns]
    rows = []
    for name in names:
        cells = [
            f"{rank[name]}" if name in est and not est[name].censored else "—"
            for rank, est in zip(by_block, found, strict=True)
        ]
        rows.append([f"`{name}`", *cells])
    yield from markdown_table([data, *(world for _, world in columns)], rows)


def cost_table(frame: pd.DataFrame, data: str, measure: str = "seconds") -> Iterator[str]:
    """Yield a row per protocol, its cost to the target in each world with the 95 % interval."""
    columns = [block for block in blocks(frame) if block[0] == data]
    found = [estimates(frame, block, COSTS[measure]) for block in columns]
    rows = [[f"`{name}`", *(_cost(each.get(name), _scale(measure)) for each in found)] for name in protocols(frame)]
    yield from markdown_table([f"{data}: {_unit(measure)}", *(world for _, world in columns)], rows)


def _scale(measure: str) -> float:
    return 1e6 if measure == "bytes" else 1e3 if measure == "joules" else 1.0


def _unit(measure: str) -> str:
    return {"bytes": "MB", "joules": "kJ", "seconds": "s"}.get(measure, measure)


def _cost(found: Estimate | None, scale: float) -> str:
    if found is None:
        return "failed"
    if found.censored:
        return f"{found.reached} of {found.n}" if found.reached else "—"
    low, mean, high = (three_digits(each / scale) for each in (found.low, found.mean, found.high))
    return f"{mean} ({low} … {high})"


def level_table(frame: pd.DataFrame, data: str, measure: str) -> Iterator[str]:
    """Yield a row per protocol: its plateau, or the metric of its answers, in each world."""
    columns = [block for block in blocks(frame) if block[0] == data]
    found = [estimates(frame, block, measure) for block in columns]
    rows = []
    for name in protocols(frame):
        cells = [
            f"{e[name].mean:.3f} ± {(e[name].high - e[name].low) / 2:.3f}" if name in e else "failed" for e in found
        ]
        rows.append([f"`{name}`", *cells])
    yield from markdown_table([f"{data}: {measure}", *(world for _, world in columns)], rows)


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


@dataclass(frozen=True)
class Claim:
    """A compares with B: a ratio of costs ``A ÷ B`` below ``limit``, or a difference of levels ``A − B`` above it."""

    number: int
    one: str
    other: str
    measure: str
    worlds: tuple[str, ...] = WORLDS
    data: tuple[str, ...] = DATA
    limit: float = 1.0

    @property
    def text(self) -> str:
        """The claim in words."""
        if self.measure in COSTS:
            aim = "before" if self.limit == 1 else f"below {self.limit} of"
            return f"{self.measure}: `{self.one}` {aim} `{self.other}`"
        aim = "above" if self.limit == 0 else f"at most {-self.limit} below"
        return f"{self.measure}: `{self.one}` {aim} `{self.other}`"


CLAIMS = (
    *(
        Claim(1, "fedvs", other, "seconds", ("exponential",), ("fashion_mnist", "handwritten"))
        for other in ("wait", "fastest", "async")
    ),
    *(Claim(2, one, "fedvs", "seconds", ("exponential",), ("credit",)) for one in ("async", "fastest")),
    *(Claim(3, "fedvs", other, "plateau", ("exponential",), ("credit",), 0.0) for other in ("async", "fastest")),
    Claim(4, "wait", "async", "plateau", limit=0.0),
    Claim(5, "wait", "fastest", "plateau", limit=0.0),
    Claim(6, "async", "wait", "seconds", ("outages",)),
    Claim(7, "vimadmm", "wait", "rounds"),
    Claim(8, "vimadmm", "fdml", "rounds"),
    Claim(9, "fedbcd", "wait", "rounds"),
    Claim(10, "c-vfl", "wait", "bytes", limit=0.1),
    Claim(11, "ef-vfl", "c-vfl", "bytes"),
    Claim(12, "bs-vfl", "fedbcd", "seconds", limit=0.52),
    Claim(13, "bs-vfl", "fedbcd", "plateau", limit=-0.01),
    Claim(14, "celu-vfl", "fedbcd", "seconds", ("shared", "lte")),
    Claim(15, "flex-vfl", "fedbcd", "seconds", ("phones",)),
    Claim(16, "laser-vfl", "wait", "plateau", limit=0.0),
    Claim(17, "laser-vfl", "wait", "answers", limit=0.0),
)

HOLDS, FAILS, OPEN = "holds", "fails", "cannot be told"


def verdict(frame: pd.DataFrame, claim: Claim, block: Block) -> tuple[str, str]:
    """Return what came of a claim in a block, and the number it rests on."""
    found = estimates(frame, block, COSTS.get(claim.measure, claim.measure))
    if claim.one not in found or claim.other not in found:
        return OPEN, "failed"
    return (_of_costs if claim.measure in COSTS else _of_levels)(frame, claim, block, found)


def _of_costs(frame: pd.DataFrame, claim: Claim, block: Block, found: dict[str, Estimate]) -> tuple[str, str]:
    one, other = found[claim.one], found[claim.other]
    if one.censored and other.censored:
        return OPEN, "—"
    its = ratio(of(frame, block, COSTS[claim.measure]), claim.other, claim.one)  # claim.one ÷ claim.other
    assert its is not None
    if its.bound == "exact":
        side = HOLDS if its.high < claim.limit else FAILS if its.low > claim.limit else OPEN
    elif its.bound == "most":  # B did not always reach the target: A ÷ B is at most this
        side = HOLDS if its.mean < claim.limit or (claim.limit == 1 and other.reached == 0) else OPEN
    else:
        side = FAILS if its.mean > claim.limit or (claim.limit == 1 and one.reached == 0) else OPEN
    return side, str(its)


def _of_levels(frame: pd.DataFrame, claim: Claim, block: Block, found: dict[str, Estimate]) -> tuple[str, str]:
    own, others = (
        of(frame, block, claim.measure).query("protocol == @name").set_index("seed")["value"]
        for name in (claim.one, claim.other)
    )
    seeds = own.index.intersection(others.index)
    none = np.zeros(len(seeds), bool)
    gap = paired(own[seeds].to_numpy(float), none, others[seeds].to_numpy(float), none)
    side = HOLDS if gap.low > claim.limit else FAILS if gap.high < claim.limit else OPEN
    return side, f"{gap.mean:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})"


def verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim and block: number, claim, data, world, verdict, found."""
    rows = [
        {"number": claim.number, "claim": claim.text, "data": block[0], "world": block[1]}
        | dict(zip(("verdict", "found"), verdict(frame, claim, block), strict=True))
        for claim in CLAIMS
        for block in blocks(frame)
        if block[0] in claim.data and block[1] in claim.worlds
    ]
    return pd.DataFrame(rows)


def over_blocks(sides: pd.Series) -> str:
    """Return the verdict over blocks: one that is the same in all, else mixed."""
    kinds = set(sides)
    return kinds.pop() if len(kinds) == 1 else "mixed"


def claim_table(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a row per claim: in how many blocks it holds, fails, cannot be told."""
    rows = []
    for (number, claim), its in verdicts(frame).groupby(["number", "claim"], sort=False):
        counts = [str(int((its["verdict"] == side).sum())) for side in (HOLDS, FAILS, OPEN)]
        rows.append([str(number), str(claim), *counts, over_blocks(its["verdict"])])
    yield from markdown_table(["", "claim", HOLDS, FAILS, OPEN, "over blocks"], rows)


def rate_table(tuning: pd.DataFrame, data: str, order: list[str]) -> Iterator[str]:
    """Yield a row per protocol, the rate that was its best in each world."""
    own = tuning[(tuning["data"] == data) & tuning["chosen"]]
    worlds = [w for w in WORLDS if w in set(own["world"])]
    names = [name for name in order if name in set(own["protocol"])]
    by = own.drop_duplicates(["protocol", "world"]).set_index(["protocol", "world"])["rate"]
    rows = [
        [f"`{name}`", *(f"{by[name, world]:g}" if (name, world) in by else "none" for world in worlds)]
        for name in names
    ]
    yield from markdown_table([f"{data}: rate", *worlds], rows)


def decision_table(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a row per world: the protocols of rank 1, and on how many data sets, for each cost."""
    names, measures = protocols(frame), ("seconds", "bytes", "joules")
    rows = []
    for world in WORLDS:
        there = [block for block in blocks(frame) if block[1] == world]
        cells = []
        for measure in measures:
            firsts: Counter[str] = Counter()
            for block in there:
                found = estimates(frame, block, COSTS[measure])
                firsts.update(
                    name for name, rank in ranks(found, names).items() if rank == 1 and not found[name].censored
                )
            cells.append(", ".join(f"`{name}` {count}" for name, count in firsts.most_common()))
        rows.append([f"{world} ({len(there)})", *cells])
    yield from markdown_table(["world (data sets)", *measures], rows)


def wait_table(waits: pd.DataFrame, data: str) -> Iterator[str]:
    """Yield a row per protocol: which parts of a round take a tenth of it or more, the two longest."""
    own = waits[waits["data"] == data]
    names, worlds = list(dict.fromkeys(own["protocol"])), [world for world in WORLDS if world in set(own["world"])]
    cells = {key: _parts(its) for key, its in own.groupby(["protocol", "world"])}
    rows = [[f"`{name}`", *(cells.get((name, world), "") for world in worlds)] for name in names]
    yield from markdown_table([f"{data}: a round is", *worlds], rows)


def _parts(own: pd.DataFrame) -> str:
    longest = own[own["share"] >= 0.1].nlargest(2, "share")
    return ", ".join(
        f"{part} {share:.0%}".replace("%", " %") for part, share in zip(longest["part"], longest["share"], strict=True)
    )


def _float_table(found: pd.DataFrame, first: str) -> Iterator[str]:
    rows = [
        [str(name), *(f"{value:.2f}" for value in row)] for name, row in zip(found.index, found.to_numpy(), strict=True)
    ]
    yield from markdown_table([first, *map(str, found.columns)], rows)


def sections(folder: Path = TABLES) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
    """Yield all tables with their titles."""
    frame, tuning, waits = (
        runs(folder),
        *(pd.read_parquet(folder / f"{name}.parquet") for name in ("tuning", "breakdown")),
    )
    there = [data for data in DATA if data in set(frame["data"])]
    yield "claims", lambda: claim_table(frame)
    yield "firsts", lambda: decision_table(frame)
    yield "seconds with other measures", lambda: _float_table(tau_between_measures(frame), "τ of seconds with")
    for data in there:
        yield f"ranks {data}", lambda data=data: rank_table(frame, data)
        for measure in COSTS:
            yield f"{measure} {data}", lambda data=data, measure=measure: cost_table(frame, data, measure)
        for measure in ("plateau", "answers"):
            yield f"{measure} {data}", lambda data=data, measure=measure: level_table(frame, data, measure)
        yield f"worlds {data}", lambda data=data: _float_table(tau_between_worlds(frame, data), f"{data}: τ")
        yield f"waits {data}", lambda data=data: wait_table(waits, data)
        yield f"rates {data}", lambda data=data: rate_table(tuning, data, protocols(frame))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tables", type=Path, nargs="?", default=TABLES, help="folder with runs.parquet and tuning.parquet"
    )
    folder = parser.parse_args().tables
    for title, lines in sections(folder):
        print(f"\n### {title}\n", *lines(), sep="\n")


if __name__ == "__main__":
    main()
