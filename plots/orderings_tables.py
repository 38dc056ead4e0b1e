"""Tables of the study of orderings: the page has some as Markdown, CSV files beside the runs have the others."""

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from orderings_claims import FAILS, HOLDS, OPEN, over_blocks, verdicts
from orderings_estimates import (
    COSTS,
    FLOOR,
    TABLES,
    Block,
    agreement,
    blocks,
    mean_interval,
    noise_floor,
    other_measures,
    protocols,
    rank_intervals,
    reached,
    runs,
    table,
    tuning,
)

from vflsim.tables.formats import markdown_table
from vflsim.vocabulary.amounts import three_digits

Table = tuple[list[str], list[list[str]]]
"""The head of a table, and its rows."""
ON_PAGE = ("what_to_take", "claims", "agreement", "measures", "ranks", "seconds", "bytes")
"""The tables that docs/orderings.md has; the others are CSV files."""
SCALES = {"bytes": ("MB", 1e6), "joules": ("kJ", 1e3), "seconds": ("s", 1.0), "rounds": ("rounds", 1.0)}


def first_table(frame: pd.DataFrame) -> Table:
    """Return a row per block: for each cost the protocols that may be first, the mean rank's first in front."""
    rows = []
    for block in blocks(frame):
        cells = []
        for cost in ("seconds", "bytes", "joules"):
            found = rank_intervals(table(frame, block, f"{cost}_high")).sort_values(["rank", "high"])
            may_be = [f"`{name}`" for name in found.index[found["low"] == 1]]
            cells.append(", ".join(may_be))
        floor = noise_floor(table(frame, block, "seconds_high"))
        rows.append(["/".join(block), f"{floor:.2f}" + ("" if floor >= FLOOR else " (below 0.9)"), *cells])
    return ["block", "noise floor", "seconds", "bytes", "joules"], rows


def claim_table(frame: pd.DataFrame) -> Table:
    """Return a row per claim: in how many blocks it holds, fails, cannot be told; and the range of what it compares."""
    rows = []
    for (number, claim), its in verdicts(frame).groupby(["number", "claim"], sort=False):
        counts = [str(int((its["verdict"] == side).sum())) for side in (HOLDS, FAILS, OPEN)]
        levels = str(claim).startswith(("plateau", "answers"))
        low, high = (f"{each:+.3f}" if levels else three_digits(each) for each in (its["gap"].min(), its["gap"].max()))
        rows.append([str(number), str(claim), over_blocks(its["verdict"]), *counts, f"{low} … {high}"])
    return ["", "claim", "verdict", HOLDS, FAILS, OPEN, "A ÷ B, or A − B"], rows


def block_claim_table(frame: pd.DataFrame) -> Table:
    """Return a row per claim with its verdict in each block, and the corrected p value where there is one."""
    found = verdicts(frame)
    names = ["/".join(block) for block in blocks(frame)]
    rows = []
    for (number, claim), its in found.groupby(["number", "claim"], sort=False):
        by = {f"{each.data}/{each.world}": each for each in its.itertuples()}
        cells = [
            "" if name not in by else OPEN if by[name].verdict == OPEN else f"{by[name].verdict} ({by[name].p:.1g})"
            for name in names
        ]
        rows.append([str(number), str(claim), *cells])
    return ["", "claim", *(name.split("/")[1] for name in names)], rows


def rank_table(frame: pd.DataFrame, data: str, cost: str = "seconds") -> Table:
    """Return a row per protocol: its rank in each world, with the 95 % interval."""
    columns = [block for block in blocks(frame) if block[0] == data]
    found = [rank_intervals(table(frame, block, f"{cost}_high")) for block in columns]
    rows = []
    for name in protocols(frame):
        cells = [f"{r.at[name, 'rank']} ({r.at[name, 'low']} … {r.at[name, 'high']})" for r in found]
        rows.append([f"`{name}`", *cells])
    return [f"{data}: rank by {cost}", *(world for _, world in columns)], rows


def cost_table(frame: pd.DataFrame, data: str, cost: str, level: str) -> Table:
    """Return a row per protocol: its mean cost to a target in each world, with the 95 % interval and missed seeds."""
    columns = [block for block in blocks(frame) if block[0] == data]
    unit, scale = SCALES[cost]
    wide = [table(frame, block, f"{cost}_{level}") for block in columns]
    met = [reached(frame, block, f"{cost}_{level}") for block in columns]
    rows = [
        [f"`{name}`", *(_cost(own.loc[name], scale, int(many[name])) for own, many in zip(wide, met, strict=True))]
        for name in protocols(frame)
    ]
    return [f"{data}: {unit}, {level} target", *(world for _, world in columns)], rows


def _cost(values: pd.Series, scale: float, met: int) -> str:
    missed = "" if met == len(values) else f" [{met} of {len(values)}]"
    if not met:
        return f"—{missed}"
    mean, low, high = (three_digits(each / scale) for each in mean_interval(values))
    return f"{mean} ({low} … {high}){missed}"


def level_table(frame: pd.DataFrame, data: str, measure: str) -> Table:
    """Return a row per protocol: its plateau, or the accuracy of its answers, in each world."""
    columns = [block for block in blocks(frame) if block[0] == data]
    wide = [table(frame, block, measure) for block in columns]
    rows = []
    for name in protocols(frame):
        cells = []
        for own in wide:
            mean, low, high = mean_interval(own.loc[name])
            cells.append(f"{mean:.3f} ({low:.3f} … {high:.3f})")
        rows.append([f"`{name}`", *cells])
    return [f"{data}: {measure}", *(world for _, world in columns)], rows


def setting_table(tried: pd.DataFrame, data: str, order: list[str], worlds: list[str]) -> Table:
    """Return a row per protocol: the rate and the value of its own key that were its best in each world."""
    own = tried[(tried["data"] == data) & tried["chosen"]].set_index(["protocol", "world"])
    rows = [
        [f"`{name}`", *(f"{own.at[(name, world), 'rate']:g}, {own.at[(name, world), 'value']:g}" for world in worlds)]
        for name in order
    ]
    return [f"{data}: rate, own key", *worlds], rows


def float_table(found: pd.DataFrame, first: str) -> Table:
    """Return a table of numbers with two digits."""
    rows = [[str(name), *(f"{value:.2f}" for value in found.loc[name])] for name in found.index]
    return [first, *map(str, found.columns)], rows


def sections(folder: Path = TABLES) -> Iterator[tuple[str, str, Callable[[], Table]]]:
    """Yield all tables: what each shows, its data set (none for tables of all), and what makes it."""
    frame, tried = runs(folder), tuning(folder)
    there: list[Block] = blocks(frame)
    yield "what_to_take", "", lambda: first_table(frame)
    yield "claims", "", lambda: claim_table(frame)
    yield "claims_by_block", "", lambda: block_claim_table(frame)
    yield "agreement", "", lambda: float_table(agreement(frame), "τ, noise floor")
    yield "measures", "", lambda: float_table(other_measures(frame), "τ of seconds, high target, with")
    for data in dict.fromkeys(data for data, _ in there):
        worlds = [world for own, world in there if own == data]
        yield "ranks", data, lambda data=data: rank_table(frame, data)
        for cost in COSTS:
            yield cost, data, lambda data=data, cost=cost: cost_table(frame, data, cost, "high")
        yield "seconds_low", data, lambda data=data: cost_table(frame, data, "seconds", "low")
        for measure in ("plateau", "answers"):
            yield measure, data, lambda data=data, measure=measure: level_table(frame, data, measure)
        yield (
            "settings",
            data,
            lambda data=data, worlds=worlds: setting_table(tried, data, protocols(frame), worlds),
        )


def write(made: Table, path: Path) -> None:
    """Write a table as a CSV file."""
    head, rows = made
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main() -> None:
    """Print the tables of the page; with ``--csv``, write the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path, nargs="?", default=TABLES, help="folder with runs-*, tuning-*.parquet")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables that the page has not into FOLDER")
    given = parser.parse_args()
    for shown, data, make in sections(given.tables):
        name = f"{shown}-{data}".rstrip("-")
        if shown in ON_PAGE:
            print(f"\n### {name}\n", *markdown_table(*make()), sep="\n")
        elif given.csv:
            write(make(), given.csv / f"{name}.csv")


if __name__ == "__main__":
    main()
