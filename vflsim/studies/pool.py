"""All runs of a sweep for one engine, so that points share its workers without waiting for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from vflsim.results.lock import locked
from vflsim.scenario.data import ScenarioData
from vflsim.studies.options import RunOptions
from vflsim.studies.paths import choices
from vflsim.studies.planned import SweepPlan
from vflsim.studies.study import OpenStudy, Study
from vflsim.studies.unit import Unit
from vflsim.studies.watching import Report, StudyRun, Watcher
from vflsim.studies.work import Work


@dataclass(slots=True, eq=False)
class _Open:
    """A point under way: its study, what closes it, and its runs that have not ended."""

    position: int
    study: OpenStudy
    work: Work
    closing: ExitStack
    left: set[StudyRun] = field(default_factory=set)


class Pool:
    """The runs of all points. A point's study opens when its first run is due, and finishes when its last has ended.

    Invariant: leaving the ``with`` block closes every open study, which keeps its written runs or restores its folder.
    """

    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        options: RunOptions,
        watcher_of: Callable[[int], Watcher],
        finished: Callable[[int, Study], None],
    ) -> None:
        self._plan, self._folder, self._options = plan, folder, options
        self._watcher_of, self._finished = watcher_of, finished
        self._open: dict[int, _Open] = {}  # by the identity of the unit's work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for each in self._open.values():
                stack.push(each.closing)

    @property
    def size(self) -> int:
        """The number of runs at most."""
        return sum(len(point.scenario.protocols) * len(point.scenario.seeds) for point in self._plan.points)

    def units(self) -> Iterator[Unit]:
        """Yield every run to do, point after point. Raises ResultsError if a point's folder cannot be used."""
        for position in range(len(self._plan.points)):
            opened = self._opened(position)
            yield from opened.study.units
            self._finish_if_done(opened)

    def ended(self, unit: Unit, report: Report) -> None:
        """Enter a run that has ended; finish its study if it was the last one. Raises ResultsError."""
        opened = self._open[id(unit.work)]
        opened.study.ended(unit.run, report)
        opened.left.discard(unit.run)
        self._finish_if_done(opened)

    def _opened(self, position: int) -> _Open:
        point = self._plan.points[position]
        watcher, place = self._watcher_of(position), self._folder / point.folder
        timing_only = self._plan.timing_only
        work = Work(point.scenario, place, choices(point.scenario, "auto", timing_only), timing_only, self._options)
        watcher.described(point.described)
        with ExitStack() as stack:
            stack.enter_context(locked(place))
            study = stack.enter_context(OpenStudy(work, watcher))
            opened = self._open[id(work)] = _Open(position, study, work, stack.pop_all(), {u.run for u in study.units})
        return opened

    def _finish_if_done(self, opened: _Open) -> None:
        if opened.left or id(opened.work) not in self._open:
            return
        with opened.closing:
            study = opened.study.finish(ScenarioData(opened.work.scenario))
        del self._open[id(opened.work)]
        self._finished(opened.position, study)
