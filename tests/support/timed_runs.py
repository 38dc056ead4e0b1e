"""Results of which nothing matters but how long each round lasted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from protocol_facts import protocol_facts

from vflsim.results import RunInfo, RunTables, run_folder, write_file, write_run


def write_timed(folder: Path, runs: Mapping[str, Mapping[int, np.ndarray]], **kinds: str) -> Path:
    """A results folder with ``runs[protocol][seed]``, the durations (rounds,) of a run in seconds.

    ``kinds``: the kind of each protocol, default synchronous.
    """
    protocols = ", ".join(f"{name}: {{kind: {kinds.get(name, 'synchronous')}}}" for name in runs)
    write_file(folder / "scenario.yaml", f"name: timed\nprotocols: {{{protocols}}}\nstop: {{rounds: 9}}\n")
    for protocol, seeds in runs.items():
        for seed, lasted in seeds.items():
            info = _info(protocol, seed, kinds.get(protocol, "synchronous"))
            write_run(run_folder(folder, protocol, seed), _tables(np.asarray(lasted)), {}, info)
    return folder


def _tables(lasted: np.ndarray) -> RunTables:
    ends, count = np.cumsum(lasted), len(lasted)
    metrics: dict[str, list[float]] = {key: [0, 0] for key in ("updates", "bytes_up", "bytes_down", "bytes_peer")}
    metrics |= {"time_s": [0.0, float(ends[-1])], "round": [0, count], "train_loss": [np.nan, np.nan]}
    metrics |= {f"{age}_{what}": [np.nan] * 2 for age in ("row_age", "client_age") for what in ("mean", "max")}
    rounds = {"round": np.arange(count), "start_s": np.concatenate([[0.0], ends[:-1]]), "end_s": ends}
    return RunTables(metrics, rounds | {"used": [[1]] * count, "missing": [[]] * count, "fresh": [[1]] * count})


def _info(protocol: str, seed: int, kind: str) -> RunInfo:
    facts = {"status": "finished", "wall_clock_s": 1.0, "participants": (1,), **protocol_facts(kind)}
    return RunInfo(scenario="timed", protocol=protocol, seed=seed, **facts)
