"""How fast the vectorised path is: client-rounds a second of timing-only runs, by protocol and number of clients.

Seconds are those of the processor (one thread): draws, recurrence, metrics and the table of rounds; not the writing of
files. A client-round is a client's part of a round, or an arrival at its own pace. Every client has an exponential
upload delay, all else is constant. Aims: 5 million at 1,000 clients; 400,000 at 100 clients at their own pace.
Run: python benchmarks/vectorised.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import vflsim
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.vectorised import run_vectorised

CLIENT_ROUNDS = 4_000_000
LISTED = 200_000_000
"""Most clients in all lists of ``rounds.parquet``: four bytes each."""
PROTOCOLS: dict[str, Mapping[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "fastest": {"kind": "ignore", "fastest": "N/2"},
    "t-sync, cancel": {"kind": "t_synchronous", "t": "N/2", "cancel": True},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2},
    "flex_vfl": {"kind": "flex_vfl", "local_steps": "1 to 3"},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3},
    "ef_vfl, private": {"kind": "ef_vfl", "labels": "private", "local_steps": 2},
    "vimadmm_j": {"kind": "vimadmm_j", "rho": 2, "local_steps": 2},
    "easter": {"kind": "easter", "blinding": "off"},
    "easter, blinded": {"kind": "easter", "blinding": {"bits": 64, "fraction": 40}},
    "fedbcd, in turn": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    "fedvs": {"kind": "fedvs", "K": 2, "T": "N/4"},
    "fedvs, finished": {"kind": "fedvs", "K": 2, "T": "N/4", "late": "finished"},
    "asynchronous": {"kind": "asynchronous"},
    "t-sync": {"kind": "t_synchronous", "t": "N/2"},
}


def scenario(clients: int, protocol: Mapping[str, Any], rounds: int, folder: Path) -> Scenario:
    """Clients with compute, upload delay, latency and transfers, in ``rounds`` rounds of ``protocol``."""
    file = folder / f"{clients}.npz"
    generator = np.random.default_rng(0)
    active = protocol["kind"] == "easter"
    np.savez(file, x=generator.normal(size=(64, clients + active)), y=np.arange(64) % 2)
    link = {"up": "300 Mbps", "down": "300 Mbps", "latency": "5 ms"}
    return vflsim.load(
        {
            "name": "vectorised",
            "data": {"file": str(file), "label": "y", "task": "binary", "test_fraction": 0.25},
            "partition": {"clients": clients, "by": "columns", **({"active": True} if active else {})},
            "models": {
                **({"active": {"kind": "linear", "embedding": 4}} if active else {}),
                "client": {"kind": "linear", "embedding": 4},
                "aggregate": "concat" if protocol["kind"].startswith("vim") else "mean",
                "server": {"kind": "linear", "bias": False},
            },
            "training": {
                "batch": 16,
                "client_optimizer": {"kind": "sgd", "lr": 0.1},
                "server_optimizer": {"kind": "sgd", "lr": 0.1},
            },
            "timing": {
                "network": "dedicated",
                "server": {"compute": "1 ms", "link": link},
                "clients": {
                    "select": "all",
                    "compute": "2 ms",
                    "link": link,
                    "upload_delay": {"kind": "exponential", "mean": "0.1 s"},
                },
            },
            "protocols": {"it": protocol},
            "stop": {"rounds": rounds},
            "record": "rounds",
            "evaluate": {"every": f"{10 * clients // arrivals_a_step(protocol, clients)} rounds"},
        }
    )


def vectorised_client_rounds(clients: int, protocol: str = "synchronous", client_rounds: int = CLIENT_ROUNDS) -> float:
    """Client-rounds per second of the vectorised path, from the scenario to the tables."""
    said = dict(PROTOCOLS[protocol])
    said |= {key: clients // int(value[2:]) for key, value in said.items() if str(value).startswith("N/")}
    if said["kind"] == "flex_vfl":
        said["local_steps"] = [2, *(1 + client % 3 for client in range(clients))]
    each = arrivals_a_step(said, clients)
    rounds = max(2, min(client_rounds // each, LISTED // clients))
    with tempfile.TemporaryDirectory() as folder:
        made = scenario(clients, said, rounds, Path(folder))
        data = ScenarioData(made).of(made.training)
        began = time.process_time()
        with patient_collector():  # as in every run
            outcome = run_vectorised(made, "it", 0, data)
        seconds = time.process_time() - began
    assert outcome.error is None
    assert outcome.info.counts["rounds"] == rounds
    return each * rounds / seconds


def arrivals_a_step(protocol: Mapping[str, Any], clients: int) -> int:
    """How many clients a server step waits for, or makes begin anew: those whose round it ends."""
    if protocol["kind"] == "asynchronous":
        return 1
    return int(protocol["t"]) if protocol["kind"] == "t_synchronous" and not protocol.get("cancel") else clients


def main() -> None:
    for protocol in PROTOCOLS:
        for clients in (8, 28, 100, 1000, 10_000):
            rate = vectorised_client_rounds(clients, protocol, min(CLIENT_ROUNDS, 100_000 * clients))
            print(f"{protocol:<15} {clients:>6,} clients: {rate / 1e6:6.2f} million client-rounds/s", flush=True)


if __name__ == "__main__":
    main()
