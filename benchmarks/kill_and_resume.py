"""Kills runs (SIGKILL) at random moments, resumes them, and compares every byte with runs that nobody has killed.

For every protocol a run of some seconds is started as a process of its own, killed, started again with ``--resume``,
killed again, and so on; in the end it is left alone. Its tables and weights must be those of an uninterrupted run to
the last byte; run.json may differ in its wall-clock time only. Then: what checkpoints cost, and how fast the way back
is. Run: python benchmarks/kill_and_resume.py [kills [RUN]]   (50 of all runs take about six minutes)
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.vocabulary.execution_options import Execution
from vflsim.world.virtual import VirtualWorld

KILLS = 50
EVERY = "0.2 s"
"""Wall-clock time between checkpoints: in such short runs they are not every minute."""
ADAM = {"kind": "adam", "lr": 0.002}
MOMENTUM = {"kind": "sgd", "lr": 0.02, "momentum": 0.9}
POLYNOMIAL = {"kind": "polynomial", "degree": 2, "bias": False, "embedding": 16}
MLP = {"kind": "mlp", "hidden": [24], "embedding": 16}
CNN = {"kind": "cnn", "channels": [4], "embedding": 16}
HEADS = {"client": MLP, "aggregate": "concat", "server": {"kind": "linear", "bias": False}}
ACTIVE = {
    "partition": {"clients": 5, "active": True},
    "models": {"client": [{"select": "all", **MLP}, {"select": "2", **CNN}], "active": MLP},
}
NOISE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.05, "delta": 1e-5}

BASE: dict[str, Any] = {
    "data": {"name": "digits", "test_fraction": 0.2},
    "partition": {"clients": 8, "by": "image_rows"},
    "models": {
        "client": {"kind": "linear", "embedding": 16},
        "aggregate": "mean",
        "server": {"kind": "mlp", "hidden": [32]},
    },
    "training": {"batch": 64, "client_optimizer": MOMENTUM, "server_optimizer": MOMENTUM, "dtype": "float32"},
    "timing": {
        "server": {"compute": "1 ms", "link": {"up": "1 Gbps", "down": "1 Gbps", "latency": "1 ms"}},
        "clients": [
            {
                "select": "all",
                "compute": {"kind": "exponential", "mean": "2 ms"},
                "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"},
                "link": {"up": "50 Mbps", "down": "50 Mbps", "latency": "1 ms"},
            }
        ],
    },
    "evaluate": {"every": "100 rounds"},
}
RUNS: dict[str, tuple[dict[str, Any], int, dict[str, Any], list[str]]] = {
    "synchronous": ({"kind": "synchronous"}, 1500, {}, []),
    "synchronous, CNNs": ({"kind": "synchronous"}, 150, {"models": {"client": CNN}}, []),
    "ignore": ({"kind": "ignore", "fastest": 5, "mechanism": NOISE}, 1000, {"models": {"client": MLP}}, []),
    "t-synchronous": ({"kind": "t_synchronous", "t": 3, "max_staleness": 4}, 1000, {}, []),
    "asynchronous": (
        {"kind": "asynchronous"}, 2500, {"training": {"batches": "own", "client_optimizer": ADAM}}, [],
    ),
    "asynchronous, eager": ({"kind": "asynchronous"}, 1500, {}, ["--eager"]),
    "centralised": ({"kind": "centralised"}, 2000, {}, []),
    "VIMSGD": ({"kind": "vimsgd"}, 800, {"models": HEADS}, []),
    "VIMADMM": ({"kind": "vimadmm", "rho": 1, "local_steps": 5, "residual_heads": "old"}, 200, {"models": HEADS}, []),
    "VIMADMM-J": ({"kind": "vimadmm_j", "rho": 0.5, "local_steps": 5, "mechanism": NOISE}, 200, {"models": HEADS}, []),
    "FDML": ({"kind": "fdml"}, 800, {"models": HEADS}, []),
    "FedBCD": ({"kind": "fedbcd", "local_steps": 4}, 400, {}, []),
    "FedBCD, sequential": ({"kind": "fedbcd", "local_steps": 4, "order": "sequential"}, 200, {}, []),
    "C-VFL": (
        {"kind": "c_vfl", "local_steps": 4, "codec": {"kind": "vector_quantiser", "bits": 4, "error_feedback": True}},
        300, {}, [],
    ),
    "EF-VFL": ({"kind": "ef_vfl", "codec": {"kind": "top_k", "fraction": 0.1}}, 500, {}, []),
    "EF-VFL, private": (
        {"kind": "ef_vfl", "labels": "private", "codec": {"kind": "scalar_quantiser", "bits": 3}}, 500, {}, [],
    ),
    "EASTER": (
        {"kind": "easter"}, 150, {**ACTIVE, "training": {"client_optimizer": ADAM}}, [],
    ),
    "local": ({"kind": "local"}, 2000, ACTIVE, []),
    "PyVertical": ({"kind": "pyvertical", "models": {"aggregate": "concat"}}, 1000, ACTIVE, []),
    "AggVFL": ({"kind": "agg_vfl"}, 300, ACTIVE, []),
    "FedVS": ({"kind": "fedvs", "K": 2, "T": 1, "arithmetic": "coded"}, 150, {"models": {"client": POLYNOMIAL}}, []),
}  # fmt: skip
"""What is run: the protocol, how many rounds, what is said otherwise than in ``BASE``, and options."""


def main(kills: int, *chosen: str) -> None:
    """Print both tables."""
    pick = random.Random(0)
    print(f"{kills} kills at random moments, checkpoints every {EVERY}")
    print(f"{'run':<22} {'seconds':>8} {'kills':>6} {'resumed':>8}   identical", flush=True)
    total = 0
    names = chosen or [*RUNS]
    for n, name in enumerate(names):
        count = kills // len(names) + (n < kills % len(names))
        with tempfile.TemporaryDirectory() as folder:
            seconds, resumed, same = _killed(name, Path(folder), count, pick)
        total += count * same
        print(f"{name:<22} {seconds:8.1f} {count:6} {resumed:8}   {'yes' if same else 'NO'}", flush=True)
    print(f"{total} of {kills} kills without a trace\n")
    _costs(names)


def _killed(name: str, folder: Path, kills: int, pick: random.Random) -> tuple[float, int, bool]:
    """Seconds of the uninterrupted process, how often a run resumed from a checkpoint, and whether nothing differs."""
    scenario = _scenario(name, folder)
    began = time.monotonic()
    _start(scenario, folder / "whole", name, "off").wait()
    seconds = time.monotonic() - began
    out, resumed, left = folder / "killed", 0, kills
    checkpoint = out / "it" / ".seed-0.checkpoint"
    while left:
        before = set(checkpoint.glob("*.json"))
        resumed += bool(before)
        process = _start(scenario, out, name, EVERY, "--resume")
        if left % 2:  # every other time it has got somewhere
            while process.poll() is None and set(checkpoint.glob("*.json")) <= before:
                time.sleep(0.01)
        try:
            process.wait(pick.uniform(0.0, 1.0) * (1.0 if left % 2 else seconds))
            shutil.rmtree(out)  # it was quicker: once more from the beginning
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            left -= 1
    resumed += any(checkpoint.glob("*.json"))
    _start(scenario, out, name, EVERY, "--resume").wait()
    return seconds, resumed, _files(folder / "whole") == _files(out)


def _scenario(name: str, folder: Path) -> Path:
    protocol, rounds, said, _ = RUNS[name]
    changed = {section: {**BASE[section], **keys} for section, keys in said.items()}
    scenario = {"name": "killed", **BASE, **changed, "protocols": {"it": protocol}, "stop": {"rounds": rounds}}
    path = folder / "scenario.yaml"
    YAML().dump(scenario, path)
    return path


def _start(scenario: Path, out: Path, name: str, every: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "vflsim", "run", str(scenario), "--out", str(out), "--checkpoint-every", every]
    return subprocess.Popen([*command, *RUNS[name][3], *options], stdout=subprocess.DEVNULL)


def _files(out: Path) -> Mapping[str, bytes]:
    """Every file of a run, by name; run.json without its wall-clock time."""
    folder = out / "it" / "seed-0"
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    info = json.loads(files["run.json"])
    del info["wall_clock_s"]
    return {**files, "run.json": json.dumps(info).encode()}


# --- what it costs --------------------------------------------------------------------------------------------------


def _costs(names: Sequence[str]) -> None:
    """One checkpoint in the middle of each run, and the way back to it."""
    print(f"{'run':<22} {'events':>8} {'seconds':>8} {'size, kB':>9} {'writing, ms':>12} {'back, s':>8}   of the time")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            scenario = load(_scenario(name, Path(folder)))
            checkpoints = Path(folder) / "checkpoints"
            first, again = (Keeper(checkpoints, None, {}, resume) for resume in (False, True))
            half = RUNS[name][1] // 2
            events, seconds = _go(scenario, name, first, lambda progress, half=half: progress.rounds >= half)
            size = sum(path.stat().st_size for path in checkpoints.iterdir()) / 1000
            _go(scenario, name, again, lambda _, again=again: again.back > 0)
        seconds -= first.took
        columns = f"{events:8,} {seconds:8.2f} {size:9,.0f} {1000 * first.took:12.1f} {again.back:8.2f}"
        print(f"{name:<22} {columns}   {again.back / seconds:.0%}", flush=True)


def _go(scenario: Scenario, name: str, keeper: Keeper, far: Callable[[Progress], bool]) -> tuple[int, float]:
    """Run until it is ``far`` enough, and keep a checkpoint there; events and seconds until then."""
    world = VirtualWorld(DeferredExecutor())
    data = ScenarioData(scenario).of(scenario.training_of("it"))

    def report(progress: Progress) -> None:
        if far(progress):
            keeper.request(stop=True)

    execution = Execution(eager="--eager" in RUNS[name][3])
    began = time.monotonic()
    with suppress(KeyboardInterrupt):
        run_protocol(scenario, "it", 0, data, world=world, report=report, execution=execution, keeper=keeper)
    return world.events, time.monotonic() - began


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS, *sys.argv[2:])
