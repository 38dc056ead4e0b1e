"""How shipped scenarios differ between networks: `fair` (the default), `fifo`, `dedicated`.

``rounds``: timing alone, the first 60 rounds of every scenario with limited links, at one seed: the mean round of each
protocol. ``orderings``: Kendall's τ between the networks, of the protocols of each world of the orderings by their
mean round. ``target``: time to the target of scenarios that are cheap to train. Tables are Markdown.
Run: python benchmarks/network_kinds.py rounds|orderings|target [SCENARIO …] (needs ``VFLSIM_DATA``)
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from scipy.stats import kendalltau

import vflsim
from vflsim.errors import DataError, VflsimError
from vflsim.scenario.resolve import party_timings

ROOT = Path(__file__).parents[1] / "scenarios"
KINDS = ("fair", "fifo", "dedicated")
WORLDS = ("exponential", "lte", "outages", "phones", "shared", "tails")
ROUNDS = 60
TRAINED = ("timing/outages.yaml", "timing/energy.yaml", "all_protocols.yaml")


def main() -> None:
    """Print one of the tables."""
    read = argparse.ArgumentParser()
    read.add_argument("table", choices=("rounds", "orderings", "target"))
    read.add_argument("scenario", nargs="*", type=Path)
    given = read.parse_args()
    if given.table == "rounds":
        rounds(given.scenario or [*contended()])
    elif given.table == "orderings":
        orderings()
    else:
        targets(given.scenario or [ROOT / name for name in TRAINED])


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


def targets(files: Sequence[Path]) -> None:
    """Print the steps and the time to the target, or to the end, on every network."""
    print("| scenario | protocol | network | rounds | updates | time (s) | ended by |")
    print("|---|---|---|---:|---:|---:|---|")
    for file in files:
        for kind in KINDS:
            scenario = vflsim.load(file, {"timing.network": kind, "seeds": [0], "record": "summary"})
            with tempfile.TemporaryDirectory() as folder:
                for run in vflsim.run(scenario, out=folder).runs:
                    last = run.frame("metrics").iloc[-1]
                    counts = f"{last['round']:.0f} | {last['updates']:.0f} | {last['time_s']:.4g}"
                    print(
                        f"| {name(file)} | `{run.protocol}` | `{kind}` | {counts} | {run.info.stop_reason} |",
                        flush=True,
                    )


def name(file: Path) -> str:
    """Return a scenario's name in a table."""
    return f"`{file.resolve().relative_to(ROOT.resolve()).with_suffix('')}`"


if __name__ == "__main__":
    main()
