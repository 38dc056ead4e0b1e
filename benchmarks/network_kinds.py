"""How shipped scenarios differ between networks: `fair` (the default), `fifo`, `dedicated`.

``rounds``: timing alone, the first 60 rounds of every scenario with limited links, at one seed: the mean round of each
protocol. ``orderings``: Kendall's τ between the networks, of the protocols of each world of the orderings by their
mean round. ``target``: rounds, accuracy and time to the target of scenarios that are cheap to train. ``learning``:
Kendall's τ as before, of time to the target and of accuracy at the end, untuned. Tables are Markdown.
Run: python benchmarks/network_kinds.py rounds|orderings|target|learning [SCENARIO …] (needs ``VFLSIM_DATA``)
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd
from scipy.stats import kendalltau

import vflsim
from vflsim.errors import DataError, VflsimError
from vflsim.scenario.resolve import party_timings

ROOT = Path(__file__).parents[1] / "scenarios"
KINDS = ("fair", "fifo", "dedicated")
WORLDS = ("exponential", "lte", "outages", "phones", "shared", "tails")
ROUNDS = 60
SEEDS, SEEDS_OF_WORLDS = 3, 1
TRAINED = {
    "timing/outages.yaml": 0.5,
    "timing/bandwidth.yaml": 0.3,
    "timing/latency.yaml": 0.3,
}
"""Scenarios that are cheap to train, each with the test accuracy that is its target."""


def main() -> None:
    """Print one of the tables."""
    read = argparse.ArgumentParser()
    read.add_argument("table", choices=("rounds", "orderings", "target", "learning"))
    read.add_argument("scenario", nargs="*", type=Path)
    given = read.parse_args()
    if given.table == "rounds":
        rounds(given.scenario or [*contended()])
    elif given.table == "orderings":
        orderings()
    elif given.table == "target":
        targets({file: TRAINED.get(str(file), 0.9) for file in given.scenario or map(Path, TRAINED)})
    else:
        learning([str(world) for world in given.scenario] or WORLDS)


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
            taus.append(kendalltau([*one.values()], [two[name] for name in one]).statistic)
        print(f"| `{world}` | " + " | ".join(f"{tau:.2f}" for tau in taus) + " |", flush=True)


def trained(file: Path, changes: Mapping[str, object]) -> dict[str, pd.DataFrame]:
    """Train a scenario; return the estimates of each measure, a row a protocol."""
    scenario = vflsim.load(file, {**changes, "record": "summary"})
    with tempfile.TemporaryDirectory() as folder:
        estimates = vflsim.run(scenario, out=folder).estimates()
    own = estimates[estimates["baseline"].isna()]
    return {measure: rows.set_index("protocol") for measure, rows in own.groupby("measure")}


def targets(files: Mapping[Path, float]) -> None:
    """Print the rounds, the accuracy at the end and the time to the target on every network, over ``SEEDS`` seeds."""
    print(f"{SEEDS} seeds, intervals of 95 %; `>`: a bound, as some seed misses the target; {', '.join(KINDS)}")
    heads = " | ".join(f"`{kind}` (s)" for kind in KINDS)
    print(f"| scenario, target | protocol | rounds | accuracy at the end | {heads} |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for file, accuracy in files.items():
        changes = {"target": {"test_accuracy": accuracy, "for": "3 evaluations"}, "seeds": f"0:{SEEDS}"}
        each = [trained(ROOT / file, {**changes, "timing.network": kind}) for kind in KINDS]
        for protocol in each[0]["rounds"].index:
            rows = [{measure: found.loc[protocol] for measure, found in own.items()} for own in each]
            rounds = ", ".join(f"{row['rounds']['mean']:,.0f}" for row in rows)
            ends = ", ".join(f"{row['end_test_accuracy']['mean']:.3f}" for row in rows)
            times = " | ".join(interval(row["time_to_target"], ".3g") for row in rows)
            print(f"| `{file.with_suffix('')}`, {accuracy} | `{protocol}` | {rounds} | {ends} | {times} |", flush=True)


def interval(row: pd.Series, form: str) -> str:
    """Write the mean of an estimate with its interval, or the bound where not all seeds have a value."""
    if math.isnan(row["mean"]):
        return "—" if math.isnan(row["at_least"]) else f"> {row['at_least']:{form}}"
    return f"{row['mean']:{form}} ({row['low']:{form}} to {row['high']:{form}})"


def learning(worlds: Sequence[str]) -> None:
    """Print Kendall's τ between networks of the protocols' time to the target and accuracy at the end."""
    sys.path.insert(0, str(ROOT / "orderings"))
    from run import BLOCKS

    pairs = " | ".join(f"`{one}`, `{two}`" for one, two in combinations(KINDS, 2))
    print(f"{SEEDS_OF_WORLDS} seeds, learning rates as in the scenario; protocols that miss the target are alike")
    print(f"| world | of | reached | {pairs} |")
    print("|---|---|---:|---:|---:|---:|")
    for block in BLOCKS:
        if block.data != "handwritten" or block.world not in worlds:
            continue
        common = dict(each.split("=", 1) for each in block.overrides())
        common |= {"seeds": f"0:{SEEDS_OF_WORLDS}", "evaluate.deadline": "null"}
        each = [trained(ROOT / "orderings" / "handwritten.yaml", {**common, "timing.network": kind}) for kind in KINDS]
        for measure, of in (("time_to_target", "time to 95 %"), ("end_test_accuracy", "accuracy at the end")):
            values = [found[measure]["mean"].fillna(math.inf) for found in each]
            taus = [kendalltau(one, two.reindex(one.index)).statistic for one, two in combinations(values, 2)]
            reached = ", ".join(f"{(one < math.inf).sum()}" for one in values)
            print(f"| `{block.world}` | {of} | {reached} | {' | '.join(f'{t:.2f}' for t in taus)} |", flush=True)


def name(file: Path) -> str:
    """Return a scenario's name in a table."""
    return f"`{file.resolve().relative_to(ROOT.resolve()).with_suffix('')}`"


if __name__ == "__main__":
    main()
