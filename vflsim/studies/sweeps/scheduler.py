"""All runs of a sweep for one engine: points share its workers, and the runs that do not depend on what differs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from vflsim.results.store.json_files import read_info
from vflsim.results.store.lock import locked
from vflsim.results.store.placed import place_run
from vflsim.results.store.write import run_folder
from vflsim.scenario.data import ScenarioData
from vflsim.studies.engines.base import Unit
from vflsim.studies.runs.options import RunOptions
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import choices
from vflsim.studies.runs.work import Work
from vflsim.studies.study import OpenStudy, Study
from vflsim.studies.sweeps.plan import SweepPlan

_Run: TypeAlias = tuple[int, str, int]
"""A run that is done once: the first point that has it, its protocol and its seed."""


@dataclass(slots=True, eq=False)
class _Open:
    """A point under way: its study, what closes it, its runs that have not ended, and how many it shares."""

    position: int
    study: OpenStudy
    work: Work
    closing: ExitStack
    left: set[StudyRun]
    shared: int = 0
    complete: bool = False


class Pool:
    """The runs of all points. A point's study opens when its first run is due, and finishes when its last has ended.

    A run that an earlier point has too is done there alone, and then placed here.
    Invariant: leaving the ``with`` block closes every open study, which keeps its written runs or restores its folder.
    """

    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        options: RunOptions,
        watcher_of: Callable[[int], Watcher],
        opened: Callable[[int], None],
        finished: Callable[[int, Study], None],
        aside: Path | None = None,
    ) -> None:
        self._plan, self._folder, self._options = plan, folder, options
        self._watcher_of, self._begun, self._finished = watcher_of, opened, finished
        self._place = aside
        self._owners = plan.owners()
        self._open: dict[int, _Open] = {}  # by the identity of its work
        self._done: dict[_Run, Report | None] = {}  # None: kept from before
        self._waiting: dict[_Run, list[tuple[_Open, StudyRun]]] = {}
        # A summary takes as long as some runs, in which no worker would get its next run.
        self._aside = ThreadPoolExecutor(1) if options.workers > 1 else None
        self._finishing: deque[tuple[_Open, Future[Study]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            if self._aside is not None:
                self._aside.shutdown(cancel_futures=True)
            for each in self._open.values():
                stack.push(each.closing)

    def units(self) -> Iterator[Unit]:
        """Yield every run to do, point after point. Raises ResultsError if a point's folder cannot be used."""
        for position in range(len(self._plan.points)):
            opened = self._opened(position)
            for unit in opened.study.units:
                run = self._run(position, unit.run)
                if run[0] == position:
                    yield unit
                elif run in self._done:
                    self._share(run, opened, unit.run)
                else:
                    self._waiting.setdefault(run, []).append((opened, unit.run))
            self._finish_if_done(opened)

    def ended(self, unit: Unit, report: Report) -> None:
        """Enter a run that has ended, here and wherever else it belongs; finish the studies that are complete.

        Raises ResultsError.
        """
        opened = self._open[id(unit.work)]
        run = self._run(opened.position, unit.run)
        self._done[run] = report
        self._enter(opened, unit.run, report)
        for other, its_run in self._waiting.pop(run, ()):
            self._share(run, other, its_run)
            self._finish_if_done(other)
        self._finish_if_done(opened)
        self._settle()

    def settle(self) -> None:
        """Wait for the studies that are being finished. Raises ResultsError."""
        self._settle(all_of_them=True)

    def _run(self, position: int, run: StudyRun) -> _Run:
        return self._owners[position, run.protocol], run.protocol, run.seed

    def _opened(self, position: int) -> _Open:
        point, watcher = self._plan.points[position], self._watcher_of(position)
        timing_only = self._plan.timing_only
        paths = choices(point.scenario, "auto", timing_only)
        aside = self._place and self._place / point.folder
        work = Work(point.scenario, self._folder / point.folder, paths, timing_only, self._options, aside=aside)
        watcher.described(point.described)
        with ExitStack() as stack:
            stack.enter_context(locked(work.folder))
            study = stack.enter_context(OpenStudy(work, watcher))
            self._begun(position)
            left = {unit.run for unit in study.units}
            opened = self._open[id(work)] = _Open(position, study, work, stack.pop_all(), left)
        to_do = {(run.protocol, run.seed) for run in left}
        for name in point.scenario.protocols:
            for seed in point.scenario.seeds:
                if self._owners[position, name] == position and (name, seed) not in to_do:
                    self._done[position, name, seed] = None
        return opened

    def _share(self, run: _Run, opened: _Open, its_run: StudyRun) -> None:
        """Place a run that has ended at an earlier point."""
        there = self._folder / self._plan.points[run[0]].folder
        place_run(run_folder(there, *run[1:]), run_folder(opened.work.folder, *run[1:]))
        opened.work.settle(*run[1:])
        opened.shared += 1
        self._enter(opened, its_run, self._done[run] or Report(read_info(run_folder(there, *run[1:])), {}))

    def _enter(self, opened: _Open, run: StudyRun, report: Report) -> None:
        opened.study.ended(run, report)
        opened.left.discard(run)

    def _finish_if_done(self, opened: _Open) -> None:
        if opened.left or opened.complete:
            return
        opened.complete = True
        if self._aside is None:
            self._finished(opened.position, self._finish(opened))
        else:
            self._finishing.append((opened, self._aside.submit(self._finish, opened)))

    def _finish(self, opened: _Open) -> Study:
        del self._open[id(opened.work)]
        with opened.closing:
            study = opened.study.finish(ScenarioData(opened.work.scenario))
        return replace(study, shared=opened.shared)

    def _settle(self, all_of_them: bool = False) -> None:
        while self._finishing and (all_of_them or self._finishing[0][1].done()):
            opened, future = self._finishing.popleft()
            self._finished(opened.position, future.result())
