"""How far live runs are from the simulation: rounds and their order, with delays emulated on this machine.

Eleven protocols, three clients and the server, each a process, against the simulation with the same draws, in six
worlds.
A table a world: mean rounds, their ratio, that of the 95th percentiles, and whether weights are equal bit for bit to
those of `--eager`. Below it: of the pairs of protocols whose mean rounds differ by more than both 95 % intervals, how
many have the same order; and the machine's load, since on a busy machine processes wait for each other. With --seeds N
the same for the times to --target (a test accuracy), whose intervals go over seeds.
Run: python benchmarks/live_against_simulated.py [--rounds N] [--worlds NAME …] [--protocols NAME …]
[--seeds N [--target ACCURACY]] [--figure FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.results import Results
    from vflsim.results.store.run import StoredRun

SCENARIO = """
name: live_against_simulated
data: {name: digits}
partition: {clients: 3}
models:
  client: {kind: linear, embedding: 8}
  aggregate: concat
  server: {kind: linear, bias: false}
training: {batch: 64, dtype: float64, client_optimizer: {kind: sgd, lr: 0.1}, server_optimizer: {kind: sgd, lr: 0.1}}
record: events
"""
EVERY, OFTEN = 100, 5
"""Rounds between evaluations, and where times to a target are measured."""
PROTOCOLS = {
    "synchronous": "{kind: synchronous}",
    "ignore": "{kind: ignore, fastest: 2}",
    "t_synchronous": "{kind: t_synchronous, t: 2}",
    "asynchronous": "{kind: asynchronous}",
    "fedbcd": "{kind: fedbcd, local_steps: 2}",
    "c_vfl": "{kind: c_vfl, local_steps: 2, codec: {kind: scalar_quantiser, bits: 4}}",
    "ef_vfl": "{kind: ef_vfl, codec: {kind: top_k, fraction: 0.5}}",
    "vimsgd": "{kind: vimsgd}",
    "vimadmm": "{kind: vimadmm, rho: 1.0, local_steps: 2}",
    "fdml": "{kind: fdml}",
    "fedvs": "{kind: fedvs, K: 1, models: {aggregate: mean}}",
}
WORLDS = {
    "exponential": """
  server: {compute: 10 ms}
  clients:
    compute: {kind: exponential, mean: 20 ms}
    upload_delay: {kind: exponential, mean: 50 ms}
    link: {up: 20 Mbps, down: 50 Mbps, latency: 2 ms}
""",
    "heavy tails": """
  server: {compute: 5 ms}
  clients:
    compute: 10 ms
    upload_delay: {kind: pareto, minimum: 10 ms, shape: 2.2}
    link: {up: 20 Mbps, down: 20 Mbps, latency: 5 ms}
""",
    "shared links": """
  network: {kind: fair}
  server: {compute: 5 ms, link: {up: 2 Mbps, down: 2 Mbps, latency: 2 ms}}
  clients: {compute: {kind: uniform, low: 5 ms, high: 15 ms}, link: {up: 1 Mbps, down: 2 Mbps, latency: 2 ms}}
""",
    "queued links": """
  network: {kind: fifo}
  server: {compute: 5 ms, link: {up: 4 Mbps, down: 4 Mbps, latency: 2 ms}}
  clients: {compute: {kind: exponential, mean: 10 ms}, link: {up: 1 Mbps, down: 4 Mbps, latency: 2 ms}}
""",
    "far away": """
  server: {compute: 5 ms}
  clients:
    compute: 5 ms
    link: {up: 20 Mbps, down: 20 Mbps, latency: {kind: shifted_exponential, shift: 20 ms, mean: 5 ms}}
""",
    "unequal devices": """
  server: {compute: 2 ms}
  clients:
    compute: {kind: lognormal, mean: 10*m ms, sigma: 0.5}
    link: {up: 50 Mbps, down: 50 Mbps, latency: 1 ms}
""",
}


def compute(folder: Path, timing: str, rounds: int, names: list[str], seeds: int) -> None:
    """Run the scenario live and simulated."""
    file = folder / "scenario.yaml"
    protocols = "\n".join(["protocols:", *(f"  {name}: {PROTOCOLS[name]}" for name in names)])
    every = EVERY if seeds == 1 else OFTEN
    rest = f"seeds: 0:{seeds}\nevaluate: {{every: {every} rounds}}\nstop: {{rounds: {rounds}}}\ntiming:{timing}"
    file.write_text(f"{SCENARIO}{protocols}\n{rest}", "utf-8")
    for command in (["live"], ["run", "--eager"]):
        out = folder / command[0]
        words = [sys.executable, "-m", "vflsim", *command, str(file), "--out", str(out), "--no-report"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def table(folder: Path) -> Iterator[str]:
    """Yield what came, as Markdown."""
    import torch
    from safetensors.torch import load_file

    import vflsim

    live, simulated = vflsim.open_results(folder / "live"), vflsim.open_results(folder / "run")
    yield "| protocol | simulated (ms a round) | live | ratio | ratio of p95 | weights |"
    yield "|---|---:|---:|---:|---:|---|"
    spans = {}
    for name in simulated.protocols:
        spans[name] = one, other = [durations(results, name) for results in (simulated, live)]
        runs = [load_file(folder / kind / name / "seed-0" / "weights.safetensors") for kind in ("live", "run")]
        apart = max(float((runs[0][key] - runs[1][key]).abs().max()) for key in runs[1])
        same = all(torch.equal(runs[0][key], runs[1][key]) for key in runs[1])
        yield (
            f"| `{name}` | {one.mean():.1f} | {other.mean():.1f} | {other.mean() / one.mean():.3f} | "
            f"{other.quantile(0.95) / one.quantile(0.95):.3f} | {'equal' if same else f'{apart:.1e} apart'} |"
        )
    pairs = [
        (one, other) for one, other in combinations(spans, 2)
        if abs(spans[one][0].mean() - spans[other][0].mean()) > half(spans[one][0]) + half(spans[other][0])
    ]  # fmt: skip
    alike = sum(
        (spans[one][0].mean() < spans[other][0].mean()) == (spans[one][1].mean() < spans[other][1].mean())
        for one, other in pairs
    )
    yield f"\n{alike} of {len(pairs)} pairs whose intervals do not overlap have the same order."


def targets(folder: Path, target: float) -> Iterator[str]:
    """Yield times to a target as Markdown, and how many pairs whose simulated intervals do not overlap keep order."""
    import numpy as np
    from scipy.stats import kendalltau, t

    import vflsim

    both = [vflsim.open_results(folder / kind) for kind in ("run", "live")]
    yield f"| protocol | reached {target} (simulated, live) | simulated (s) | live (s) | ratio |"
    yield "|---|---:|---:|---:|---:|"
    spans: dict[str, tuple[float, float, float]] = {}
    for name in both[0].protocols:
        one, other = ([reached(run, target) for run in results.runs if run.protocol == name] for results in both)
        counts = [sum(each is not None for each in side) for side in (one, other)]
        pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
        if min(counts) < len(one):
            yield f"| `{name}` | {counts[0]}, {counts[1]} of {len(one)} | | | |"
            continue
        simulated, live = (float(np.mean(side)) for side in zip(*pairs, strict=True))
        spread = float(np.std([a for a, _ in pairs], ddof=1))
        within = float(t.ppf(0.975, len(pairs) - 1)) * spread / len(pairs) ** 0.5
        spans[name] = simulated, within, live
        ratio = f"{live / simulated:.3f}" if simulated else ""
        yield f"| `{name}` | all | {simulated:.2f} ± {within:.2f} | {live:.2f} | {ratio} |"
    apart = [(a, b) for a, b in combinations(spans.values(), 2) if abs(a[0] - b[0]) > a[1] + b[1]]
    alike = sum((a[0] < b[0]) == (a[2] < b[2]) for a, b in apart)
    yield f"\n{alike} of {len(apart)} pairs whose intervals do not overlap have the same order."
    if len(spans) > 1:
        simulated_s, _, live_s = zip(*spans.values(), strict=True)
        yield f"Kendall's τ of all is {kendalltau(simulated_s, live_s).statistic:.2f}."


def reached(run: StoredRun, target: float) -> float | None:
    """Return when a run's test accuracy first is at least the target (s), None if never."""
    rows = run.table("metrics").to_pandas()
    there = rows[rows["test_accuracy"] >= target]
    return None if there.empty else float(there["time_s"].iloc[0])


def durations(results: Results, name: str) -> pd.Series[float]:
    """Return how long each round of a protocol lasted (ms)."""
    run = next(run for run in results.runs if run.protocol == name)
    rounds = run.table("rounds").to_pandas()
    return 1000 * (rounds["end_s"] - rounds["start_s"])


def half(spans: pd.Series[float]) -> float:
    """Return half the 95 % interval of a mean."""
    return 1.96 * float(spans.std()) / len(spans) ** 0.5


def draw(folder: Path, file: Path, title: str) -> None:
    """Draw the distributions of rounds, live over simulated."""
    import matplotlib.pyplot as plt

    import vflsim

    live, simulated = vflsim.open_results(folder / "live"), vflsim.open_results(folder / "run")
    columns = -(-len(simulated.protocols) // 2)
    figure, axes = plt.subplots(2, columns, figsize=(12, 5), sharey=True, layout="constrained", squeeze=False)
    for ax in axes.flat[len(simulated.protocols) :]:
        ax.set_axis_off()
    for ax, name in zip(axes.flat, simulated.protocols, strict=False):
        for results, label, style in ((simulated, "simulated", "-"), (live, "live", "--")):
            ax.ecdf(durations(results, name), label=label, linestyle=style)
        ax.set_title(name, fontsize="medium")
    for ax in axes[-1]:
        ax.set_xlabel("round duration [ms]")
    for ax in axes[:, 0]:
        ax.set_ylabel("share of rounds")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2)
    figure.suptitle(f"{title}: rounds of each protocol", x=0.01, ha="left", fontsize="medium")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=[*WORLDS], metavar="NAME")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=[*PROTOCOLS], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1, help="2 or more: times to the target, too")
    parser.add_argument("--target", type=float, default=0.85, help="a test accuracy (default: 0.85)")
    parser.add_argument("--figure", type=Path, help="draw the rounds of the first world into this file")
    chosen = parser.parse_args()
    for place, world in enumerate(chosen.worlds):
        with tempfile.TemporaryDirectory() as folder:
            compute(Path(folder), WORLDS[world], chosen.rounds, chosen.protocols, chosen.seeds)
            print(f"### {world}\n")
            print("\n".join(table(Path(folder))))
            if chosen.seeds > 1:
                print("\n" + "\n".join(targets(Path(folder), chosen.target)))
            print(f"\nLoad of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n", flush=True)
            if chosen.figure is not None and place == 0:
                draw(Path(folder), chosen.figure, world)


if __name__ == "__main__":
    main()
