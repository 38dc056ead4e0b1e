"""A whole `vflsim run` against a whole bare PyTorch script, imports and all.

Ten epochs of synchronous training on Fashion-MNIST, 28 clients, one seed, evaluated after every epoch, against
benchmarks/bare_centralised.py, which trains one model on all features and evaluates at the same points. One thread for
all. With `record: rounds` times are arrays, and training is a program. They take turns; medians, in wall-clock and in
CPU seconds; and `vflsim --help`, which imports nothing heavy.
Run: python benchmarks/whole_process.py [REPEATS [EPOCHS]]   (needs Fashion-MNIST in VFLSIM_DATA)
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SCENARIO = HERE.parent / "scenarios" / "fashion_mnist_stragglers.yaml"
SAID = (
    "protocols={wait: {kind: synchronous}}",
    "evaluate={every: 235 rounds}",
)


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a process that ends well."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(repeats: int = 3, epochs: int = 10) -> None:
    data = Path(os.environ["VFLSIM_DATA"]) / "fashion-mnist"
    vflsim = [sys.executable, "-m", "vflsim"]
    said = [word for each in (*SAID, f"stop={{epochs: {epochs}}}") for word in ("--set", each)]
    with tempfile.TemporaryDirectory() as folder:
        run = [*vflsim, "run", str(SCENARIO), *said, "--seeds", "0:1", "--device", "cpu", "--out"]
        commands = {
            "vflsim run": run,
            "record: rounds": [*run[:-1], "--set", "record=rounds", "--out"],
            "bare script": [sys.executable, str(HERE / "bare_centralised.py"), str(data), str(epochs)],
            "vflsim --help": [*vflsim, "--help"],
        }
        times = {name: list[tuple[float, float]]() for name in commands}
        for n in range(repeats):
            for name, command in commands.items():
                out = (
                    [f"{folder}/{name}/{n}"] if command[-1] == "--out" else []
                )  # a finished run in its folder is not computed again
                times[name].append(seconds([*command, *out]))
    medians = {name: [statistics.median(column) for column in zip(*each, strict=True)] for name, each in times.items()}
    for name, (wall, cpu) in medians.items():
        print(f"{name:<14} {wall:6.2f} s, {cpu:6.2f} s of CPU")
    for name in ("vflsim run", "record: rounds"):
        ratios = [mine / bare for mine, bare in zip(medians[name], medians["bare script"], strict=True)]
        print(f"{name} / bare script: {ratios[0]:.2f} (CPU {ratios[1]:.2f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
