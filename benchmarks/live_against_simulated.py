"""How far live runs are from the simulation: mean rounds and their order, delays emulated on this machine.

Every protocol that runs live, three clients and the server, each a process, against the simulation with the same draws.
The table has both mean rounds, their ratio, and whether weights are equal bit for bit to those of `--eager`; below it
stand Kendall's tau of the protocols by mean round, and the machine's load, since on a busy machine processes wait for
each other.
Run: python benchmarks/live_against_simulated.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCENARIO = """
name: live_against_simulated
data: {name: digits}
partition: {clients: 3}
models:
  client: {kind: linear, embedding: 8}
  aggregate: concat
  server: {kind: linear, bias: false}
training: {batch: 64, dtype: float64, client_optimizer: {kind: sgd, lr: 0.1}, server_optimizer: {kind: sgd, lr: 0.1}}
protocols:
  synchronous: {kind: synchronous}
  ignore: {kind: ignore, fastest: 2}
  t_synchronous: {kind: t_synchronous, t: 2}
  asynchronous: {kind: asynchronous}
  fedbcd: {kind: fedbcd, local_steps: 2}
  c_vfl: {kind: c_vfl, local_steps: 2, codec: {kind: scalar_quantiser, bits: 4}}
  ef_vfl: {kind: ef_vfl, codec: {kind: top_k, fraction: 0.5}}
  vimsgd: {kind: vimsgd}
  vimadmm: {kind: vimadmm, rho: 1.0, local_steps: 2}
  fdml: {kind: fdml}
timing:
  server: {compute: 10 ms}
  clients:
    compute: {kind: exponential, mean: 20 ms}
    upload_delay: {kind: exponential, mean: 50 ms}
    link: {up: 20 Mbps, down: 50 Mbps, latency: 2 ms}
evaluate: {every: 100 rounds}
"""


def compute(folder: Path, rounds: int) -> None:
    """Run the scenario live and simulated."""
    file = folder / "scenario.yaml"
    file.write_text(f"{SCENARIO}stop: {{rounds: {rounds}}}\n", "utf-8")
    for command in (["live"], ["run", "--eager"]):
        out = folder / command[0]
        words = [sys.executable, "-m", "vflsim", *command, str(file), "--out", str(out), "--no-report"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def table(folder: Path) -> None:
    """Print what came."""
    import torch
    from safetensors.torch import load_file
    from scipy.stats import kendalltau

    import vflsim

    live, simulated = vflsim.open_results(folder / "live"), vflsim.open_results(folder / "run")
    means: list[tuple[float, float]] = []
    print("| protocol | simulated (ms a round) | live | ratio | weights |\n|---|---:|---:|---:|---|")
    for name in simulated.protocols:
        pair = []
        for results in (simulated, live):
            last = results.metrics.query("protocol == @name").iloc[-1]
            pair.append(1000 * float(last["time_s"]) / int(last["round"]))
        runs = [load_file(folder / kind / name / "seed-0" / "weights.safetensors") for kind in ("live", "run")]
        apart = max(float((runs[0][key] - runs[1][key]).abs().max()) for key in runs[1])
        same = all(torch.equal(runs[0][key], runs[1][key]) for key in runs[1])
        means.append((pair[0], pair[1]))
        print(f"| `{name}` | {pair[0]:.1f} | {pair[1]:.1f} | {pair[1] / pair[0]:.3f} | "
              f"{'equal' if same else f'{apart:.1e} apart'} |")  # fmt: skip
    tau = kendalltau([one for one, _ in means], [other for _, other in means]).statistic
    print(f"\nKendall's tau {tau:.3f}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compute(Path(folder), chosen.rounds)
        table(Path(folder))


if __name__ == "__main__":
    main()
