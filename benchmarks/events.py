"""How fast the timing plane is: client-rounds a second of synchronous runs without training, against bare SimPy events.

One process, one thread; ratios within one run are what counts, absolute figures are the machine's.
Run: python benchmarks/events.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import simpy

import vflsim
from vflsim.runner.build import Data
from vflsim.runner.run import run_protocol

CLIENT_ROUNDS = 20_000


def bare_events(count: int = 300_000) -> float:
    """Events a second of SimPy alone: one process that waits."""
    environment = simpy.Environment()

    def tick() -> simpy.events.ProcessGenerator:
        for _ in range(count):
            yield environment.timeout(1.0)

    environment.process(tick())
    began = time.perf_counter()
    environment.run()
    return count / (time.perf_counter() - began)


def client_rounds(clients: int, folder: Path, record: str) -> tuple[float, float]:
    """Client-rounds and recorded events a second, every client with compute, upload delay, latency and transfers."""
    file = folder / f"{clients}.npz"
    generator = np.random.default_rng(0)
    np.savez(file, x=generator.normal(size=(64, clients)), y=np.arange(64) % 2)
    link = {"up": "300 Mbps", "down": "300 Mbps", "latency": "5 ms"}
    scenario = vflsim.load(
        {
            "name": "events",
            "data": {"file": str(file), "label": "y", "task": "binary"},
            "partition": {"clients": clients, "by": "columns"},
            "models": {"client": {"kind": "linear", "embedding": 4}, "aggregate": "mean", "server": {"kind": "linear"}},
            "training": {
                "batch": 16,
                "client_optimizer": {"kind": "sgd", "lr": 0.1},
                "server_optimizer": {"kind": "sgd", "lr": 0.1},
            },
            "timing": {
                "server": {"compute": "1 ms", "link": link},
                "clients": {
                    "select": "all",
                    "compute": "2 ms",
                    "link": link,
                    "upload_delay": {"kind": "exponential", "mean": "0.1 s"},
                },
            },
            "protocols": {"wait": {"kind": "synchronous"}},
            "stop": {"rounds": max(2, CLIENT_ROUNDS // clients)},
            "evaluate": {"every": "1000000 s"},
            "record": record,
        }
    )
    data = Data(scenario).of(scenario.training)
    began = time.perf_counter()
    outcome = run_protocol(scenario, "wait", 0, data, timing_only=True)
    seconds = time.perf_counter() - began
    return outcome.info.counts["updates"] / seconds, outcome.info.counts["events"] / seconds


def main() -> None:
    bare = bare_events()
    print(f"bare SimPy: {bare:,.0f} events/s")
    with tempfile.TemporaryDirectory() as folder:
        for clients in (8, 100, 1000):
            for record in ("events", "summary"):
                rounds, events = client_rounds(clients, Path(folder), record)
                print(
                    f"{clients:>5} clients, record: {record:<8} {rounds:>9,.0f} client-rounds/s"
                    f" ({rounds / bare:.3f} of bare events/s), {events:>9,.0f} recorded events/s"
                )


if __name__ == "__main__":
    main()
