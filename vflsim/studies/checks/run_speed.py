"""Measure the speed of a scenario's protocols in a few rounds, and predict how long their runs take.

Seconds count only while the run's thread has a processor, so other programs do not lengthen them. They equal the
wall-clock time of a run with a core to itself. On a GPU, for which a processor only waits, the wall clock counts.
"""

from __future__ import annotations

import gc
import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from torch import Tensor

from vflsim.errors import VflsimError
from vflsim.learning.batches import Split
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.learners.embedding_table import reusing_memory
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.evaluate import Every
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import USUAL, Execution, patient_collector
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks.ending import ending_s
from vflsim.studies.checks.expected import Expectation, expectation

BUDGET_S = 1.0
"""Budget in seconds for the measured rounds of one protocol; rounds that have begun still complete."""
ALL_S = 2.0
"""Budget in seconds for the measured rounds of all protocols of a scenario."""
FEWEST, ENOUGH = 1, 3
"""The fewest intervals without one-off work that a trial measures, if the run has that many.

With this many a trial can tell which of them another program disturbed; it measures fewer if they take longer than
``BUDGET_S``.
"""
_FEW_ROWS = 64
_SHORT_ROUND = 0.05
"""The largest share of the budget that a round may take for the end of a run to be measured."""
_STILL_ROUNDS = 3
"""The fewest rounds of a trial in which no time passes."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of a protocol's runs on a core of this machine, NaN if no round could be measured.

    ``startup_s``: once a run: up to the first server step, with the initial evaluation and what only the first rounds
    do, and from the last row of metrics until the results are written; ``seconds_per_round``: a server step with all
    that belongs to it; ``seconds_per_evaluation``: one row of metrics. ``memory_bytes``: the estimate of ``Size``.
    """

    startup_s: float
    seconds_per_round: float
    seconds_per_evaluation: float
    memory_bytes: int

    def per_round_s(self, expected: Expectation) -> float:
        """Return the seconds of a round, its share of the evaluations included."""
        return self.seconds_per_round + self.seconds_per_evaluation * expected.evaluations_per_round

    def run_s(self, expected: Expectation) -> float:
        """Return the seconds of a run; infinite if only a target or the wall clock ends it, NaN if unknown."""
        if not math.isfinite(expected.rounds):
            return self.startup_s + expected.rounds * self.per_round_s(expected)
        evaluations = expected.rounds * expected.evaluations_per_round
        last = 0.0 if math.isnan(evaluations) else math.ceil(evaluations - 1e-9) - evaluations  # the run's end is one
        return self.startup_s + expected.rounds * self.per_round_s(expected) + last * self.seconds_per_evaluation


def study_s(runs_s: Iterable[float], free_s: Iterable[float] = (0.0,)) -> float:
    """Return the seconds that runs take on processes, given the seconds after which each process is free.

    ``runs_s`` are in starting order: a free process takes the next run.
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
    clock: Callable[[], float] | None = None,
) -> Speed:
    """Measure the first rounds of protocol ``name`` with the first seed, through the real conductor; keep no files.

    Three trials: rounds one by one with few rows to evaluate, which warms up; the same with evaluations as many rounds
    apart as the scenario's (``expected`` knows), as far as ``budget_s`` allows it, since what runs as one tensor call
    depends on it; and rounds one by one with all rows, for what an evaluation takes longer. Each goes on until it has
    intervals without one-off work. What follows the last round is measured, too, if rounds are short: else it is not
    worth a round. ``clock`` gives seconds. Event by event: the vectorised path is faster.
    """
    clock = clock or (time.thread_time if execution.device == "cpu" else time.perf_counter)
    expected = expected or expectation(scenario, name, data)
    still = expected.step_s == 0  # the clock stands still, and rows of metrics wait for an instant to end

    def trial(data: LoadedData, every: int, budget_s: float, patience_s: float = math.inf) -> _Trial:
        rounds = max(every, _STILL_ROUNDS) if still else None
        return _trial(scenario, name, data, execution, every, budget_s, patience_s, timing_only, clock, rounds)

    few = few_to_evaluate(data)
    single = rounds = trial(few, 1, budget_s / 3)
    fitting = budget_s / 4 / max(single.round_s, 1e-9)
    if fitting >= 1:
        again = trial(few, int(min(fitting, max(1.0, 1 / max(expected.evaluations_per_round, 1e-9)))), budget_s / 2)
        rounds = again if again.intervals else single
    whole = trial(data, 1, budget_s / 6, patience_s=budget_s)
    warm = whole if rounds is single and whole.intervals else rounds  # the first trial has a process's one-off imports
    more_s = whole.round_s - single.round_s if whole.intervals else whole.first_s - single.first_s
    once_s = whole.first_s + warm.once_s
    if single.round_s < budget_s * _SHORT_ROUND:
        ended = _changed(scenario, name, Every(amount=1, unit="rounds"), rounds=1)
        with _left_nothing():
            once_s += ending_s(ended, name, few, execution, timing_only, clock)
    return Speed(once_s, rounds.round_s, max(0.0, more_s), expected.size.bytes)


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
        return self._steps[1:] or self._steps

    @property
    def told(self) -> bool:
        """Whether there are enough intervals without one-off work."""
        apart = self._steps[1:]
        return len(apart) >= ENOUGH or (len(apart) >= FEWEST and sum(seconds for _, seconds in apart) >= BUDGET_S)

    @property
    def round_s(self) -> float:
        """Seconds of a round, with its share of an evaluation."""
        return median(seconds / rounds for rounds, seconds in self.intervals) if self.intervals else float("nan")

    @property
    def first_s(self) -> float:
        """Seconds until the initial models have been evaluated."""
        return self.rows[0][1] if self.rows else float("nan")

    @property
    def once_s(self) -> float:
        """Seconds by which the first interval is longer than others."""
        return sum(max(0.0, seconds - rounds * self.round_s) for rounds, seconds in self._steps[:1])

    @property
    def _steps(self) -> list[tuple[int, float]]:
        steps = [(later[0] - before[0], later[1] - before[1]) for before, later in pairwise(self.rows)]
        return [(rounds, seconds) for rounds, seconds in steps if rounds]


def _changed(scenario: Scenario, name: str, every: Every, rounds: int | None) -> Scenario:
    """Return the scenario with evaluations so far apart, and the protocol's stop rule with so many rounds."""
    entry = scenario.protocols[name]
    evaluate = scenario.evaluate_of(name).model_copy(update={"every": every})
    ends: dict[str, Any] = {"wall_clock": None}  # on a busy machine no round might fit in
    stop = scenario.stop_of(name).model_copy(update=ends if rounds is None else {**ends, "rounds": rounds})
    changed = entry.model_copy(update={"evaluate": evaluate, "stop": stop})
    return scenario.model_copy(update={"protocols": {**scenario.protocols, name: changed}})


class _EnoughMeasured(BaseException):
    """Ends a trial. Like Ctrl-C no ``Exception``: a protocol's ``except Exception`` may not eat it."""


def _trial(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    execution: Execution,
    every: int,
    budget_s: float,
    patience_s: float,
    timing_only: bool,
    clock: Callable[[], float],
    rounds: int | None,
) -> _Trial:
    """Run until ``budget_s`` have passed and ``ENOUGH`` intervals without one-off work have been measured.

    ``FEWEST`` are enough once they have taken ``BUDGET_S``.
    A trial whose initial evaluation takes ``patience_s`` ends with it, and one of so many ``rounds`` with them.
    """
    measured = _Trial([])
    latest: dict[str, float] | None = None
    began = clock()

    def report(progress: Progress) -> None:
        nonlocal latest
        if progress.metrics is not latest:  # there is a new row whose values have been computed
            latest = progress.metrics
            passed = clock() - began
            measured.rows.append((progress.rounds, passed))
            slow = len(measured.rows) == 1 and passed >= patience_s
            if slow or (passed >= budget_s and measured.told):
                raise _EnoughMeasured

    with _left_nothing(), suppress(_EnoughMeasured):
        run_protocol(
            _changed(scenario, name, Every(amount=every, unit="rounds"), rounds),
            name,
            scenario.seeds[0],
            data,
            timing_only=timing_only,
            report=report,
            execution=execution,
        )
    return measured


@contextmanager
def _left_nothing() -> Iterator[None]:
    """Free at once what a trial leaves: parties hold each other, and tables as large as the data with them.

    The collector does not look at what was there before, so it takes milliseconds.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def speeds(
    scenario: Scenario,
    data: ScenarioData,
    found: Sequence[Expectation],
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    all_s: float = ALL_S,
) -> dict[str, Speed]:
    """Measure how quickly this machine computes each protocol; all together have a budget of ``all_s`` seconds."""
    budget_s, measured = min(BUDGET_S, all_s / max(1, len(found))), {}
    with patient_collector(), reusing_memory():
        for each in found:
            its = data.of(scenario.training_of(each.protocol))
            measured[each.protocol] = calibrated(
                scenario, each.protocol, its, execution, timing_only=timing_only, expected=each, budget_s=budget_s
            )
    return measured


def predicted_s(
    scenario: Scenario,
    data: ScenarioData,
    protocols: Iterable[str],
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    all_s: float,
) -> dict[str, float]:
    """Predict the seconds of a run of each of the ``protocols``, from measurements of ``all_s`` seconds in all.

    Infinite if only a target ends it, NaN if unknown. A protocol that fails is left out: its own run tells why.
    """
    found = []
    for name in protocols:
        try:
            found.append(expectation(scenario, name, data.of(scenario.training_of(name))))
        except VflsimError:
            continue
    measured = speeds(scenario, data, found, execution, timing_only=timing_only, all_s=all_s)
    limits = {name: scenario.stop_of(name).wall_clock or math.inf for name in measured}
    return {each.protocol: min(measured[each.protocol].run_s(each), limits[each.protocol]) for each in found}
