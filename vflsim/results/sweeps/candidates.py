"""The settings of a sweep that compete: for each protocol those whose runs differ, with one number from every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from vflsim.results.read import Results
from vflsim.results.statistics.means import step_values
from vflsim.results.statistics.selection import SeedSample
from vflsim.results.statistics.summary import outcomes
from vflsim.results.store.schema import ENERGY
from vflsim.results.sweeps.sweep import Sweep

COSTS = {"time": "time_s", "bytes": "bytes", "energy": ENERGY}
"""What runs spend, and its column in the metrics (bytes: of all three together)."""
UNITS = {"time": "s", "bytes": "B", "energy": "J"}


class Candidate(NamedTuple):
    """A protocol at some points of a sweep, by their positions, at which it has the same runs."""

    protocol: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Competition:
    """What is compared: costs until the target, or the main metric after as much of a cost as all have spent.

    ``after`` is that amount (None: costs until the target), ``metric`` the metric. ``ruled_out`` are candidates of
    which a run failed or diverged.
    """

    cost: str
    samples: Mapping[Candidate, SeedSample]
    ruled_out: tuple[Candidate, ...]
    metric: str = ""
    after: float | None = None


def candidates_of(sweep: Sweep) -> list[Candidate]:
    """List every protocol's candidates, in the order of protocols and points."""
    found: dict[str, dict[object, list[int]]] = {name: {} for name in sweep.protocols}
    for position, results in enumerate(sweep.results):
        for name in results.protocols:
            found[name].setdefault(_runs(results, name) or position, []).append(position)
    return [Candidate(name, tuple(each)) for name, own in found.items() for each in own.values()]


def references_of(sweep: Sweep) -> set[str]:
    """Name the protocols that are references: they do not compete with the others."""
    return {run.protocol for found in sweep.results for run in found.runs if run.info.reference}


def to_target(sweep: Sweep, cost: str) -> Competition | None:
    """Compare costs until the first target; None without a target, or where runs do not count this cost."""
    samples: dict[Candidate, SeedSample] = {}
    lost = []
    measured = [outcomes(found, sweep.targets) for found in sweep.results]
    for candidate in candidates_of(sweep):
        own = measured[candidate.positions[0]]
        own = own[(own["measure"] == f"{cost}_to_target") & (own["protocol"] == candidate.protocol)]
        own = own[own["target"] == (own["target"].iloc[0] if len(own) else None)]
        if _failed(sweep, candidate):
            lost.append(candidate)
        elif len(own):
            seeds, values = tuple(own["seed"].tolist()), own["value"].to_numpy(np.float64)
            samples[candidate] = SeedSample(seeds, values, own["censored"].to_numpy(np.bool_))
    return Competition(cost, samples, tuple(lost)) if samples else None


def after_the_same(sweep: Sweep, cost: str, protocols: set[str]) -> Competition | None:
    """Compare the main metric of ``protocols`` after the largest amount that all their runs have spent.

    Between evaluations a metric keeps its last value. None where nothing was evaluated, counted or spent.
    """
    metric = next((found.main_metric for found in sweep.results if found.evaluated), None)
    curves: dict[Candidate, dict[int, tuple[np.ndarray, np.ndarray]]] = {}
    lost = []
    for candidate in candidates_of(sweep) if metric else ():
        if candidate.protocol not in protocols:
            continue
        if _failed(sweep, candidate):
            lost.append(candidate)
        elif own := dict(_curves(sweep.results[candidate.positions[0]], candidate.protocol, cost, str(metric))):
            curves[candidate] = own
    ends = [float(spent[-1]) for own in curves.values() for spent, _ in own.values()]
    if not ends or not (least := min(ends)) > 0:
        return None
    samples = {
        candidate: SeedSample.exact(
            {seed: float(step_values(*curve, np.array([least]))[0]) for seed, curve in own.items()}
        )
        for candidate, own in curves.items()
    }
    return Competition(cost, samples, tuple(lost), str(metric), least)


def _runs(results: Results, protocol: str) -> tuple[str, ...] | None:
    """Return what identifies a protocol's runs at a point: the digests of their metrics; None if one has none."""
    files = [(run.info.files.get("metrics.parquet"), run.seed) for run in results.runs if run.protocol == protocol]
    digests = [f"{facts.sha256} {seed}" for facts, seed in files if facts is not None]
    return tuple(digests) if len(digests) == len(files) else None


def _failed(sweep: Sweep, candidate: Candidate) -> bool:
    return any(run.protocol == candidate.protocol for run in sweep.results[candidate.positions[0]].failed)


def _curves(
    results: Results, protocol: str, cost: str, metric: str
) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray]]]:
    """Yield the seed of every finished run, with what it had spent at each evaluation, and its metric there."""
    frame = results.metrics.assign(bytes=lambda m: m["bytes_up"] + m["bytes_down"] + m["bytes_peer"])
    column = COSTS[cost]
    if column not in frame or metric not in frame:
        return
    frame = frame[(frame["protocol"] == protocol) & frame[metric].notna() & frame[column].notna()]
    for seed, own in frame.groupby("seed", sort=True):
        assert isinstance(own, pd.DataFrame)
        yield int(str(seed)), (own[column].to_numpy(np.float64), own[metric].to_numpy(np.float64))
