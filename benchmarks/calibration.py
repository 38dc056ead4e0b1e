"""How well a calibrated scenario predicts live runs that it was not calibrated on, without emulated delays.

A live run of `synchronous` with two clients and a batch of 128 is calibrated, all clients alike. Its timing predicts
the mean round of other live runs: the same scenario with another seed (by how much runs differ among themselves), other
batches, other protocols, other numbers of clients. Every run has several seeds, each calibrated by itself; all kinds of
runs take turns, so that a load of the machine meets all. Runs with another number of clients follow runs of the
calibrated scenario. A prediction is a simulation without training. The first tenth of the rounds is left out on both
sides, and models are evaluated at the end alone.

With --hidden N the clients' two hidden layers have N units, so that what is computed weighs more against what the
machine does between computations. With --simulated the runs are simulations with a timing of their own, which the
calibration does not see: how well the method does where nothing but chance disturbs it.
Run: python benchmarks/calibration.py [--simulated] [--hidden N] [--clients N …] [--rounds N] [--seeds N]
[--figure FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def affine(fixed: str, rate: str, sigma: float) -> dict[str, Any]:
    """Return a compute model with a log-normal jitter."""
    return {"kind": "flops", "fixed": fixed, "rate": rate, "jitter": {"kind": "lognormal", "sigma": sigma, "mean": 1}}


CALIBRATED = "calibrated"
SYNC: dict[str, Any] = {"kind": "synchronous"}
LINEAR: dict[str, Any] = {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}
CASES: dict[str, Any] = {
    CALIBRATED: SYNC,
    **{f"batch {rows}": {**SYNC, "training": {"batch": rows}} for rows in (32, 64, 256, 512)},
    "t_synchronous, t = 1": {"kind": "t_synchronous", "t": 1},
    "fedbcd, 2 local steps": {"kind": "fedbcd", "local_steps": 2},
    "c_vfl, 2 local steps": {"kind": "c_vfl", "local_steps": 2},
    "vimsgd": {"kind": "vimsgd", "models": LINEAR},
}
CLIENTS = (1, 3, 4)
SCENARIO: dict[str, Any] = {
    "name": "calibration",
    "data": {"name": "digits"},
    "partition": {"clients": 2},
    "models": {
        "aggregate": "mean",
        "server": {"kind": "mlp", "hidden": [128]},
    },
    "training": {
        "batch": 128,
        "client_optimizer": {"kind": "sgd", "lr": 0.05},
        "server_optimizer": {"kind": "sgd", "lr": 0.05},
    },
    "evaluate": {"every": "1000000 rounds"},
}
TRUTH: dict[str, Any] = {
    "network": "dedicated",
    "server": {"compute": affine("1 ms", "5 GFLOPS", 0.1)},
    "clients": {
        "compute": affine("0.5 ms", "10 GFLOPS", 0.3),
        "link": {
            "up": "50 Mbps", "down": "100 Mbps",
            "latency": {"kind": "shifted_exponential", "shift": "1 ms", "mean": "0.5 ms"},
        },
    },
}  # fmt: skip
"""The timing of simulated runs."""
PREDICTED_ROUNDS = 1_000


def named(case: str) -> str:
    """Return the name of a case as protocols may be called."""
    return "".join(each if each.isalnum() else "_" for each in case)


def load(cases: Iterable[str], clients: int, rounds: int, seeds: list[int], hidden: int, **sections: Any) -> Any:
    """Return the scenario of some cases."""
    import vflsim

    client = {"kind": "mlp", "hidden": [hidden, hidden], "embedding": 32}
    said = {
        **SCENARIO,
        "partition": {"clients": clients},
        "models": {**SCENARIO["models"], "client": client},
        "protocols": {named(case): CASES[case] for case in cases},
    }
    return vflsim.load({**said, "stop": {"rounds": rounds}, "seeds": seeds, **sections})


class Bench:
    """Runs and predicts, in a folder of its own."""

    def __init__(self, folder: Path, chosen: argparse.Namespace) -> None:
        self.folder, self.chosen = folder, chosen
        self.seeds, self.studies = list(range(chosen.seeds)), 0
        self.loads: list[float] = []

    def measured(self, cases: Iterable[str], clients: int) -> Any:
        """Return the results of some cases, live, or simulated with the true timing."""
        import vflsim
        from vflsim.scenario.load import dump

        place = self.folder / str(self.studies)
        self.studies += 1
        timing = {"timing": TRUTH} if self.chosen.simulated else {}
        said = load(cases, clients, self.chosen.rounds, self.seeds, self.chosen.hidden, record="events", **timing)
        if self.chosen.simulated:
            return vflsim.run(said, place, timing_only=True, progress=False)
        place.mkdir()
        file = place / "scenario.yaml"
        file.write_text(dump(said), "utf-8")
        words = [sys.executable, "-m", "vflsim", "live", str(file), "--delays", "none", "--out", str(place / "run")]
        subprocess.run([*words, "--no-report"], check=True, stdout=subprocess.DEVNULL)
        self.loads.append(os.getloadavg()[0])
        return vflsim.open_results(place / "run")

    def calibrated(self, results: Any) -> dict[int, dict[str, Any]]:
        """Return the timing that each seed of the calibrated case gives; draw the first one's figure."""
        from vflsim.plotting.delays import calibration
        from vflsim.studies.calibrate import calibrate

        found: dict[int, dict[str, Any]] = {}
        for seed in self.seeds:
            run = run_of(results, CALIBRATED, seed)
            after = float(run.round_durations()[: self.chosen.rounds // 10].sum())
            each = calibrate(results.folder, f"{CALIBRATED}/{seed}", alike=True, after=after)
            found[seed] = dict(each.preset()["timing"])
            if self.chosen.figure is not None and not found.keys() - {seed}:
                self.chosen.figure.write_bytes(calibration(each).rendered(self.chosen.figure.suffix))
                self.chosen.figure = None
        return found

    def predicted(self, case: str, clients: int, timing: dict[str, Any], seed: int) -> float:
        """Return the mean round that a timing predicts for a case (s)."""
        import vflsim

        said = load([case], clients, PREDICTED_ROUNDS, [seed], self.chosen.hidden, timing=timing, record="rounds")
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            return mean_round(vflsim.run(said, Path(place) / "run", timing_only=True, progress=False).runs[0])

    def row(self, name: str, pairs: list[tuple[float, float]]) -> None:
        """Print measured and predicted mean rounds, and the errors of each seed."""
        measured, predicted = 1e3 * np.array(pairs).T
        errors = 100 * (predicted / measured - 1)
        spread = " ".join(f"{error:+.1f}" for error in errors)
        print(
            f"| {name} | {measured.mean():.2f} | {predicted.mean():.2f} | "
            f"{100 * (predicted.mean() / measured.mean() - 1):+.1f} % | {spread} |",
            flush=True,
        )


def run_of(results: Any, case: str, seed: int) -> Any:
    """Return a run of a case."""
    return next(run for run in results.runs if (run.protocol, run.seed) == (named(case), seed))


def mean_round(run: Any) -> float:
    """Return the mean duration of the rounds behind the first tenth (s)."""
    lasted = run.round_durations()
    return float(lasted[len(lasted) // 10 :].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place), chosen)
        what = "simulated run" if chosen.simulated else "live run"
        print(f"| {what} | measured (ms a round) | predicted | error | by seed (%) |\n|---|---:|---:|---:|---|")
        results = bench.measured(CASES, 2)
        timings = bench.calibrated(results)
        own = {seed: mean_round(run_of(results, CALIBRATED, seed)) for seed in bench.seeds}
        for case in CASES:
            again = [bench.predicted(case, 2, timings[seed], seed) for seed in bench.seeds]
            truth = [mean_round(run_of(results, case, seed)) for seed in bench.seeds]
            bench.row("calibrated, simulated again" if case == CALIBRATED else case, [*zip(truth, again, strict=True)])
            if case == CALIBRATED:
                before = [(own[seed], again[seed - 1]) for seed in bench.seeds]
                bench.row("the same with another seed", before)
        for clients in chosen.clients:
            timings = bench.calibrated(bench.measured([CALIBRATED], 2))
            others = bench.measured([CALIBRATED], clients)
            bench.row(
                f"{clients} client{'s' if clients > 1 else ''}",
                [
                    (
                        mean_round(run_of(others, CALIBRATED, seed)),
                        bench.predicted(CALIBRATED, clients, timings[seed], seed),
                    )
                    for seed in bench.seeds
                ],
            )
        loads = f"; load {min(bench.loads):.1f} to {max(bench.loads):.1f}" if bench.loads else ""
        runs = f"{chosen.rounds} rounds a run, seeds {bench.seeds}, {chosen.hidden} units"
        print(f"\n{os.cpu_count()} cores{loads}; {runs}")


if __name__ == "__main__":
    main()
