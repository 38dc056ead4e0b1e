"""How much memory a run takes: the Fashion-MNIST scenario, each protocol in a process of its own, then all in one.

What a run has to hold are its data (in the precision of its training), the server's embedding table (of protocols that
keep one), and the models. The peak is the greatest resident size of the process, less that of a process that has only
imported the same modules. Aim: at most 1.5 × what has to be held.
Run: python benchmarks/memory.py [rounds [PROTOCOL …]]   (needs Fashion-MNIST: vflsim data get fashion_mnist)
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCENARIO = Path(__file__).parents[1] / "scenarios" / "fashion_mnist_stragglers.yaml"
ROUNDS = 100
AIM = 1.5
MIB = 2**20


def main(rounds: int, chosen: list[str]) -> None:
    """Print the table."""
    print(f"{SCENARIO.stem}, {rounds} rounds and their evaluations, MiB")
    print(f"{'protocol':<17} {'data':>7} {'table':>7} {'models':>7} {'held':>7} {'peak':>7}   ratio (aim ≤ {AIM:g})")
    protocols = chosen or _child("names")
    for names in (*([name] for name in protocols), protocols):
        found = _child("run", rounds, *names)
        peak = found["peak"] - _child("import", *found["modules"])
        held = [found[part] / MIB for part in ("data", "table", "models")]
        columns = " ".join(f"{size:7.1f}" for size in (*held, sum(held), peak / MIB))
        said = names[0] if len(names) == 1 else "one after another"
        print(f"{said:<17} {columns}   {peak / MIB / sum(held):.2f}", flush=True)


def names() -> list[str]:
    """The scenario's protocols."""
    import vflsim

    return list(vflsim.load(SCENARIO).protocols)


def run(rounds: int, *names: str) -> dict[str, Any]:
    """Run protocols from file to summary: the most one has to hold, the peak (bytes), and the modules imported."""
    import vflsim

    scenario = vflsim.load(SCENARIO, ["seeds=0:1"])
    stop = scenario.stop.model_copy(update={"rounds": rounds})
    chosen = {name: scenario.protocols[name].model_copy(update={"stop": stop}) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        vflsim.run(scenario.model_copy(update={"protocols": chosen}), folder)
    peak = _peak()
    from vflsim.scenario.resolve import (
        ScenarioData,
        setting,  # to look at what was held, after the run
    )

    data = ScenarioData(scenario).of(scenario.training)
    tables, models = [], []
    for name in names:
        made = scenario.protocols[name].protocol.learners(setting(scenario, name, data), 0)
        server, clients = made.server, made.clients
        row = sum(server.parts.widths) * server.parts.dtype.itemsize
        tables.append(data.rows * row if server.parts.table else 0)
        modules = [server.model, *(client.model for client in clients.values())]
        models.append(sum(weights.nbytes for module in modules for weights in module.parameters()))
    return {
        "data": sum(each.nbytes for tensors in (data.joint, data.labels) for each in tensors.values()),
        "table": max(tables),
        "models": max(models),
        "peak": peak,
        "modules": sorted(module for module in sys.modules if not module.startswith("__")),
    }


def imported(*modules: str) -> int:
    """The peak (bytes) of a process that does nothing but import."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:  # what a library only puts into sys.modules
            continue
    return _peak()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _child(*arguments: object) -> Any:
    said = json.dumps(arguments)
    done = subprocess.run([sys.executable, __file__, "-"], input=said, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{arguments[0]} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        what, *given = json.load(sys.stdin)
        answers: dict[str, Callable[..., Any]] = {"names": names, "run": run, "import": imported}
        print(json.dumps(answers[what](*given)))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS, sys.argv[2:])
