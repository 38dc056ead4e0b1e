"""How good the memory is that `vflsim check` predicts: predicted ÷ measured, for runs of 300 MB to 2 GB.

Each case has a process of its own. It runs the case with narrow models first, so that everything is imported, loads the
data, and resets the peak of its resident size. Predicted is what `check` counts for a run, less the features, which are
there. Measured is the peak of the whole study less the size before. Data are drawn from a seed. Aim: 0.8 to 1.3.
Run: python benchmarks/memory_estimates.py [CASE …]   (Linux; without arguments all cases)
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LEAST, MOST = 0.8, 1.3
MB = 1e6
COLUMNS, CLASSES, CLIENTS, ROUNDS = 64, 10, 4, 4
SGD = {"kind": "sgd", "lr": 1e-4}
ADAM = {"kind": "adam", "lr": 1e-4}
ACTIVE = ("easter", "agg_vfl", "local")
"""Protocols with a party that has features and labels."""
LINEAR = {"kind": "linear", "bias": False}


@dataclass(frozen=True)
class Case:
    """A scenario by what is particular to it. ``narrow`` replaces ``models`` in the run that only imports.

    ``rows``: of the file, an eighth of them to test on. ``optimizer``: of all parties. ``views``: rows recorded.
    """

    protocol: Mapping[str, Any]
    client: Mapping[str, Any]
    server: Mapping[str, Any] = field(default_factory=lambda: LINEAR)
    aggregate: str = "mean"
    batch: int = 1024
    rows: int = 4096
    optimizer: Mapping[str, Any] = field(default_factory=lambda: SGD)
    rounds: int = ROUNDS
    views: Mapping[str, Any] | None = None

    def scenario(self, file: Path) -> dict[str, Any]:
        """Return the scenario on a file of data."""
        active = self.protocol["kind"] in ACTIVE
        record = {"tables": "summary", **({"views": self.views} if self.views else {})}
        return {
            "name": "memory",
            "data": {"file": str(file), "label": "y", "task": "multiclass", "test_fraction": 0.125},
            "partition": {"clients": CLIENTS, "by": "columns", **({"active": True} if active else {})},
            "models": {
                "client": dict(self.client),
                "aggregate": self.aggregate,
                "server": dict(self.server),
                **({"active": dict(self.client)} if active else {}),
            },
            "training": {"batch": self.batch, "client_optimizer": self.optimizer, "server_optimizer": self.optimizer},
            "timing": {"clients": {"compute": "1 s"}},
            "protocols": {"run": dict(self.protocol)},
            "stop": {"rounds": self.rounds},
            "evaluate": {"every": "2 rounds"},
            "record": record,
        }


def linear(embedding: int) -> dict[str, Any]:
    """A linear client."""
    return {**LINEAR, "embedding": embedding}


def mlp(hidden: int, embedding: int = 64) -> dict[str, Any]:
    """A client with one hidden layer."""
    return {"kind": "mlp", "hidden": [hidden], "embedding": embedding}


def top(*hidden: int) -> dict[str, Any]:
    """A server with hidden layers."""
    return {"kind": "mlp", "hidden": list(hidden)}


SYNCHRONOUS, ASYNCHRONOUS = {"kind": "synchronous"}, {"kind": "asynchronous"}
FEDVS = {"kind": "fedvs", "K": 1, "T": 1}
CASES: dict[str, Case] = {
    "synchronous, server 500,000 wide, sgd": Case(SYNCHRONOUS, linear(16), top(500_000), batch=64, rows=512),
    "synchronous, server 500,000 wide, adam": Case(
        SYNCHRONOUS, linear(16), top(500_000), batch=64, rows=512, optimizer=ADAM
    ),
    "synchronous, server 3,000-3,000-3,000, adam": Case(
        SYNCHRONOUS, linear(3000), top(3000, 3000, 3000), batch=64, optimizer=ADAM
    ),
    "synchronous, clients' hidden 20,000": Case(SYNCHRONOUS, mlp(20_000), batch=1024),
    "synchronous, clients' hidden 100,000, adam": Case(SYNCHRONOUS, mlp(100_000), batch=64, rows=512, optimizer=ADAM),
    "synchronous, embedding 50,000, mean": Case(SYNCHRONOUS, linear(50_000)),
    "synchronous, embedding 20,000, concat": Case(SYNCHRONOUS, linear(20_000), aggregate="concat"),
    "synchronous, embedding 30,000, max": Case(SYNCHRONOUS, linear(30_000), aggregate="max", batch=512),
    "ignore, clients' hidden 20,000": Case({"kind": "ignore", "exclude": 4}, mlp(20_000)),
    "centralised, clients' hidden 20,000": Case({"kind": "centralised"}, mlp(20_000)),
    "centralised, clients' hidden 100,000, adam": Case(
        {"kind": "centralised"}, mlp(100_000), batch=64, rows=512, optimizer=ADAM
    ),
    "centralised, server 500,000 wide, adam": Case(
        {"kind": "centralised"}, linear(16), top(500_000), batch=64, rows=512, optimizer=ADAM
    ),
    "fedvs, embedding 20,000": Case(FEDVS, {"kind": "polynomial", "degree": 1, "bias": False, "embedding": 20_000}),
    "fedvs, degree 2, embedding 20,000": Case(
        FEDVS, {"kind": "polynomial", "degree": 2, "bias": False, "embedding": 20_000}, batch=512
    ),
    "fedvs, degree 2, embedding 5,000, adam": Case(
        FEDVS, {"kind": "polynomial", "degree": 2, "embedding": 5_000}, batch=2048, optimizer=ADAM
    ),
    "easter, embedding 20,000": Case({"kind": "easter"}, linear(20_000), batch=512),
    "easter, hidden 20,000": Case({"kind": "easter"}, mlp(20_000), batch=512),
    "easter, nets 200,000 wide, adam": Case(
        {"kind": "easter"}, linear(16), top(200_000), batch=64, rows=512, optimizer=ADAM
    ),
    "asynchronous, table of 50,000 rows": Case(ASYNCHRONOUS, linear(500), batch=256, rows=57_344),
    "asynchronous, table, server 200,000 wide": Case(
        ASYNCHRONOUS, linear(500), top(200_000), batch=64, rows=8192, rounds=8
    ),
    "t_synchronous, table of 50,000 rows": Case({"kind": "t_synchronous", "t": 2}, linear(500), batch=256, rows=57_344),
    "synchronous, views of 8,192 rows": Case(
        SYNCHRONOUS, linear(2_000), batch=256, rows=16_384, views={"rows": 8192}, rounds=56
    ),
    "synchronous, all views of 1,024 rows": Case(
        SYNCHRONOUS, linear(2_000), batch=256, rows=2_048, views={"rows": 1024, "keep": "all"}, rounds=56
    ),
    "vimadmm, embedding 5,000": Case(
        {"kind": "vimadmm", "rho": 1, "local_steps": 2}, linear(5_000), {**LINEAR, "fan_in": 16}, "concat", 2048
    ),
    "vimadmm_j, embedding 5,000": Case(
        {"kind": "vimadmm_j", "rho": 1, "local_steps": 2}, linear(5_000), {**LINEAR, "fan_in": 16}, "concat", 2048
    ),
    "vimsgd, embedding 10,000": Case({"kind": "vimsgd"}, linear(10_000), {**LINEAR, "fan_in": 16}, "concat", 2048),
    "fdml, embedding 10,000": Case({"kind": "fdml"}, linear(10_000), {**LINEAR, "fan_in": 16}, "concat", 2048),
    "fedbcd, embedding 20,000": Case({"kind": "fedbcd", "local_steps": 3}, linear(20_000)),
    "c_vfl, embedding 20,000": Case(
        {"kind": "c_vfl", "local_steps": 3, "codec": {"kind": "scalar_quantiser", "bits": 4}}, linear(20_000), batch=512
    ),
    "ef_vfl, embedding 5,000": Case(
        {"kind": "ef_vfl", "codec": {"kind": "top_k", "fraction": 0.1}}, linear(5_000), batch=512, rows=4096
    ),
    "pyvertical, embedding 20,000": Case({"kind": "pyvertical"}, linear(20_000), aggregate="concat"),
    "agg_vfl, embedding 20,000": Case({"kind": "agg_vfl"}, linear(20_000), batch=512),
    "local, server 500,000 wide, adam": Case(
        {"kind": "local"}, linear(16), top(500_000), batch=64, rows=512, optimizer=ADAM
    ),
}


def measured(name: str) -> dict[str, Any]:
    """Run a case in this process: what is predicted and the peak, in bytes without the features, and what it holds."""
    import vflsim
    from vflsim.scenario.resolve import ScenarioData, setting
    from vflsim.studies.checks.sizes import run_size

    case = CASES[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raw = case.scenario(_data(folder, case.rows))
        vflsim.run(vflsim.load(_narrow(raw, _data(folder, 256))), folder / "narrow")
        scenario = vflsim.load(raw)
        data = ScenarioData(scenario).of(scenario.training)
        size = run_size(scenario, "run", setting(scenario, "run", data))
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        from vflsim.studies.study import run_study

        study = run_study(scenario, folder / "results")
        assert not study.failures, study.failures
        peak = _status("VmHWM") - before
    features = data.joint["train"].nbytes + data.joint["validation"].nbytes + data.joint["test"].nbytes
    twice = features  # a study reads the data itself
    return {"predicted": size.bytes - size.parts["features"], "measured": peak - twice, "parts": size.description}


def _data(folder: Path, rows: int) -> Path:
    file = folder / f"{rows}.npz"
    if not file.exists():
        generator = np.random.default_rng(0)
        x = generator.normal(size=(rows, COLUMNS)).astype(np.float32)
        np.savez(file, x=x, y=np.arange(rows) % CLASSES)
    return file


def _narrow(raw: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return a scenario with the same code paths and hardly any memory."""
    text = json.dumps({**raw, "data": {**raw["data"], "file": str(file)}})
    text = re.sub(r'("hidden": )\[[^]]*\]', r"\1[8]", text)
    text = re.sub(r'("embedding": )\d+', r"\g<1>8", text)
    text = re.sub(r'("batch": )\d+', r"\g<1>32", text)
    text = re.sub(r'("rows": )\d+', r"\g<1>8", text)
    return dict(json.loads(text))


def _status(key: str) -> int:
    """Return a size of this process in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, key
    return 1024 * int(found[1])


def main(names: list[str]) -> None:
    """Print the table."""
    ratios: list[float] = []
    print(f"{'case':<46} {'predicted MB':>12} {'measured MB':>12}  ratio")
    for name in names:
        done = subprocess.run([sys.executable, __file__, "--child", name], text=True, capture_output=True, check=False)
        if done.returncode:
            print(f"{name:<46} failed: {done.stderr.strip().splitlines()[-1][:150]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        ratios.append(found["predicted"] / found["measured"])
        sizes = f"{found['predicted'] / MB:12,.0f} {found['measured'] / MB:12,.0f}"
        print(f"{name:<46} {sizes}  {ratios[-1]:5.2f}   {found['parts']}", flush=True)
    within = sum(LEAST <= ratio <= MOST for ratio in ratios)
    if ratios:
        print(f"{within} of {len(ratios)} within {LEAST} to {MOST}; {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["--child"]:
        print(json.dumps(measured(given[1])))
    else:
        main([name for name in CASES if not given or any(each in name for each in given)])
