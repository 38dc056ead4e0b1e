"""Markdown tables of the study of orderings: ranks, agreement, claims, costs, rates."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from orderings_claims import FAILS, HOLDS, OPEN, over_blocks, verdicts
from orderings_estimates import (
    COSTS,
    DATA,
    TABLES,
    WORLDS,
    blocks,
    estimates,
    protocols,
    ranks,
    runs,
    tau_between_measures,
    tau_between_worlds,
)

from vflsim.results.statistics.estimates import Estimate
from vflsim.tables.formats import markdown_table
from vflsim.vocabulary.amounts import three_digits


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
