"""All runs of a scenario: every protocol with every seed, each written as soon as it is done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.results.closed_forms import write_closed_forms
from vflsim.results.read import Results
from vflsim.results.report import write_summary
from vflsim.results.write import Prepared, prepare_folder, run_folder, withdraw, write_run
from vflsim.runner.analysis import closed_forms
from vflsim.runner.build import Data
from vflsim.runner.checks import read_and_check
from vflsim.runner.conductor import Progress
from vflsim.runner.paths import Choice, PathWish, choices, run_on
from vflsim.runner.run import Outcome
from vflsim.scenario.checks import said_at
from vflsim.scenario.load import dump
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem, failure


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a study: the ``number``-th (from 1) of ``total``."""

    protocol: str
    seed: int
    number: int
    total: int


class Watcher:
    """Told how a study goes; does nothing. A display of one's own overrides what it needs."""

    def prepared(self, what: Prepared) -> None:
        """The results folder is ready."""

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """A timing-only study will go these ways."""

    def began(self, stage: Stage) -> None:
        """A run begins."""

    def progressed(self, stage: Stage, progress: Progress) -> None:
        """A run goes on."""

    def ended(self, stage: Stage, outcome: Outcome) -> None:
        """A run has ended and is written."""


@dataclass(frozen=True, slots=True)
class Study:
    """What a study left behind: its results, and the errors of the runs that failed."""

    results: Results
    failures: dict[tuple[str, int], VflsimError]
    seconds: float


def run_study(
    scenario: Scenario,
    out: Path | str | None = None,
    *,
    timing_only: bool = False,
    path: PathWish = "auto",
    watcher: Watcher | None = None,
) -> Study:
    """Run every protocol with every seed and write ``results/<scenario>`` (``…-timing``; or ``out``).

    A run that fails is kept as far as it went and does not stop the others. Seeds go round by round, so that an
    interrupted study has compared all protocols on its first seeds; its finished runs are kept, and where there are
    none the folder is as it was before. ``path`` says how the times of a timing-only run are found; the tables are the
    same. Raises ``ScenarioError``, ``DataError`` and ``ResultsError``.
    """
    watcher = watcher or Watcher()
    began = time.monotonic()
    folder = Path(out) if out is not None else default_folder(scenario, timing_only)
    chosen = choices(scenario, path, timing_only)
    data = checked(scenario, timing_only)  # whatever is wrong is said before anything is written
    prepared = prepare_folder(folder, stored_text(scenario, timing_only))
    watcher.prepared(prepared)
    if timing_only:
        watcher.chosen(chosen)
    failures: dict[tuple[str, int], VflsimError] = {}
    runs = [(name, seed) for seed in scenario.seeds for name in scenario.protocols]
    written = 0
    try:
        for number, (name, seed) in enumerate(runs, start=1):
            stage = Stage(name, seed, number, len(runs))
            watcher.began(stage)
            outcome = run_on(
                chosen[name],
                scenario,
                name,
                seed,
                data.of(scenario.training_of(name)),
                timing_only=timing_only,
                report=_reporting(watcher, stage),
            )
            place = run_folder(folder, name, seed)
            write_run(place, outcome.tables, outcome.weights, outcome.info, scenario.record, outcome.extra)
            written = number
            if outcome.error is not None:
                failures[name, seed] = outcome.error
            watcher.ended(stage, outcome)
    except BaseException:  # interrupted, or out of disk
        if not written:
            withdraw(prepared)
        else:
            with contextlib.suppress(VflsimError):
                write_summary(Results.open(folder))
        raise
    write_summary(Results.open(folder))
    write_closed_forms(folder, closed_forms(scenario, data))  # last, since nothing else waits for it
    results = Results.open(folder)
    return Study(results, failures, time.monotonic() - began)


def checked(scenario: Scenario, timing_only: bool) -> Data:
    """The data of a study that can run. Raises ``ScenarioError`` and ``DataError`` for one that cannot."""
    if timing_only:
        _must_end(scenario)
    return read_and_check(scenario)


def stored_text(scenario: Scenario, timing_only: bool) -> str:
    """The scenario as it is kept with its results; timing alone and training are never results of the same text.

    The one would replace the other.
    """
    return dump(scenario) + ("# run with --timing-only\n" if timing_only else "")


def default_folder(scenario: Scenario, timing_only: bool) -> Path:
    """Where results go if nothing else is said."""
    return Path("results") / (f"{scenario.name}-timing" if timing_only else scenario.name)


def _must_end(scenario: Scenario) -> None:
    """Raise ScenarioError for a protocol that would go on for ever without training."""
    allowed = "time, rounds, updates, epochs, precision or wall_clock besides"
    remedy = "add `time: 600 s`, say, or train"
    problems = [
        Problem(said_at(scenario, name, "stop"), "a timing-only run never reaches a target alone", allowed, remedy)
        for name in scenario.protocols
        if scenario.stop_of(name).criteria.keys() <= {"target"}
    ]
    if problems:
        raise failure(problems, scenario.document)


def _reporting(watcher: Watcher, stage: Stage) -> Callable[[Progress], None]:
    return lambda progress: watcher.progressed(stage, progress)
