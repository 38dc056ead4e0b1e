"""Measure a few rounds of a scenario's protocols, and predict how long their runs take.

Seconds count only while the run's thread has a processor, so other programs do not lengthen them. They equal the
wall-clock time of a run with a core to itself. On a GPU, for which a processor only waits, the wall clock counts.
"""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from vflsim.errors import ResultsError
from vflsim.learning.batches import Split
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.learners.embedding_table import reusing_memory
from vflsim.results.store.write import write_run
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.scenario.sections import Every
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks.estimates import Expectation
from vflsim.studies.runs.progress import study_s
from vflsim.vocabulary.amounts import roughly
from vflsim.vocabulary.execution_options import USUAL, Execution
from vflsim.vocabulary.on_demand import Tensor, load

BUDGET_S = 1.0
"""Budget in seconds for the measured rounds of one protocol; rounds that have begun still complete."""
ALL_S = 1.5
"""Budget in seconds for the measured rounds of all protocols of a scenario."""
ENOUGH = 3
"""Intervals without one-off work that tell which of them another program disturbed; one, if they take long."""
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of a protocol's runs on a core of this machine, NaN if no round could be measured.

    ``startup_s``: once a run: up to the first server step, with the initial evaluation and what only the first rounds
    do, and from the last row of metrics until the results are written; ``round_s``: a server step with all that belongs
    to it, its share of the evaluations included. ``spread``: half of the measured rounds took between so many times
    their median.
    """

    startup_s: float
    round_s: float
    spread: tuple[float, float] = (1.0, 1.0)

    def run_s(self, expected: Expectation) -> float:
        """Return the seconds of a run; infinite if only a target ends it, NaN if unknown."""
        return min(self.startup_s + expected.rounds * self.round_s, expected.most_s)


def together(runs_s: Sequence[float], workers: int, start_s: float = 0.0) -> str:
    """Say how long runs take together on so many workers, each of which takes ``start_s`` to start."""
    processes = max(1, min(workers, len(runs_s)))
    how = "one after the other" if processes == 1 else f"on {processes} workers, if each has a core"
    return f"{roughly(study_s(runs_s, [start_s if workers > 1 else 0.0] * processes))} {how}"


def measured_speed(
    scenario: Scenario,
    expected: Expectation,
    data: LoadedData,
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] | None = None,
) -> Speed:
    """Measure rounds of a protocol, of which much is ``expected``, with the first seed and the real conductor.

    First a few rounds one by one with few rows to evaluate, which warm up, and are written into a folder that is
    deleted. Then rounds with evaluations of all rows as far apart as the scenario's, if ``budget_s`` allows it, since
    what runs as one tensor call depends on it. The initial evaluations of both tell what one takes. ``clock`` gives
    seconds. Event by event: the vectorised path is faster.
    """
    clock = clock or (time.thread_time if execution.device == "cpu" else time.perf_counter)
    name = expected.protocol

    def play(data: LoadedData, every: int, rounds: int | None, patience_s: float = math.inf) -> _Trial:
        trial = _changed(scenario, name, Every(amount=every, unit="rounds"), rounds)
        seen = _Trial(clock, budget_s / 2, patience_s)
        with _left_nothing(), suppress(_EnoughMeasured):
            outcome = run_protocol(
                trial, name, scenario.seeds[0], data, timing_only=timing_only, report=seen.report, execution=execution
            )
            with suppress(OSError, ResultsError), tempfile.TemporaryDirectory() as folder:  # there may be no room
                place, record = Path(folder) / "run", scenario.record.tables
                write_run(place, outcome.tables, outcome.weights, outcome.info, record, outcome.extra, outcome.views)
            seen.end_s = clock() - seen.last_s
        return seen

    warm = play(few_to_evaluate(data), 1, ENOUGH + 1)
    apart = max(1.0, 1 / max(expected.evaluations_per_round, 1e-9))
    every = int(min(apart, max(1.0, budget_s / 4 / max(warm.round_s, 1e-9))))
    still = expected.step_s == 0  # the clock stands still, and rows of metrics wait for an instant to end
    whole = play(data, every, max(every, ENOUGH) if still else None, budget_s)
    evaluation_s = max(0.0, whole.first_s - warm.first_s)
    seen, counted = (whole, every) if whole.paces else (warm, math.inf)
    round_s = seen.round_s + evaluation_s * (1 / apart - 1 / counted)
    if every < int(apart) and evaluation_s > every * whole.round_s / 2:  # else their difference would be noise
        round_s = warm.round_s + evaluation_s / apart
    return Speed(whole.first_s + seen.once_s + warm.end_s, round_s, seen.spread)


def few_to_evaluate(data: LoadedData) -> LoadedData:
    """Return the data with all rows to train on, and few to evaluate."""
    load()

    def cut(tensors: Mapping[Split, Tensor]) -> dict[Split, Tensor]:
        return {split: tensor if split == "train" else tensor[:_FEW_ROWS] for split, tensor in tensors.items()}

    present = None if data.present is None else cut(data.present)
    return replace(data.with_joint(cut(data.joint)), labels=cut(data.labels), present=present)


@dataclass(slots=True)
class _Trial:
    """Rounds of a run by ``clock``: server steps and seconds until each row of metrics."""

    clock: Callable[[], float]
    budget_s: float
    patience_s: float
    """A run whose initial evaluation takes so long is left with it."""
    steps: list[tuple[int, float]] = field(default_factory=list)
    """Server steps and seconds from row to row of metrics."""
    first_s: float = math.nan
    """Seconds until the initial models have been evaluated."""
    end_s: float = 0.0
    """Seconds from the last row until the results are written; 0 for a run that was left."""
    last_s: float = math.nan
    began_s: float = math.nan
    _row: Mapping[str, float] | None = None
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def report(self, progress: Progress) -> None:
        """Note a new row of metrics, whose values have been computed; leave the run when enough is known."""
        if progress.doing or progress.metrics is self._row:
            return
        now, before = self.clock(), self.last_s
        if self._row is None:
            self.first_s = now - self.began_s
        elif progress.rounds > self._rounds:
            self.steps.append((progress.rounds - self._rounds, now - before))
        self._row, self._rounds, self.last_s = progress.metrics, progress.rounds, now
        apart = self.steps[1:]
        slow = self.first_s >= self.patience_s or sum(seconds for _, seconds in apart) >= BUDGET_S
        if now - self.began_s >= self.budget_s and (len(apart) > ENOUGH or slow):
            raise _EnoughMeasured

    @property
    def paces(self) -> list[float]:
        """Seconds a round from row to row; without the first, which has one-off work, if there are others."""
        return [seconds / rounds for rounds, seconds in self.steps[1:] or self.steps]

    @property
    def round_s(self) -> float:
        """Seconds of a round, with its share of an evaluation."""
        return median(self.paces) if self.paces else math.nan

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the seconds of a round, in units of their median."""
        if len(self.paces) < 2 or not self.round_s:
            return 1.0, 1.0
        low, middle, high = quantiles(self.paces, n=4, method="inclusive")
        return low / middle, high / middle

    @property
    def once_s(self) -> float:
        """Seconds by which the first interval is longer than others."""
        return sum(max(0.0, seconds - rounds * self.round_s) for rounds, seconds in self.steps[:1])


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
    expectations: Sequence[Expectation],
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    all_s: float = ALL_S,
) -> dict[str, Speed]:
    """Measure how quickly this machine computes each protocol; all together have a budget of ``all_s`` seconds."""
    budget_s = min(BUDGET_S, all_s / max(1, len(expectations)))
    with patient_collector(), reusing_memory():
        return {
            each.protocol: measured_speed(
                scenario,
                each,
                data.of(scenario.training_of(each.protocol)),
                execution,
                timing_only=timing_only,
                budget_s=budget_s,
            )
            for each in expectations
        }
