"""Predict the wall-clock time of runs from a few measured rounds."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from torch import Tensor

from vflsim.learning.batches import Split
from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario.models import Recording, Scenario
from vflsim.scenario.stop import Every
from vflsim.simulation.conductor import Progress
from vflsim.simulation.execution import USUAL, Execution
from vflsim.simulation.run import run_protocol
from vflsim.studies.expected import Expectation, expectation

BUDGET_S = 1.0
"""Wall-clock seconds for the measured rounds of one protocol; those that have begun end."""
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class Speed:
    """Wall-clock seconds of a protocol's runs on this machine, NaN if no round could be measured.

    ``startup_s``: once a run, up to the first server step, initial evaluation included; ``seconds_per_round``: a server
    step with all that belongs to it; ``seconds_per_evaluation``: one row of metrics. ``memory_bytes`` counts features,
    weights with gradients, and what the protocol keeps: less than a process takes.
    """

    startup_s: float
    seconds_per_round: float
    seconds_per_evaluation: float
    memory_bytes: int

    def per_round_s(self, expected: Expectation) -> float:
        """Return the seconds of a round with its share of the evaluations."""
        return self.seconds_per_round + self.seconds_per_evaluation * expected.evaluations_per_round

    def run_s(self, expected: Expectation) -> float:
        """Return the seconds of a run; infinite if only a target or the wall clock ends it, NaN if unknown."""
        return self.startup_s + expected.rounds * self.per_round_s(expected)


def study_s(runs_s: Iterable[float], free_s: Iterable[float] = (0.0,)) -> float:
    """Return the seconds that runs take on processes, each of which is free after so many seconds.

    ``runs_s`` are in starting order: a process that is free takes the next run.
    """
    free = sorted(free_s)
    for run_s in runs_s:
        heapq.heapreplace(free, free[0] + run_s)
    return max(free)


def calibrated(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    expected: Expectation | None = None,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Speed:
    """Measure the first rounds of protocol ``name`` with the first seed, through the real conductor; write nothing.

    Rounds are measured with few rows to evaluate, after a trial that warms up; an evaluation is what the first row of
    all takes longer. The evaluations are as many rounds apart as the scenario's (``expected`` knows), if ``budget_s``
    allows it, since what runs as one tensor call depends on it. Event by event: the vectorised path is faster.
    """

    def trial(data: LoadedData, every: int, budget_s: float) -> _Trial:
        return _trial(scenario, name, data, execution, every, budget_s, timing_only, clock)

    expected = expected or expectation(scenario, name, data)
    few = few_to_evaluate(data)
    measured = trial(few, 1, budget_s / 3)
    if measured.intervals and measured.rows[-1][1] < budget_s:
        fitting = budget_s / 3 / max(measured.round_s, 1e-9)
        every = max(1, int(min(fitting, 1 / max(expected.evaluations_per_round, 1e-9))))
        again = trial(few, every, budget_s * 2 / 3)
        measured = again if again.intervals else measured
    evaluation_s = max(0.0, trial(data, 1, 0.0).first_s - measured.first_s)
    return Speed(measured.startup_s + evaluation_s, measured.round_s, evaluation_s, expected.size.bytes)


def few_to_evaluate(data: LoadedData) -> LoadedData:
    """Return the data with all rows to train on, and few to evaluate."""

    def cut(tensors: Mapping[Split, Tensor]) -> dict[Split, Tensor]:
        return {split: tensor if split == "train" else tensor[:_FEW_ROWS] for split, tensor in tensors.items()}

    present = None if data.present is None else cut(data.present)
    return replace(data.with_joint(cut(data.joint)), labels=cut(data.labels), present=present)


@dataclass(frozen=True, slots=True)
class _Trial:
    """``rows`` of metrics, each as the server steps and the seconds until then; the run began at 0 s."""

    rows: list[tuple[int, float]]

    @property
    def intervals(self) -> list[tuple[int, float]]:
        """Server steps and seconds from row to row; without the first, which has one-off work, if there are others."""
        steps = [(later[0] - before[0], later[1] - before[1]) for before, later in pairwise(self.rows)]
        steps = [(rounds, seconds) for rounds, seconds in steps if rounds]
        return steps[1:] or steps

    @property
    def round_s(self) -> float:
        """Seconds of a round, with its share of an evaluation."""
        return median(seconds / rounds for rounds, seconds in self.intervals) if self.intervals else float("nan")

    @property
    def first_s(self) -> float:
        """Seconds until the initial models have been evaluated."""
        return self.rows[0][1] if self.rows else float("nan")

    @property
    def startup_s(self) -> float:
        """Seconds until the first row, and those by which the first rounds are longer than others."""
        if not self.intervals:
            return self.first_s
        (first, began), (rounds, ended), *_ = self.rows
        return began + max(0.0, ended - began - (rounds - first) * self.round_s)


class _EnoughMeasured(BaseException):
    """Ends a trial. Like Ctrl-C no ``Exception``: a protocol's ``except Exception`` may not eat it."""


def _trial(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    execution: Execution,
    every: int,
    budget_s: float,
    timing_only: bool,
    clock: Callable[[], float],
) -> _Trial:
    """Run until ``budget_s`` have passed, with one row of metrics if they are 0, or else two at least."""
    entry = scenario.protocols[name]
    evaluate = scenario.evaluate_of(name).model_copy(update={"every": Every(amount=every, unit="rounds")})
    changed: dict[str, Any] = {
        "evaluate": evaluate,
        "record": Recording(tables="summary", views=scenario.record.views),
        "protocols": {**scenario.protocols, name: entry.model_copy(update={"evaluate": None})},
    }
    rows: list[tuple[int, float]] = []
    latest: dict[str, float] | None = None
    began = clock()

    def report(progress: Progress) -> None:
        nonlocal latest
        if progress.metrics is not latest:  # a new row, whose values have been computed
            latest = progress.metrics
            rows.append((progress.rounds, clock() - began))
            if rows[-1][1] >= budget_s and (len(rows) > 1 or not budget_s):
                raise _EnoughMeasured

    with suppress(_EnoughMeasured):
        run_protocol(
            scenario.model_copy(update=changed),
            name,
            scenario.seeds[0],
            data,
            timing_only=timing_only,
            report=report,
            execution=execution,
        )
    return _Trial(rows)
