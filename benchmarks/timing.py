"""How fast timing is: the event path, the vectorised path, fair links, and runs of a million clients.

One process, one thread. Rates are per second of processor time, the best of a few; ratios to bare SimPy within one run
are what carries over to another machine. A client-round is a computation, an upload delay, a message up, a message down
and another computation: 7 recorded events.
Run: python benchmarks/timing.py [events | vectorised | fair | contended | huge | paths …] (default: everything)
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import fair_sharing
import numpy as np
import simpy
import vectorised

import vflsim
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised import run_vectorised
from vflsim.studies.runs.simulator_choice import PathWish
from vflsim.studies.study import run_study
from vflsim.world.record import Events

REPEATS = 3
CLIENT_ROUNDS = 20_000
CONTENDED = 10_000, 100
"""Clients and rounds of the largest run with links that all share."""
HUGE, MANY = 1_000_000, 100_000
"""Clients of the longest runs by arrays, and event by event."""
OWN_DELAYS = {"kind": "exponential", "mean": "(100 + 100*i/N) ms"}
CONCAT: dict[str, Any] = {"models.aggregate": "concat", "models.server": {"kind": "linear", "bias": False}}
ACTIVE: dict[str, Any] = {"models.active": {"kind": "linear", "embedding": 4}, "partition.active": True}
RECURRENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "synchronous": ({"kind": "synchronous"}, {}),
    "fastest": ({"kind": "ignore", "fastest": "N/2"}, {}),
    "deadline": ({"kind": "ignore", "deadline": "0.3 s"}, {}),
    "exclude": ({"kind": "ignore", "exclude": "N/2+1..N"}, {}),
    "t-sync, cancel": ({"kind": "t_synchronous", "t": "N/2", "cancel": True}, {}),
    "centralised": ({"kind": "centralised"}, {}),
    "vimsgd": ({"kind": "vimsgd"}, CONCAT),
    "fdml": ({"kind": "fdml"}, CONCAT),
    "pyvertical": ({"kind": "pyvertical"}, CONCAT | ACTIVE),
    "agg_vfl": ({"kind": "agg_vfl"}, ACTIVE),
    "fedbcd": ({"kind": "fedbcd", "local_steps": 2}, {}),
    "fedbcd, in turn": ({"kind": "fedbcd", "local_steps": 2, "order": "sequential"}, {}),
    "laser_vfl": ({"kind": "laser_vfl"}, {}),
    "bs_vfl": ({"kind": "bs_vfl", "window": 2, "local_steps": 2}, {}),
    "pubsub_vfl": ({"kind": "pubsub_vfl", "workers": {"active": 1, "passive": 1}, "capacity": 1}, {}),
    "celu_vfl": ({"kind": "celu_vfl", "cache": 2, "uses": 3}, {}),
    "easter": ({"kind": "easter", "blinding": "off"}, ACTIVE),
    "local": ({"kind": "local"}, ACTIVE),
    "t-sync": ({"kind": "t_synchronous", "t": "N/2"}, {}),
    "asynchronous": ({"kind": "asynchronous"}, {}),
    "czofo": ({"kind": "czofo"}, {}),
    "dpzv": ({"kind": "dpzv", "noise": {"clip": 1, "delta": 1e-5, "noise_multiplier": 1}}, {}),
    "he_lr": ({"kind": "he_lr"}, {}),
    "ef_vfl": ({"kind": "ef_vfl", "labels": "private", "local_steps": 2}, {}),
    "vimadmm": ({"kind": "vimadmm", "rho": 2, "local_steps": 2}, CONCAT),
    "vimadmm_j": ({"kind": "vimadmm_j", "rho": 2, "local_steps": 2}, CONCAT),
}
"""Every protocol with a recurrence, with what else it needs."""
EVENTS_ALONE = {"few_shot"}
"""Protocols without a recurrence: their rounds are not alike."""
TOO_MANY_VALUES = {"c_vfl", "fedvs", "flex_vfl", "secureboost"}
"""Protocols with too many values for a million clients: each gets all embeddings, or a share from each other one, or
sends histograms of all its features."""


def scenario(
    clients: int, rounds: int, folder: Path, record: str = "events", network: str = "fair", **timing: Any
) -> Scenario:
    """Synchronous rounds of clients with compute, an exponential upload delay, latencies and transfers."""
    file = folder / f"{clients}.npz"
    if not file.exists():
        generator = np.random.default_rng(0)
        np.savez(file, x=generator.normal(size=(64, clients)), y=np.arange(64) % 2)
    link = {"up": "300 Mbps", "down": "300 Mbps", "latency": "5 ms"}
    delay = {"kind": "exponential", "mean": "0.1 s"}
    everybody = {"select": "all", "compute": "2 ms", "link": link, "upload_delay": delay, **timing}
    step = {"kind": "sgd", "lr": 0.1}
    return vflsim.load(
        {
            "name": "timing",
            "data": {"file": str(file), "label": "y", "task": "binary"},
            "partition": {"clients": clients, "by": "columns"},
            "models": {"client": {"kind": "linear", "embedding": 4}, "aggregate": "mean", "server": {"kind": "linear"}},
            "training": {"batch": 16, "client_optimizer": step, "server_optimizer": step},
            "timing": {"network": network, "server": {"compute": "1 ms", "link": link}, "clients": everybody},
            "protocols": {"wait": {"kind": "synchronous"}},
            "stop": {"rounds": rounds},
            "evaluate": {"every": "1000000 s"},
            "record": record,
        }
    )


def best(once: Callable[[], float]) -> float:
    """The highest of a few rates: what else the machine does only ever lowers one."""
    return max(once() for _ in range(REPEATS))


def bare_simpy(count: int = 300_000) -> float:
    """Events a second of SimPy alone: one process that waits."""
    environment = simpy.Environment()

    def tick() -> simpy.events.ProcessGenerator:
        for _ in range(count):
            yield environment.timeout(1.0)

    environment.process(tick())
    began = time.process_time()
    environment.run()
    return count / (time.process_time() - began)


def client_rounds(
    clients: int,
    folder: Path,
    record: str,
    path: PathWish = "event",
    network: str = "fair",
    many: int = CLIENT_ROUNDS,
    protocol: dict[str, Any] | None = None,
) -> float:
    """Client-rounds a second of a whole run, its tables included; NaN where arrays leave it to events."""
    made = scenario(clients, max(2, many // clients), folder, record, network)
    if protocol is not None:
        made = vflsim.load({**made.document.raw, "protocols": {"wait": protocol}, "stop": {"updates": many}})
    data = ScenarioData(made).of(made.training)

    def once() -> float:
        began = time.process_time()
        if path == "vectorised":
            outcome = run_vectorised(made, "wait", 0, data)
        else:
            outcome = run_protocol(made, "wait", 0, data, timing_only=True)
        if outcome.error is not None:
            return math.nan
        return outcome.info.counts["updates"] / (time.process_time() - began)

    return best(once)


def bytes_per_event(count: int = 1_000_000) -> float:
    """Bytes of memory that a recorded event takes while the run goes on."""
    tracemalloc.start()
    events = Events()
    before = tracemalloc.get_traced_memory()[0]
    for k in range(count):
        events.add(0.5 * k, 0.5 * k + 0.1, k % 1000, "transfer.embedding", k, 0, 1024, k, 0.1)
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return size / count


def event_path() -> None:
    """Client-rounds and memory of the event path, against bare SimPy in the same process."""
    bare = best(bare_simpy)
    print(f"bare SimPy: {bare:,.0f} events/s")
    with tempfile.TemporaryDirectory() as folder:
        for clients in (8, 100, 1000):
            for record in ("events", "summary"):
                rate = client_rounds(clients, Path(folder), record)
                print(
                    f"event path, {clients:>5,} clients, record: {record:<8} {rate:>8,.0f} client-rounds/s,"
                    f" {7 * rate / bare:.2f} events to one of bare SimPy"
                )
            paths: tuple[PathWish, ...] = ("event", "vectorised")
            by_events, arrays = (client_rounds(clients, Path(folder), "events", path, "dedicated") for path in paths)
            print(
                f"events by arrays, {clients:>5,} clients, dedicated links: {arrays / by_events:.1f} of the event path"
            )
    print(f"memory: {bytes_per_event():.0f} bytes an event")


def contended() -> None:
    """Client-rounds of links that all clients share, or queue for, as parts of those without contention."""
    paths: tuple[tuple[PathWish, int], ...] = ("event", CLIENT_ROUNDS), ("vectorised", 10 * CLIENT_ROUNDS)
    networks = ("dedicated", "fair", "fifo")
    with tempfile.TemporaryDirectory() as folder:
        for name, clients, (path, many) in product(("synchronous", "t-sync", "asynchronous"), (100, 1000), paths):
            said = None if name == "synchronous" else RECURRENT[name][0]
            rates = [client_rounds(clients, Path(folder), "summary", path, each, many, said) for each in networks]
            parts = ", ".join(
                f"{network} left to events" if math.isnan(rate) else f"{network} {rate:,.0f} ({rate / rates[0]:.2f})"
                for network, rate in zip(networks, rates, strict=True)
            )
            print(f"{name}, {path} path, {clients:>5,} clients, client-rounds/s: {parts}", flush=True)
        made = scenario(*CONTENDED, Path(folder), "summary", "fair")
        data, began = ScenarioData(made).of(made.training), time.process_time()
        run_vectorised(made, "wait", 0, data)
        seconds = time.process_time() - began
        print(f"vectorised path, fair, {CONTENDED[0]:,} clients, {CONTENDED[1]} rounds: {seconds:.0f} s")


def huge(separate: bool = True) -> None:
    """Ten rounds of very many clients, from the scenario to the written run; each run in a process of its own."""
    shown = [f"{name} alike" for name in RECURRENT] + ["synchronous differing"]
    for what in [*shown, "event"]:
        if separate:  # for the memory of each
            subprocess.run([sys.executable, __file__, "--one", what], check=True)
        else:
            one_huge(what)


def one_huge(what: str) -> None:
    """Run one of the protocols, with clients that are alike or differ in their upload delays, or the event path."""
    name, _, sort = what.rpartition(" ") if what != "event" else ("", "", "differing")
    clients, said = (HUGE, RECURRENT[name]) if name else (MANY, RECURRENT["synchronous"])
    own = {} if sort == "alike" else {"upload_delay": OWN_DELAYS}
    path: PathWish = "vectorised" if name else "event"
    network, record = ("dedicated", "rounds") if name else ("fifo", "events")
    with tempfile.TemporaryDirectory() as folder:
        made = scenario(clients + bool(said[1].get("partition.active")), 10, Path(folder), **own)
        raw = {**made.document.raw, "protocols": {"it": said[0]}}
        changes = {"timing.network": network, "record": record, "partition.clients": clients, **said[1]}
        began, used = time.monotonic(), time.process_time()
        made = vflsim.load(raw, changes)
        loaded, read = time.monotonic(), time.process_time()
        run_study(made, Path(folder) / "run", timing_only=True, path=path)
        ended, done = time.monotonic(), time.process_time()
    print(
        f"{clients:,} clients, 10 rounds, {path} path, {name or 'synchronous'}, {sort}, {network}, record: {record}:"
        f" {ended - began:.0f} s, {done - used:.0f} s of CPU"
        f" (scenario {read - used:.0f} s, data, run and writing {done - read:.0f} s; wall {loaded - began:.0f} s),"
        f" at most {getrusage(RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB",
        flush=True,
    )


def paths() -> None:
    """Run 1,000 of a million clients by arrays and event by event, with the same seed, and compare their tables."""
    took_part = min(1_000, HUGE // 2)
    for sort, own in (("alike", {}), ("differing", {"upload_delay": OWN_DELAYS})):
        with tempfile.TemporaryDirectory() as folder:
            made = scenario(HUGE, 10, Path(folder), "rounds", **own)
            some = {"it": {"kind": "ignore", "exclude": f"{took_part + 1}..N"}}
            made = vflsim.load({**made.document.raw, "protocols": some}, {"timing.network": "dedicated"})
            data = ScenarioData(made).of(made.training_of("it"))
            first = run_vectorised(made, "it", 0, data).tables
            second = run_protocol(made, "it", 0, data, timing_only=True).tables
        pairs = ((first.metrics, second.metrics), (first.rounds, second.rounds))
        equal = all(a.to_pandas().equals(b.to_pandas()) for a, b in pairs)
        print(
            f"{took_part:,} of {HUGE:,} clients, {sort}: tables of both paths {'equal' if equal else 'DIFFER'}",
            flush=True,
        )


PARTS: dict[str, Callable[[], None]] = {
    "events": event_path,
    "vectorised": vectorised.main,
    "fair": fair_sharing.main,
    "contended": contended,
    "huge": huge,
    "paths": paths,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--one", metavar="RUN", help="one of the runs of huge, in this process")
    given = parser.parse_args()
    if given.one is not None:
        one_huge(given.one)
        return
    parts = given.parts
    if strange := [part for part in parts if part not in PARTS]:
        parser.error(f"no part {strange[0]!r}; choose from {', '.join(PARTS)}")
    for part in parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
