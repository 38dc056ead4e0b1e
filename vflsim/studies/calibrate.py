"""Predict the wall-clock time of runs from a few measured rounds."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario.models import Recording, Scenario
from vflsim.scenario.resolve import setting
from vflsim.scenario.stop import Every
from vflsim.simulation.conductor import Progress
from vflsim.simulation.execution import USUAL, Execution
from vflsim.simulation.run import run_protocol
from vflsim.studies.expected import Expectation, expectation
from vflsim.studies.sizes import size_of

BUDGET_S = 1.0
"""Wall-clock seconds for the measured rounds of one protocol; a round that has begun ends."""


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


def study_s(runs_s: Iterable[float], workers: int = 1, start_s: float = 0.0) -> float:
    """Return the seconds that runs take on ``workers`` processes, each of which starts in ``start_s``.

    ``runs_s`` are in starting order: a process that is free takes the next run.
    """
    free = [start_s] * workers
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

    One trial evaluates after every round, and so warms up, too; another evaluates as rarely as the scenario does
    (``expected`` knows), or as ``budget_s`` allows. Their difference tells rounds and evaluations apart. Event by
    event, which a timing-only run on the vectorised path undercuts.
    """
    often = _trial(scenario, name, data, execution, 1, budget_s / 3, timing_only, clock)
    wanted = 1 / max((expected or expectation(scenario, name, data)).evaluations_per_round, 1e-9)
    rarely = often
    if often.intervals and often.spent_s < budget_s:
        # At least the time of a round alone, since the first row takes at least that of an evaluation.
        alone = max(often.round_s - often.rows[0][1], often.round_s / 4, 1e-9)
        every = max(1, int(min(wanted, max(2, budget_s / 3 / alone))))
        rarely = _trial(scenario, name, data, execution, every, budget_s - often.spent_s, timing_only, clock)
    if not rarely.intervals:
        rarely = often
    per_round, per_evaluation = _split(often, rarely)
    resolved = setting(scenario, name, data)
    size = size_of(scenario.protocols[name].protocol, resolved, scenario.record.views)
    return Speed(rarely.startup_s, per_round, per_evaluation, size.bytes)


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
    def rounds_per_row(self) -> float:
        return median(rounds for rounds, _ in self.intervals)

    @property
    def startup_s(self) -> float:
        """Seconds until the first row, and those by which the first rounds are longer than others."""
        if not self.intervals:
            return self.rows[-1][1] if self.rows else float("nan")
        rounds, seconds = self.rows[1][0] - self.rows[0][0], self.rows[1][1] - self.rows[0][1]
        return self.rows[0][1] + max(0.0, seconds - rounds * self.round_s)

    @property
    def spent_s(self) -> float:
        return self.rows[-1][1] if self.rows else 0.0


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
    """Run until ``budget_s`` have passed, or to the end, and evaluate after every so many rounds."""
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
            if len(rows) > 1 and rows[-1][1] >= budget_s:
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


def _split(often: _Trial, rarely: _Trial) -> tuple[float, float]:
    """Return the seconds of a round alone and of an evaluation alone."""
    round_s = rarely.round_s
    if not rarely.intervals or often.rounds_per_row >= rarely.rounds_per_row:
        return round_s, 0.0
    one, several = often.rounds_per_row, rarely.rounds_per_row
    evaluation = min(max(0.0, (often.round_s - round_s) / (1 / one - 1 / several)), several * round_s)
    return round_s - evaluation / several, evaluation
