"""Run every protocol of a scenario with every seed; write each run as soon as it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vflsim.errors import VflsimError
from vflsim.results.read import Results
from vflsim.results.store.closed_forms import write_closed_forms
from vflsim.results.store.folder import Prepared, withdraw
from vflsim.results.store.lock import locked
from vflsim.results.store.manifest import ManifestWriter
from vflsim.results.store.write import PAGES, SCENARIO, SUMMARIES, write_file
from vflsim.results.tables.comparison import write_summary
from vflsim.scenario.checks import location_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem, failure
from vflsim.simulation.execution import patient_collector
from vflsim.studies.checks.closed_forms import closed_forms
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.describe import described
from vflsim.studies.checks.first_round import refuse_hopeless
from vflsim.studies.checks.tryout import refuse_broken
from vflsim.studies.engines.base import Engine, Unit
from vflsim.studies.engines.local import Here
from vflsim.studies.engines.processes import Crew
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.options import DEFAULT_OPTIONS, RunOptions
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.resume import refuse_another
from vflsim.studies.runs.reuse import planned, prepare
from vflsim.studies.runs.simulator_choice import PathWish, choices
from vflsim.studies.runs.work import Work


@dataclass(frozen=True, slots=True)
class Study:
    """Results of a study, and the errors of its failed runs.

    ``kept`` counts runs that had finished before, ``shared`` those that other points of a sweep have run; the others
    took ``seconds`` of wall-clock time in total.
    """

    results: Results
    failures: dict[tuple[str, int], VflsimError]
    kept: int
    seconds: float
    shared: int = 0

    @property
    def summary(self) -> str:
        """The number of runs and their duration, in words."""
        total = len(self.results.runs)
        counts = {"kept from before": self.kept, "shared with other values": self.shared}
        counts[f"run in {self.seconds:.1f} s"] = total - self.kept - self.shared
        parts = [(count, how) for how, count in counts.items() if count]
        if len(parts) == 1:
            (_, how) = parts[0]
            return f"{total} runs{how.removeprefix('run')}" if how.startswith("run") else f"{total} runs, all {how}"
        return f"{total} runs: " + ", ".join(f"{count} {how}" for count, how in parts)


@patient_collector()
def run_study(
    scenario: Scenario,
    out: Path | str | None = None,
    *,
    timing_only: bool = False,
    path: PathWish = "auto",
    options: RunOptions = DEFAULT_OPTIONS,
    watcher: Watcher | None = None,
    engine: Engine | None = None,
) -> Study:
    """Run every protocol with every seed and write ``results/<scenario>`` (``…-timing``; or ``out``).

    A failed run keeps its partial tables and does not stop the others. All protocols run with one seed before the next
    seed begins, so that an interrupted study has compared all protocols on its first seeds. An interrupted study keeps
    its finished runs; without any it restores the folder. ``path`` selects how to simulate timing-only runs. Neither
    ``path`` nor what executes the runs (``engine``, or this study's own workers) changes the files.
    Raises ``ScenarioError``, ``DataError`` and ``ResultsError`` (also if another process uses the folder).
    """
    watcher = watcher or Watcher()
    folder = Path(out) if out is not None else default_folder(scenario, timing_only)
    work = Work(scenario, folder, choices(scenario, path, timing_only), timing_only, options)
    data = checked(scenario, timing_only, options.workers)  # report all errors before writing anything
    watcher.described(described(scenario, data))
    with locked(folder), Interrupt() as interrupt, OpenStudy(work, watcher) as study:
        with contextlib.ExitStack() as stack:
            engine = engine or stack.enter_context(engine_of(options, len(study.units), work, data))
            for unit, report in stack.enter_context(contextlib.closing(engine.carry_out(study.units, interrupt))):
                study.ended(unit.run, report)
        return study.finish(data)


def engine_of(options: RunOptions, units: int, work: Work | None = None, data: ScenarioData | None = None) -> Engine:
    """Choose what executes units: this process, which may hold a study's data already, workers, or a cluster."""
    if options.cluster is not None:
        from vflsim.studies.engines.ray import RayEngine  # needs an optional library

        return RayEngine(options.cluster)
    return Here(work, data) if options.workers == 1 else Crew(min(options.workers, units))


class OpenStudy:
    """A study whose runs are under way; its folder must be locked.

    Invariants: the manifest lists every written run; leaving the ``with`` block before ``finish`` keeps the written
    runs with a summary, or restores the folder if there is none.
    """

    def __init__(self, work: Work, watcher: Watcher) -> None:
        self._work, self._watcher = work, watcher
        self._began = time.monotonic()
        self._failures: dict[tuple[str, int], VflsimError] = {}
        self._written: set[StudyRun] = set()
        self._complete = False

    def __enter__(self) -> Self:
        runs, self._prepared, self._kept = _begun(self._work, self._watcher)
        self.units = [Unit(self._work, run, self._watcher) for run in runs]
        self._manifest = ManifestWriter(self._prepared.folder)
        try:
            self._manifest.begin(self._kept, [(run.protocol, run.seed) for run in runs])
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._complete:  # interrupted, or out of disk
            self._abandon()

    def ended(self, run: StudyRun, report: Report) -> None:
        """Enter a written run into the manifest, and keep its error."""
        self._written.add(run)
        _see_to_page(self._work)
        self._manifest.add(run.protocol, run.seed)
        if report.error is not None:
            self._failures[run.protocol, run.seed] = report.error
        self._watcher.ended(run, report)

    def finish(self, data: ScenarioData | None) -> Study:
        """Write the summary and, from the study's data if they are given, the closed forms. Raises ResultsError."""
        self._complete = True
        folder = self._work.folder
        try:
            write_summary(Results.open(folder))
            if data is not None:
                forms = closed_forms(self._work.scenario, data)  # last, since nothing depends on it
                write_closed_forms(folder, forms.table)
                if failed := [each for each in forms.left_out if each.failed]:
                    self._watcher.failed_analysis(failed)
            self._manifest.finish(PAGES)
        except BaseException:
            if not self._written:  # the pages of kept runs are as they were
                self._manifest.undo()
            raise
        return Study(Results.open(folder, trust=True), self._failures, len(self._kept), time.monotonic() - self._began)

    def _abandon(self) -> None:
        """Keep the written runs, with their summary; without any, restore the folder."""
        with contextlib.suppress(VflsimError, OSError):
            for unit in self.units:  # a written run may not have been reported
                run = unit.run
                if run in self._written or self._manifest.written(run.protocol, run.seed):
                    self._written.add(run)
                    self._manifest.add(run.protocol, run.seed)
                    self._watcher.found(run)
            if self._written:
                write_summary(Results.open(self._work.folder))
                self._manifest.finish(SUMMARIES)
            else:
                self._manifest.undo()
        if not self._written:
            withdraw(self._prepared)


def checked(scenario: Scenario, timing_only: bool, workers: int = 1) -> ScenarioData:
    """Check a study and return its data. Raises ``ScenarioError`` and ``DataError`` if it cannot run."""
    if timing_only:
        _must_end(scenario)
    data = read_and_check(scenario, workers, training=not timing_only)
    refuse_hopeless(scenario, data)
    refuse_broken(scenario, data, timing_only)
    return data


def default_folder(scenario: Scenario, timing_only: bool) -> Path:
    """Return the default results folder."""
    return Path("results") / (f"{scenario.name}-timing" if timing_only else scenario.name)


def _begun(work: Work, watcher: Watcher) -> tuple[Sequence[StudyRun], Prepared, list[tuple[str, int]]]:
    """Prepare the folder; return the runs to do, in starting order, the preparation, and the kept runs."""
    if work.options.resume:
        refuse_another(work.folder, work.text)
    growth = planned(work)
    prepared = prepare(growth, work)
    for run in growth.kept:
        work.settle(*run)  # a process killed at the very end of a run leaves several checkpoints
    left, kept = growth.left, len(growth.kept)
    if work.options.resume:
        watcher.resumed(prepared, kept, kept + len(left), growth.notes)
    elif growth.there and not work.options.anew:
        watcher.grown(prepared, growth)
    else:
        watcher.prepared(prepared)
    if work.timing_only:
        watcher.chosen(work.paths)
    runs = [StudyRun(*run, number, len(left), run in growth.continued) for number, run in enumerate(left, start=1)]
    return runs, prepared, [*growth.kept]


def _see_to_page(work: Work) -> None:
    """Write the scenario again if the folder was removed or moved: reading runs needs it."""
    if not (work.folder / SCENARIO).exists():
        write_file(work.folder / SCENARIO, work.text)


def _must_end(scenario: Scenario) -> None:
    """Raise ScenarioError for a protocol that never stops without training."""
    allowed = "time, rounds, updates, epochs, precision or wall_clock besides"
    remedy = "add `time: 600 s`, say, or train"
    problems = [
        Problem(location_of(scenario, name, "stop"), "a timing-only run never reaches a target alone", allowed, remedy)
        for name in scenario.protocols
        if scenario.stop_of(name).criteria.keys() <= {"target"}
    ]
    if problems:
        raise failure(problems, scenario.document)
