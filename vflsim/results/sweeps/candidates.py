"""The settings of a sweep that compete: for each protocol those whose runs differ, with one number from every run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from vflsim.intervals import step_values
from vflsim.results.read import Results
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.costs import metrics_by_run
from vflsim.results.statistics.estimates import SeedSample
from vflsim.results.sweeps import Sweep
from vflsim.timing.floats import Floats
from vflsim.world.run_tables import ENERGY

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


class SweepMeasurements:
    """The runs of a sweep, measured once for all comparisons."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every protocol's candidates, in the order of protocols and points."""
        groups: dict[str, dict[object, list[int]]] = {name: {} for name in self.sweep.protocols}
        for position, results in enumerate(self.sweep.results):
            for name in results.protocols:
                groups[name].setdefault(_runs(results, name) or position, []).append(position)
        return [Candidate(name, tuple(each)) for name, group in groups.items() for each in group.values()]

    @cached_property
    def references(self) -> frozenset[str]:
        """The protocols that are references: they do not compete with the others."""
        return frozenset(run.protocol for study in self.sweep.results for run in study.runs if run.info.reference)

    def to_target(self, cost: str) -> Competition | None:
        """Compare costs until the first target; None without a target, or where runs do not count this cost."""
        samples: dict[Candidate, SeedSample] = {}
        lost = []
        for candidate in self.candidates:
            if self._failed(candidate):
                lost.append(candidate)
            elif (sample := self._costs[candidate.positions[0]].get((cost, candidate.protocol))) is not None:
                samples[candidate] = sample
        return Competition(cost, samples, tuple(lost)) if samples else None

    def after_the_same(self, cost: str, protocols: set[str]) -> Competition | None:
        """Compare the main metric of ``protocols`` after the largest amount that all their runs have spent.

        Between evaluations a metric keeps its last value. None where nothing was evaluated, counted or spent.
        """
        curves: dict[Candidate, dict[int, tuple[Floats, Floats]]] = {}
        lost = []
        for candidate in self.candidates:
            if candidate.protocol not in protocols:
                continue
            if self._failed(candidate):
                lost.append(candidate)
            elif by_seed := self._curves[candidate.positions[0]].get((cost, candidate.protocol)):
                curves[candidate] = by_seed
        ends = [float(spent[-1]) for by_seed in curves.values() for spent, _ in by_seed.values()]
        if not ends or not (least := min(ends)) > 0:
            return None
        at = np.array([least])
        samples = {
            candidate: SeedSample.exact({seed: float(step_values(*curve, at)[0]) for seed, curve in by_seed.items()})
            for candidate, by_seed in curves.items()
        }
        return Competition(cost, samples, tuple(lost), self._metric or "", least)

    @cached_property
    def _metric(self) -> str | None:
        return next((study.main_metric for study in self.sweep.results if study.evaluated), None)

    @cached_property
    def _costs(self) -> list[dict[tuple[str, str], SeedSample]]:
        """The costs until the first target of every point's protocols."""
        return [dict(_costs_of(outcomes(study, self.sweep.targets))) for study in self.sweep.results]

    @cached_property
    def _curves(self) -> list[dict[tuple[str, str], dict[int, tuple[Floats, Floats]]]]:
        """By point, cost and protocol, and by seed: what a run had spent at each evaluation, and its metric there."""
        return [_curves_of(study, self._metric) for study in self.sweep.results]

    def _failed(self, candidate: Candidate) -> bool:
        return any(run.protocol == candidate.protocol for run in self.sweep.results[candidate.positions[0]].failed)


def _runs(results: Results, protocol: str) -> tuple[str, ...] | None:
    """Return what identifies a protocol's runs at a point: the digests of their metrics; None if one has none."""
    files = [(run.info.files.get("metrics.parquet"), run.seed) for run in results.runs if run.protocol == protocol]
    digests = [f"{facts.sha256} {seed}" for facts, seed in files if facts is not None]
    return tuple(digests) if len(digests) == len(files) else None


def _costs_of(measured: pd.DataFrame) -> Iterator[tuple[tuple[str, str], SeedSample]]:
    targets = measured["target"].dropna().unique()[:1]
    rows = measured[measured["target"].isin(targets)]
    for (measure, protocol), runs in rows.groupby(["measure", "protocol"], sort=False, observed=True):
        yield (str(measure).removesuffix("_to_target"), str(protocol)), SeedSample.of(runs)


def _curves_of(results: Results, metric: str | None) -> dict[tuple[str, str], dict[int, tuple[Floats, Floats]]]:
    curves: dict[tuple[str, str], dict[int, tuple[Floats, Floats]]] = {}
    if metric is None or metric not in results.metrics:
        return curves
    for (protocol, seed), rows in metrics_by_run(results).items():
        for cost, column in COSTS.items():
            known = rows[rows[metric].notna() & rows[column].notna()] if column in rows else rows[:0]
            if len(known):
                curve = known[column].to_numpy(np.float64), known[metric].to_numpy(np.float64)
                curves.setdefault((cost, str(protocol)), {})[int(str(seed))] = curve
    return curves
