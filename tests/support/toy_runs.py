"""Small invented runs that obey every invariant: t-synchronous steps on independent links, accuracies from a formula.

Independent of the simulator, so that results and figures are tested without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from protocol_facts import protocol_facts

from vflsim.results import Results, RunInfo, RunTables, run_folder, write_file, write_run
from vflsim.results.store.manifest import ManifestWriter

SCENARIO = """\
name: toy
protocols:
  wait: {kind: synchronous}
  ignore: {kind: ignore}
  t-sync: {kind: t_synchronous, t: 4}
  async: {kind: asynchronous}
stop: {time: 120, target: {test_accuracy: 0.9, for: 1 evaluation}}
seeds: [0, 1, 2]
record: events
"""
KINDS = {"wait": "synchronous", "ignore": "ignore", "t-sync": "t_synchronous", "async": "asynchronous"}
EMBED, STEP, LATENCY, TRANSFER, BYTES = 0.02, 0.01, 0.05, 0.1, 8192


def toy_run(
    protocol: str = "t-sync",
    seed: int = 0,
    *,
    horizon: float = 120.0,
    clients: int = 8,
    target: float = 0.9,
    energy: bool = False,
) -> tuple[RunTables, RunInfo]:
    """One run of wait (all clients), ignore (the fast half), t-sync (the first half) or async (one by one)."""
    participants = range(1, (clients // 2 if protocol == "ignore" else clients) + 1)
    together = {"wait": clients, "ignore": clients // 2, "t-sync": clients // 2, "async": 1}[protocol]
    noise = np.random.default_rng([seed, 99])
    draws = {m: np.random.default_rng([seed, m]) for m in participants}
    mean = {m: 0.1 if m <= clients // 2 else 2 + 4 * (m - clients // 2) / clients for m in participants}
    events: list[tuple] = []
    count: dict[tuple[str, str], int] = {}

    def activity(start, seconds, party, kind, number, peer=None, size=0, drawn=np.nan, sent=np.nan) -> float:
        index = count.get((party, kind), 0)
        count[party, kind] = index + 1
        events.append((start, start + seconds, party, kind, number, peer, size, index, drawn, sent, "done"))
        return start + seconds

    def message(start, sender, receiver, kind, number) -> float:
        begins = activity(start, LATENCY, sender, f"latency.{sender}→{receiver}", number, receiver, drawn=LATENCY)
        return activity(begins, TRANSFER, sender, f"transfer.{kind}", number, receiver, BYTES, sent=start)

    def upload(m, now, number) -> None:
        name = f"client-{m}"
        now = activity(now, EMBED, name, "compute.embed", number, drawn=EMBED)
        delay = draws[m].exponential(mean[m])
        now = activity(now, delay, name, "upload", number, drawn=delay)
        heapq.heappush(arrivals, (message(now, name, "server", "embedding", number), m))

    arrivals: list[tuple[float, int]] = []
    for m in participants:
        upload(m, 0.0, 1)
    rounds, steps, ages, last = [], [], [], dict.fromkeys(participants, 0)
    start = now = 0.0
    number, learnt = 0, 0.0
    while now < horizon:
        fresh = [heapq.heappop(arrivals) for _ in range(together)]
        number += 1
        ready = max(now, fresh[-1][0])
        now = activity(ready, STEP, "server", "compute.server_step", number, drawn=STEP)
        used = sorted(m for _, m in fresh)
        last |= dict.fromkeys(used, number)
        learnt += len(used) / clients
        ceiling = 0.85 if protocol == "ignore" else 0.97
        accuracy = ceiling - (ceiling - 0.1) * np.exp(-learnt / 7) + noise.normal(0, 0.004)
        rounds.append((number, start, now, used, [m for m in participants if m not in used], used))
        steps.append((now, accuracy))
        ages.append([number - last[m] for m in participants])
        start = now
        for m in used:
            name = f"client-{m}"
            got = message(now, "server", name, "gradient", number)
            upload(m, activity(got, EMBED, name, "compute.client_step", number, drawn=EMBED), number + 1)
    return _cut(protocol, seed, events, rounds, steps, ages, participants, horizon, target, energy)


def _cut(
    protocol, seed, events, rounds, steps, ages, participants, horizon, target, energy
) -> tuple[RunTables, RunInfo]:
    """End the run at the first evaluation (every 2 s) that reaches the target, or at the horizon."""
    every = np.arange(0.0, horizon + 1, 2.0)
    done = np.array([end for end, _ in steps])
    taken = np.searchsorted(done, every, side="right")
    accuracy = np.array([0.1, *(value for _, value in steps)])[taken]
    reached = np.flatnonzero(accuracy >= target)
    rows = reached[0] + 1 if len(reached) else len(every)
    end = float(every[rows - 1])
    cut = [
        (s, min(e, end), *who, size if e <= end else int(size * (end - s) / (e - s)), *draw, outcome)
        for s, e, *who, size, i, drawn, sent, o in sorted(events, key=lambda event: event[:4])
        if s < end and (outcome := o if e <= end else "unfinished") and (draw := (i, drawn, sent))
    ]
    names = ("start_s", "end_s", "party", "kind", "round", "peer", "bytes", "index", "drawn_s", "sent_s", "outcome")
    columns = {name: list(column) for name, column in zip(names, zip(*cut, strict=True), strict=True)}
    metrics = {"time_s": every[:rows], "round": taken[:rows], "test_loss": 2.5 * (1 - accuracy[:rows])}
    updates = np.sort([event[1] for event in cut if event[3] == "compute.client_step" and event[-1] == "done"])
    metrics["updates"] = np.searchsorted(updates, every[:rows], side="right")
    metrics |= {"test_accuracy": accuracy[:rows], "train_loss": metrics["test_loss"]}
    metrics["epsilon"] = np.sqrt(metrics["round"] // 3)
    transfers = [event for event in cut if event[3].startswith("transfer.")]
    for name, up in (("bytes_up", True), ("bytes_down", False)):
        own = [event for event in transfers if (event[5] == "server") is up]
        metrics[name] = np.array([sum(event[6] for event in own if event[1] <= t) for t in every[:rows]])
    metrics["bytes_peer"] = np.zeros(rows, dtype=int)
    if energy:
        metrics["energy_j"] = 3.5 * metrics["time_s"]
    for age in ("row_age", "client_age"):
        since = [ages[before:until] for before, until in pairwise([0, *taken[:rows]])]  # the row before
        metrics[f"{age}_mean"] = [float(np.mean(seen)) if seen else np.nan for seen in since]
        metrics[f"{age}_max"] = [float(np.max(seen)) if seen else np.nan for seen in since]
    kept = rounds[: taken[rows - 1]]
    names = ("round", "start_s", "end_s", "used", "missing", "fresh")
    table = {name: [row[k] for row in kept] for k, name in enumerate(names)}
    info = RunInfo(
        scenario="toy",
        protocol=protocol,
        seed=seed,
        status="finished",
        stop_reason="target" if len(reached) else "time",
        wall_clock_s=0.5,
        participants=tuple(participants),
        max_staleness=10_000,
        staleness_bounds="client_age",
        counts={"rounds": len(kept)},
        steps=("compute.client_step",),
        **protocol_facts(KINDS[protocol]),
    )
    return RunTables(metrics, table, columns), info


def toy_answers(protocol: str, seed: int) -> pa.Table:
    """Answers under deadlines of one run: the more, the later, and all without a deadline (after 2 s at most)."""
    best = (0.85 if protocol == "ignore" else 0.97) - 0.01 * seed
    deadlines = np.array([0.1, 0.5, 1.0, np.inf])
    waited = np.minimum(deadlines, 1.5 if protocol == "ignore" else 2.0)
    whole = (waited / waited.max()) ** 2
    accuracy = 0.1 + (best - 0.1) * whole
    return pa.table({
        "deadline_s": deadlines, "queries": [10] * 4, "answer_s_mean": 0.9 * waited, "answer_s_max": waited,
        "replies_mean": 8 * whole, "embeddings_mean": 8 * whole, "complete": whole, "test_loss": 2.5 * (1 - accuracy),
        "test_accuracy": accuracy,
    })  # fmt: skip


def toy_results(
    folder: Path,
    *,
    seeds: int = 3,
    record: str = "events",
    answers: bool = False,
    energy: bool = False,
    named: Callable[[str], str] = str,
    **options,
) -> Path:
    """A whole results folder of the four protocols; with ``answers`` under deadlines, and ``energy``, if asked for.

    ``named`` gives the scenario and the protocols other names.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    text = SCENARIO.replace("seeds: [0, 1, 2]", f"seeds: {[*range(seeds)]}").replace(
        "name: toy", f"name: {named('toy')}"
    )
    for protocol in KINDS:
        text = text.replace(f"  {protocol}:", f"  {named(protocol)}:")
    write_file(folder / "scenario.yaml", text)
    for protocol in ("wait", "ignore", "t-sync", "async"):
        for seed in range(seeds):
            tables, info = toy_run(protocol, seed, energy=energy, **options)
            extra = {"answers": toy_answers(protocol, seed)} if answers else {}
            info = info.model_copy(update={"scenario": named("toy"), "protocol": named(protocol)})
            write_run(
                run_folder(folder, named(protocol), seed), tables, {"server.bias": torch.ones(2)}, info, record, extra
            )
    list_runs(folder)
    return folder


def list_runs(folder: Path) -> None:
    """Write the manifest of a results folder, whatever is in it."""
    manifest = ManifestWriter(folder)
    manifest.begin([(run.protocol, run.seed) for run in Results.open(folder).runs], [])
    manifest.finish(())
