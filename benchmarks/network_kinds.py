"""How shipped scenarios differ between networks: `fair` (the default), `fifo`, `dedicated`.

``rounds``: timing alone, the first 60 rounds of every scenario with limited links, at one seed: the mean round of each
protocol. ``orderings``: Kendall's τ between the networks, of the protocols of each world of the orderings by their
mean round. ``target``: rounds, the end and time to the target, over ``--seeds``, of all scenarios whose training takes
less than ``--minutes``; the others are named with what they would take. The target is the scenario's own, or half-way
between the first evaluation and the best mean at the end on `fair` links, where runs are evaluated 20 times at least;
what all networks meet at their first evaluation has no ratio. Its rows go to ``--table``, in place of those of the same
scenarios. ``summary``: the ratios of ``--table``, a row a scenario. ``learning``: Kendall's τ as before, of time to the
target and of accuracy at the end, untuned. Runs in ``--out`` are not repeated. Tables are Markdown.
Run: python benchmarks/network_kinds.py rounds|orderings|target|summary|learning [SCENARIO …] (needs ``VFLSIM_DATA``)
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import vflsim
from vflsim.errors import DataError, RunError, VflsimError
from vflsim.results.read import Results
from vflsim.results.statistics import outcomes
from vflsim.scenario.resolve import party_timings
from vflsim.tables.formats import markdown_table
from vflsim.vocabulary.metrics import higher_is_better

ROOT = Path(__file__).resolve().parents[1] / "scenarios"
TABLE = ROOT / "tables" / "network_kinds-target.csv"
KINDS = ("fair", "fifo", "dedicated")
RATIOS = tuple(f"{kind} ÷ {KINDS[0]}" for kind in KINDS[1:])
RATIO = r"([\d.]+)(?: \(([\d.]+) to ([\d.]+)\))?"
TIMES = tuple(f"{kind} (s)" for kind in KINDS)
COLUMNS = ("scenario", "target", "seeds", "protocol", "rounds", "at the end", *TIMES, *RATIOS)
"""The table of times to a target. Rounds and the end are those of all networks, in their order."""
WORLDS = ("exponential", "lte", "outages", "phones", "shared", "tails")
ROUNDS = 60
SEEDS, SEEDS_OF_WORLDS = 3, 2
ALIKE = 0.99, 1.01
EVALUATIONS = 20
"""Fewer evaluations of a run cannot tell when it reaches a target."""


def main() -> None:
    """Print one of the tables."""
    read = argparse.ArgumentParser()
    read.add_argument("shown", choices=("rounds", "orderings", "target", "summary", "learning"))
    read.add_argument("scenario", nargs="*", type=Path)
    read.add_argument("--out", type=Path, default=Path("results/network_kinds"))
    read.add_argument("--table", type=Path, default=TABLE, help="CSV file of times to a target")
    read.add_argument("--minutes", type=float, default=6)
    read.add_argument("--seeds", type=int, default=SEEDS, help="of times to a target")
    given = read.parse_args()
    files = [file.resolve() if file.is_file() else ROOT / file for file in given.scenario]
    if given.shown == "rounds":
        rounds(files or [*contended()])
    elif given.shown == "orderings":
        orderings()
    elif given.shown == "target":
        targets(files or [*contended()], given.out, given.minutes, given.seeds, given.table)
    elif given.shown == "summary":
        print(*summary(given.table), sep="\n")
    else:
        learning([str(world) for world in given.scenario] or WORLDS, given.out)


def contended() -> Iterator[Path]:
    """Yield the scenario files in which a message may have to wait for others."""
    for file in sorted(ROOT.rglob("*.yaml")):
        try:
            scenario = vflsim.load(file)
        except VflsimError:  # a world of the orderings, or data that are not here
            continue
        if any(timing.link.limited for timing in party_timings(scenario)):
            yield file


def mean_rounds(file: Path, changes: dict[str, object]) -> dict[str, float]:
    """Return the mean round of each protocol in seconds, by timing alone."""
    changes = {**changes, "seeds": [0], "stop": {"rounds": ROUNDS}, "record": "rounds", "evaluate": {"every": ROUNDS}}
    scenario = vflsim.load(file, changes)
    with tempfile.TemporaryDirectory() as folder:
        results = vflsim.run(scenario, out=folder, timing_only=True)
        return {run.protocol: run.frame("rounds")["end_s"].iloc[-1] / len(run.frame("rounds")) for run in results.runs}


def rounds(files: Sequence[Path]) -> None:
    """Print the mean round of every protocol on every network."""
    print("| scenario | protocol | `fair` (ms) | `fifo` (ms) | `dedicated` (ms) | `fifo` ÷ `fair` |")
    print("|---|---|---:|---:|---:|---:|")
    for file in files:
        try:
            each = {kind: mean_rounds(file, {"timing.network": kind}) for kind in KINDS}
        except DataError:  # it is not here
            continue
        for protocol in each["fair"]:
            fair, fifo, dedicated = (1e3 * each[kind][protocol] for kind in KINDS)
            ratio = fifo / fair if fair else math.nan
            print(
                f"| {name(file)} | `{protocol}` | {fair:.4g} | {fifo:.4g} | {dedicated:.4g} | {ratio:.2f} |", flush=True
            )


def orderings() -> None:
    """Print Kendall's τ of the protocols' mean rounds between networks, for each world of the orderings."""
    print("| world | `fair`, `fifo` | `fair`, `dedicated` | `fifo`, `dedicated` |")
    print("|---|---:|---:|---:|")
    for world in WORLDS:
        changes = {"timing.preset": f"worlds/{world}.yaml"}
        each = [
            mean_rounds(ROOT / "orderings" / "handwritten.yaml", {**changes, "timing.network": kind}) for kind in KINDS
        ]
        taus = []
        for one, two in combinations(each, 2):
            taus.append(stats.kendalltau([*one.values()], [two[name] for name in one]).statistic)
        print(f"| `{world}` | " + " | ".join(f"{tau:.2f}" for tau in taus) + " |", flush=True)


def trained(file: Path, kind: str, out: Path, seeds: int, changes: Mapping[str, object] | None = None) -> Results:
    """Train a scenario on a kind of network, or read the runs that ``out`` has already."""
    scenario = vflsim.load(
        file, {**(changes or {}), "record": "summary", "seeds": f"0:{seeds}", "timing.network": kind}
    )
    try:
        return vflsim.run(scenario, out=out / kind, progress=False)
    except RunError as error:  # all others have run
        print(error, file=sys.stderr)
        return vflsim.open_results(out / kind)


def targets(files: Sequence[Path], out: Path, minutes: float, seeds: int, table: Path) -> None:
    """Put times to the target on every network into ``table``; name what takes longer than ``minutes``."""
    left: list[str] = []
    for file in files:
        folder = out / "targets" / file.relative_to(ROOT).with_suffix("")
        try:
            cost = 0.0 if folder.exists() else _minutes(file, seeds)
            if cost > minutes:
                left.append(f"{name(file)} ({cost:.0f})")
                continue
            each = [trained(file, kind, folder, seeds) for kind in KINDS]
            if not each[0].declared and (every := _finer(each[0])):
                folder = folder / "finer"
                each = [trained(file, kind, folder, seeds, {"evaluate.every": every}) for kind in KINDS]
        except DataError:  # it is not here
            left.append(f"{name(file)} (no data)")
            continue
        rows = [*_target_rows(name(file).strip("`"), each)]
        print(*markdown_table(list(COLUMNS), rows), sep="\n", flush=True)
        merge(table, rows)
    if left:
        print(f"\nLeft out, with the minutes that they would take: {', '.join(left)}.", flush=True)


def _finer(results: Results) -> str | None:
    """Return how often to evaluate instead, if some runs are evaluated fewer than ``EVALUATIONS`` times."""
    times = results.metrics.groupby(["protocol", "seed"], observed=True).size()
    if times.min() > EVALUATIONS:
        return None
    return f"{max(1, int(_by_seed(results, 'rounds', math.nan).min(axis=None)) // EVALUATIONS)} rounds"


def _target_rows(scenario: str, each: Sequence[Results]) -> Iterator[list[str]]:
    """Yield a row a protocol: geometric means of times, or how many seeds have one, and ratios over seeds with both."""
    metric = each[0].main_metric
    ends = [_by_seed(results, f"end_{metric}", math.nan) for results in each]
    lengths = [_by_seed(results, "rounds", math.nan) for results in each]
    target: dict[str, object] | None = None
    if not each[0].declared:
        metrics = each[0].metrics.groupby(["protocol", "seed"], observed=True)[metric]
        start, means = metrics.first().mean(), ends[0].mean(axis=1)
        best = means.max() if higher_is_better(metric, each[0].own_metrics) else means.min()
        target = {metric: float(f"{(start + best) / 2:.3g}"), "for": "3 evaluations"}
    times = [_by_seed(results, "time_to_target", math.inf, target) for results in each]
    label = outcomes(each[0], target)["target"].dropna().iloc[0].partition(" for ")[0]
    for protocol in ends[0].index:
        rounds = ", ".join(f"{own.loc[protocol].mean():,.0f}" for own in lengths)
        at_end = ", ".join(f"{own.loc[protocol].mean():.3f}" for own in ends)
        rows = [own.loc[protocol] for own in times]
        shown, ratios = [*map(_time, rows)], [_ratio(row, rows[0]) for row in rows[1:]]
        if all((row <= _first_evaluations(results, protocol)).all() for row, results in zip(rows, each, strict=True)):
            shown, ratios = [f"≤ {time}" for time in shown], ["—" for _ in ratios]
        yield [scenario, label, str(len(ends[0].columns)), protocol, rounds, at_end, *shown, *ratios]


def _first_evaluations(results: Results, protocol: str) -> pd.Series:
    """Return the first evaluation after the beginning by seed (s): what it meets may have been met long since."""
    metrics = results.metrics
    later = metrics[(metrics["protocol"] == protocol) & (metrics["time_s"] > 0)]
    return later.groupby("seed", observed=True)["time_s"].min()


def merge(table: Path, rows: Sequence[Sequence[str]]) -> None:
    """Put rows into a CSV file in place of those of the same scenarios, in the order of scenarios."""
    with table.open(newline="", encoding="utf-8") as file:
        head, *there = csv.reader(file)
    new = {row[0] for row in rows}
    kept = [row for row in there if row[0] not in new]
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *sorted([*kept, *rows], key=lambda row: row[0])])


def summary(table: Path) -> Iterator[str]:
    """Yield a row a scenario: how many protocols reach the target always, and the span of their ratios.

    In brackets: how many of them have a ratio whose interval leaves 1 out; a single seed has none. Below: in which
    scenarios no ratio leaves ``ALIKE``.
    """
    found = pd.read_csv(table, dtype=str, keep_default_na=False)
    rows, alike = [], []
    for (scenario, seeds), its in found.groupby(["scenario", "seeds"], sort=False):
        reached = its[~its[[*TIMES]].apply(lambda times: times.str.contains("of")).any(axis=1)]
        ratios = [reached[ratio].str.extract(RATIO).astype(float).dropna(subset=[0]) for ratio in RATIOS]
        of = "" if seeds == str(SEEDS) else f", seeds: {seeds}"
        if len(ratios[0]) and all(each[0].between(*ALIKE).all() for each in ratios):
            alike.append(f"`{scenario}`" + "*" * bool(of))
        else:
            rows.append([f"`{scenario}`{of}", f"{len(reached)} of {len(its)}", *map(_span, ratios)])
    heads = [f"`{kind}` ÷ `{KINDS[0]}`" for kind in KINDS[1:]]
    yield from markdown_table(["scenario", "protocols that reach it", *heads], rows)
    yield from (
        "",
        *textwrap.wrap(f"No ratio leaves {ALIKE[0]} to {ALIKE[1]} in {', '.join(alike)} (*: one seed).", 140),
    )


def _span(ratios: pd.DataFrame) -> str:
    if ratios.empty:
        return "—"
    span = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (ratios[0].min(), ratios[0].max())))
    return span if ratios[1].isna().all() else f"{span} ({((ratios[1] > 1) | (ratios[2] < 1)).sum()})"


def _time(row: pd.Series) -> str:
    """Write the geometric mean of times, or how many seeds have one."""
    reached = row[np.isfinite(row)]
    if len(reached) < len(row):
        return f"{len(reached)} of {len(row)}"
    return f"{stats.gmean(reached):.3g}"


def _ratio(one: pd.Series, two: pd.Series) -> str:
    """Write the ratio of geometric means over the seeds that have both, with its interval of 95 % (of one: none)."""
    logs = np.log(one / two)[np.isfinite(one) & np.isfinite(two)]
    if len(logs) == len(one) == 1:
        return f"{math.exp(logs.iloc[0]):.2f}"
    if len(logs) < 2:
        return "—"
    mean, half = logs.mean(), stats.t.ppf(0.975, len(logs) - 1) * logs.sem()
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def _minutes(file: Path, seeds: int) -> float:
    """Predict the minutes of all runs of a scenario for the table."""
    seconds = vflsim.check(file, {"timing.network": "fair"}).frame["run_s"].sum()
    return float(seconds) * len(KINDS) * seeds / 60


def learning(worlds: Sequence[str], out: Path) -> None:
    """Print Kendall's τ of the protocols' time to the target and accuracy at the end: between networks, and seeds."""
    sys.path.insert(0, str(ROOT / "orderings"))
    from run import BLOCKS

    pairs = " | ".join(f"`{one}`, `{two}`" for one, two in combinations(KINDS, 2))
    print(f"{SEEDS_OF_WORLDS} seeds, rates as in the scenario; τ: mean (least to most) over seeds, on one seed each;")
    print("two seeds: over all pairs of seeds on one network; protocols that miss the target are alike")
    print(f"| world | of | reached | {pairs} | two seeds |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for block in BLOCKS:
        if block.data != "handwritten" or block.world not in worlds:
            continue
        common = dict(each.split("=", 1) for each in block.overrides()) | {"evaluate.deadline": "null"}
        file = ROOT / "orderings" / "handwritten.yaml"
        each = [trained(file, kind, out / "worlds" / block.world, SEEDS_OF_WORLDS, common) for kind in KINDS]
        for measure, of, worst in (
            ("time_to_target", "time to 95 %", math.inf),
            ("end_test_accuracy", "accuracy at the end", -math.inf),
        ):
            values = [_by_seed(results, measure, worst) for results in each]
            reached = ", ".join(f"{np.isfinite(one).sum(axis=0).mean():.1f}" for one in values)
            between = [[_tau(one[s], two[s]) for s in one] for one, two in combinations(values, 2)]
            between.append([_tau(one[s], one[t]) for one in values for s, t in combinations(one, 2)])
            shown = " | ".join(f"{np.mean(taus):.2f} ({min(taus):.2f} to {max(taus):.2f})" for taus in between)
            print(f"| `{block.world}` | {of} | {reached} | {shown} |", flush=True)


def _by_seed(results: Results, measure: str, worst: float, target: Mapping[str, object] | None = None) -> pd.DataFrame:
    """Return a measure of every run, ``worst`` where it has none: a row a protocol, a column a seed."""
    found = outcomes(results, target)
    found = found[found["measure"] == measure]
    values = found["value"].where(~found["censored"].astype(bool), worst)
    table = found.assign(value=values).pivot(index="protocol", columns="seed", values="value")
    return table.reindex(index=results.protocols).fillna(worst)


def _tau(one: pd.Series, two: pd.Series) -> float:
    return float(stats.kendalltau(one, two.reindex(one.index)).statistic)


def name(file: Path) -> str:
    """Return a scenario's name in a table."""
    return f"`{file.relative_to(ROOT).with_suffix('')}`"


if __name__ == "__main__":
    main()
