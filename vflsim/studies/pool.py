"""Executes the runs of several studies on one engine.

Studies share its workers, and the runs that they have in common.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Self, TypeAlias

from vflsim.errors import VflsimError
from vflsim.results.read import Results
from vflsim.results.store.closed_forms import write_closed_forms
from vflsim.results.store.folder import PAGES, SCENARIO, SUMMARIES, locked, withdraw
from vflsim.results.store.manifest import ManifestWriter
from vflsim.results.store.pages import read_info
from vflsim.results.store.write import place_run, write_file
from vflsim.results.tables import write_summary
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.collector import patient_collector
from vflsim.studies.checks.rounds import closed_forms
from vflsim.studies.engines import Engine, Unit
from vflsim.studies.groups import OPEN, grouped, programs_of, room
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.spec import StudySpec, refuse_another
from vflsim.studies.runs.store import RunStore

_Run: TypeAlias = tuple[int, str, int]
"""A run that is executed once: the first study that contains it, its protocol and its seed."""


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


class Pool:
    """Studies whose runs one engine executes: the points of a sweep, or a single study.

    A study opens when its first run is due, or a group of an earlier study has room for it. It finishes when its last
    run has ended; ``opened`` and ``finished`` are then called with its position. ``owners`` maps a (position, protocol)
    to the first study with the same runs, which alone executes them; the pool then links the results here. ``data_of``
    gives the data of a study, for the sizes of its runs and its closed forms. Invariant: ``run`` closes every open
    study, which keeps its written runs or restores its folder.
    """

    def __init__(
        self,
        specs: Sequence[StudySpec],
        watcher_of: Callable[[int], Watcher],
        data_of: Callable[[StudySpec], ScenarioData],
        owners: Mapping[tuple[int, str], int] | None = None,
        opened: Callable[[int], None] = lambda _: None,
        finished: Callable[[int, Study], None] = lambda *_: None,
    ) -> None:
        self._specs, self._watcher_of, self._owners = specs, watcher_of, owners or {}
        self._begun, self._finished, self._data_of = opened, finished, data_of
        own = [
            [name for name in spec.scenario.protocols if self._owners.get((place, name), place) == place]
            for place, spec in enumerate(specs)
        ]
        self._programs = programs_of(specs, own)
        self._places: dict[int, list[int]] = {}
        for place, programs in enumerate(self._programs):
            for program in programs.values():
                self._places.setdefault(program, []).append(place)
        self._open: dict[int, _OpenStudy] = {}  # by the identity of its specification
        self._done: dict[_Run, Report | None] = {}  # None: kept from an earlier study
        self._waiting: dict[_Run, list[tuple[_OpenStudy, StudyRun]]] = {}
        # A summary can take as long as a run; without a thread no worker would get its next run meanwhile.
        beside = len(specs) > 1 and specs[0].options.workers > 1
        self._aside = ThreadPoolExecutor(1) if beside else None
        self._finishing: deque[tuple[_OpenStudy, Future[Study]]] = deque()
        self._studies: dict[int, Study] = {}

    @patient_collector()
    def run(self, engine: AbstractContextManager[Engine]) -> list[Study]:
        """Execute all runs; return the studies in their order. Raises ResultsError, and the errors of the engine."""
        with Interrupt() as interrupt, contextlib.ExitStack() as closing:
            closing.push(self._close)
            executing = closing.enter_context(engine)
            with contextlib.closing(executing.carry_out(self._units(), interrupt)) as reports:
                for unit, report in reports:
                    self._ended(unit, report)
            self._settle(all_of_them=True)
        return [self._studies[position] for position in range(len(self._specs))]

    def _close(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            if self._aside is not None:
                self._aside.shutdown(cancel_futures=True)
            for each in self._open.values():
                stack.push(each)

    def _units(self) -> Iterator[Unit]:
        """Yield every run to execute, study after study, those of a group together.

        A study opens before its turn only if groups have room for its runs. Raises ResultsError if a study's folder
        cannot be used.
        """
        closed = {*range(len(self._specs))}
        for first in range(len(self._specs)):
            if first not in closed:
                continue
            data, alike = self._data_of(self._specs[first]), dict[int, list[Unit]]()
            self._begin(first, alike)
            closed.discard(first)
            rooms, opened = {program: room(units[0], data) for program, units in alike.items()}, 1
            for place in sorted(closed.intersection(chain.from_iterable(self._places[each] for each in rooms))):
                its = rooms.keys() & self._programs[place].values()
                if opened < OPEN and any(len(alike[each]) < rooms[each] for each in its):
                    self._begin(place, alike)
                    closed.discard(place)
                    opened += 1
            yield from grouped(alike.values(), data)

    def _begin(self, position: int, alike: dict[int, list[Unit]]) -> None:
        """Open a study; add the units that it does not share with an earlier one to those of their program."""
        study = self._opened(position)
        for unit in study.units:
            run = self._run(position, unit.run)
            if run[0] == position:
                alike.setdefault(self._programs[position][unit.run.protocol], []).append(unit)
            elif run in self._done:
                self._share(run, study, unit.run)
            else:
                self._waiting.setdefault(run, []).append((study, unit.run))
        self._finish_if_done(study)

    def _ended(self, unit: Unit, report: Report) -> None:
        """Enter a run that has ended in its study and in those that share it; finish the studies that are complete."""
        study = self._open[id(unit.spec)]
        study.ended(unit.run, report)
        self._there(self._run(study.position, unit.run), report)
        self._finish_if_done(study)
        self._settle()

    def _there(self, run: _Run, report: Report | None) -> None:
        """Enter a run that is written in the studies that share it."""
        self._done[run] = report
        for other, its_run in self._waiting.pop(run, ()):
            self._share(run, other, its_run)
            self._finish_if_done(other)

    def _run(self, position: int, run: StudyRun) -> _Run:
        return self._owners.get((position, run.protocol), position), run.protocol, run.seed

    def _opened(self, position: int) -> _OpenStudy:
        spec, watcher = self._specs[position], self._watcher_of(position)
        watcher.described(spec.described)
        study = self._open[id(spec)] = _OpenStudy(position, spec, watcher)
        self._begun(position)
        for protocol, seed in study.kept:
            self._there((position, protocol, seed), None)
        return study

    def _share(self, run: _Run, study: _OpenStudy, its_run: StudyRun) -> None:
        """Link a run that an earlier study has executed into this study's folder."""
        source = self._specs[run[0]].address(*run[1:])
        place_run(source, study.spec.address(*run[1:]))
        study.spec.settle(*run[1:])
        study.shared += 1
        study.ended(its_run, self._done[run] or Report(read_info(source), {}))

    def _finish_if_done(self, study: _OpenStudy) -> None:
        if study.left or study.complete:
            return
        study.complete = True
        if self._aside is None:
            self._note(study.position, self._finish(study))
        else:
            self._finishing.append((study, self._aside.submit(self._finish, study)))

    def _finish(self, study: _OpenStudy) -> Study:
        del self._open[id(study.spec)]
        with study:
            return study.finish(self._data_of(study.spec))

    def _note(self, position: int, study: Study) -> None:
        self._studies[position] = study
        self._finished(position, study)

    def _settle(self, all_of_them: bool = False) -> None:
        """Report the studies that have been finished; with ``all_of_them`` wait for those that are being finished."""
        while self._finishing and (all_of_them or self._finishing[0][1].done()):
            study, future = self._finishing.popleft()
            self._note(study.position, future.result())


class _OpenStudy:
    """A study whose runs are under way, and the lock of its folder.

    ``left`` are its runs that have not ended, ``shared`` counts the runs that another study has executed. Invariants:
    the manifest lists every written run; leaving the ``with`` block before ``finish`` keeps the written runs with a
    summary, or restores the folder if there is none.
    """

    def __init__(self, position: int, spec: StudySpec, watcher: Watcher) -> None:
        self.position, self.spec, self._watcher = position, spec, watcher
        self._began = time.monotonic()
        self._failures: dict[tuple[str, int], VflsimError] = {}
        self._written: set[StudyRun] = set()
        self.shared, self.complete, self._whole = 0, False, False
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(spec.folder))
            runs = self._prepare()
            self.units = [Unit(spec, run, watcher) for run in runs]
            self.left = {*runs}
            self._manifest = ManifestWriter(self._prepared.folder)
            stack.push(self._close)
            self._manifest.begin(self.kept, [(run.protocol, run.seed) for run in runs])
            self._closing = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.__exit__(kind, error, trace)

    def ended(self, run: StudyRun, report: Report) -> None:
        """Enter a written run into the manifest, and keep its error."""
        self._written.add(run)
        self.left.discard(run)
        if not (self.spec.folder / SCENARIO).exists():  # the folder was removed or moved; reading runs needs it
            write_file(self.spec.folder / SCENARIO, self.spec.text)
        self._manifest.add(run.protocol, run.seed)
        if report.error is not None:
            self._failures[run.protocol, run.seed] = report.error
        self._watcher.ended(run, report)

    def finish(self, data: ScenarioData) -> Study:
        """Write the summary and, from its data, the closed forms of a whole study. Raises ResultsError."""
        self._whole = True
        folder = self.spec.folder
        try:
            self._watcher.doing("writing the summary")
            results = Results.open(folder, trust=True)
            write_summary(results)
            if self.spec.only is None:
                self._watcher.doing("deriving closed forms")
                forms = closed_forms(self.spec.scenario, data)  # comes last, because nothing depends on it
                write_closed_forms(folder, forms.table)
                if failed := [each for each in forms.left_out if each.failed]:
                    self._watcher.failed_analysis(failed)
            self._manifest.finish(PAGES)
        except BaseException:
            if not self._written:  # the pages of kept runs have not changed
                self._manifest.undo()
            raise
        seconds = time.monotonic() - self._began
        return Study(results.reopened(), self._failures, len(self.kept), seconds, self.shared)

    def _prepare(self) -> list[StudyRun]:
        """Prepare the folder; return the runs to execute, in starting order."""
        spec, watcher = self.spec, self._watcher
        if spec.options.resume:
            refuse_another(spec.folder, spec.text)
        store = RunStore(spec)
        growth = store.plan()
        self._prepared, self.kept = store.begin(growth), [*growth.kept]
        for run in self.kept:
            spec.settle(*run)  # a process killed at the very end of a run leaves several checkpoints
        runs, kept = growth.left, len(self.kept)
        if spec.options.resume:
            watcher.resumed(self._prepared, kept, kept + len(runs), growth.notes)
        elif growth.there:
            watcher.grown(self._prepared, growth)
        if spec.timing_only:
            watcher.chosen(spec.paths)
        return [StudyRun(*run, number, len(runs), run in growth.continued) for number, run in enumerate(runs, start=1)]

    def _close(self, *_: object) -> None:
        """Unless the study is finished, keep the written runs, with their summary; without any, restore the folder."""
        if self._whole:
            return
        with contextlib.suppress(VflsimError, OSError):
            for unit in self.units:  # a written run may not have been reported
                run = unit.run
                if run in self._written or self._manifest.written(run.protocol, run.seed):
                    self._written.add(run)
                    self._manifest.add(run.protocol, run.seed)
                    self._watcher.kept(run)
            if self._written:
                write_summary(Results.open(self.spec.folder))
                self._manifest.finish(SUMMARIES)
            else:
                self._manifest.undo()
        if not self._written:
            withdraw(self._prepared)
