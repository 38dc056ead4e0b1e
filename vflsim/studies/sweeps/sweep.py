"""Run a scenario at every point of a sweep: one results folder per point, one page for all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflsim.errors import ResultsError, VflsimError
from vflsim.results.store.folder import free_previous, locked, step_aside, step_back
from vflsim.results.store.write import LOCK, SCENARIO, SWEEP, followed, write_file
from vflsim.results.sweeps.axis import setting_of
from vflsim.results.sweeps.sweep import Sweep, SweepPage, SweepPoint
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.studies.engines.local import Engine
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.runs.resume import another, refuse_another
from vflsim.studies.runs.spec import StudySpec
from vflsim.studies.study import engine_of
from vflsim.studies.sweeps.plan import SweepPlan
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, RunOptions


class SweepRoom:
    """The folder of a sweep and its ``sweep.json``.

    Points in ``stay`` have the same keys, values and folder as before. Those in ``gone`` are moved to ``aside``.
    Outdated runs of kept points are moved there as well. ``aside`` is a sweep of its own once it has a point. An
    earlier sweep without common points is moved as a whole, to ``moved_to``. Raises ResultsError for a folder that
    holds no sweep, and for resuming a different sweep.
    """

    def __init__(self, folder: Path, plan: SweepPlan, options: RunOptions) -> None:
        folder = folder if folder.name else Path(os.path.abspath(folder))
        self._folder, self._plan, self._new = folder, plan, plan.page
        self._points = list(self._new.points)
        self._earlier: dict[str, SweepPoint] = {}
        self.aside = free_previous(followed(folder))
        self.moved_to: Path | None = None
        self.gone: tuple[SweepPoint, ...] = ()
        self.stay = 0
        try:
            if not folder.exists() or all(entry.name == LOCK for entry in folder.iterdir()):
                return
            if not (folder / SWEEP).is_file():
                raise ResultsError(
                    f"holds other things than a sweep (no {SWEEP})",
                    str(folder),
                    "a new or empty folder, or one that an earlier sweep has written",
                    "choose another --out",
                )
            self._page = SweepPage.read(folder)
            if options.resume:
                self._refuse_another()
            self._make(options.anew)
        except OSError as error:
            what = f"cannot be used: {error.strerror or error}"
            raise ResultsError(what, str(folder), "a folder that may be written", "choose another --out") from error

    @property
    def grown(self) -> bool:
        """Whether the folder holds a different earlier sweep of which points stay."""
        return bool(self._earlier) and self._page.bare() != self._new.bare()

    def write(self) -> None:
        """Write ``sweep.json``."""
        write_file(self._folder / SWEEP, self._new.model_copy(update={"points": tuple(self._points)}).text())

    def opened(self, position: int) -> None:
        """Record in ``sweep.json`` that a point's folder has the new scenario."""
        before, now = self._points[position], self._new.points[position]
        if before.scenario_sha256 != now.scenario_sha256:
            self._points[position] = now
            self._describe_aside()
            self.write()

    def finished(self, position: int) -> None:
        """Record in ``sweep.json`` that a point's runs have ended."""
        self._points[position] = self._new.points[position].model_copy(update={"finished": True})
        self.write()

    def withdraw(self) -> None:
        """Clean up after an interruption: restore the folder if no run was written, otherwise list what is where."""
        with contextlib.suppress(OSError):
            if all(entry.name in (SWEEP, LOCK) for entry in self._folder.iterdir()):
                (self._folder / SWEEP).unlink(missing_ok=True)
                if self.moved_to is not None:
                    step_back(self.moved_to, self._folder)
                return
            for position, point in enumerate(self._new.points):
                before = self._earlier.get(point.folder)
                if before is not None and not self._holds(position):
                    self._points[position] = before
            self.write()
            self._describe_aside()

    def _make(self, anew: bool) -> None:
        new, earlier = self._new, {point.folder: point for point in self._page.points}
        common = {
            point.folder
            for point in new.points
            if (before := earlier.get(point.folder)) is not None and before.values == point.values
        }
        if anew or not common or (self._page.keys, self._page.timing_only) != (new.keys, new.timing_only):
            self.moved_to = step_aside(self._folder)
            return
        self.stay, self._earlier = len(common), earlier
        self.gone = tuple(point for name, point in earlier.items() if name not in common)
        for point in self.gone:
            if (self._folder / point.folder).exists():
                step_aside(self._folder / point.folder, self.aside / point.folder)
                self._describe_aside()
        for position, point in enumerate(new.points):
            if point.folder in common:
                same = self._holds(position)
                before = earlier[point.folder]
                self._points[position] = point.model_copy(update={"finished": before.finished}) if same else before

    def _holds(self, position: int) -> bool:
        """Return whether a point's folder has the new scenario, or no scenario."""
        point = self._plan.points[position]
        path = self._folder / point.folder / SCENARIO
        return not path.exists() or path.read_bytes() == point.text.encode()

    def _describe_aside(self) -> None:
        """Write the ``sweep.json`` of the points moved aside. Remove the folder if there are none."""
        there = [point for name, point in self._earlier.items() if (self.aside / name / SCENARIO).is_file()]
        if there:
            points = tuple(point.model_copy(update={"finished": self._readable(point)}) for point in there)
            write_file(self.aside / SWEEP, self._page.model_copy(update={"points": points}).text())
        elif self.aside.is_dir():
            (self.aside / SWEEP).unlink(missing_ok=True)
            self.aside.rmdir()

    def _readable(self, point: SweepPoint) -> bool:
        return point.finished and any((self.aside / point.folder).glob("*/seed-*/run.json"))

    def _refuse_another(self) -> None:
        """Raise ResultsError unless the folder holds this sweep."""
        there, new = self._page.bare(), self._new.bare()
        if there != new:
            raise another(self._folder, there.model_dump(mode="json"), new.model_dump(mode="json"))
        for point in self._plan.points:
            refuse_another(self._folder / point.folder, point.text)


@dataclass(frozen=True, slots=True)
class Step:
    """One point of a sweep: ``number`` (from 1) of ``total``, its keys and values in words, and its scenario.

    ``own`` is the number of runs of each protocol that no earlier point has too.
    """

    number: int
    total: int
    setting: str
    scenario: Scenario
    own: Mapping[str, int] = field(default_factory=dict)


class SweepWatcher:
    """Observer of a sweep, without any action: subclasses override the methods that they need."""

    def prepared(self, folder: Path, moved_to: Path | None) -> None:
        """Handle the sweep's folder; ``moved_to`` is the new place of an earlier sweep."""

    def grown(self, stay: int, gone: Sequence[str], place: Path) -> None:
        """Handle an earlier sweep of which ``stay`` points stay; the settings ``gone`` are now in ``place``."""

    def planned(self, steps: Sequence[Step]) -> None:
        """Handle all points, before the first begins."""

    def watching(self, step: Step) -> Watcher:
        """Return the watcher of one point's runs. Points overlap if there are workers."""
        return Watcher()

    def ended(self, step: Step, study: Study) -> None:
        """Handle a point whose runs have ended and are written."""


@dataclass(frozen=True, slots=True)
class SweepDone:
    """Results of a sweep, and the errors of failed runs by (point's position, protocol, seed)."""

    sweep: Sweep
    failures: dict[tuple[int, str, int], VflsimError]


def run_sweep(
    plan: SweepPlan,
    out: Path | str | None = None,
    *,
    options: RunOptions = DEFAULT_OPTIONS,
    watcher: SweepWatcher | None = None,
    engine: Engine | None = None,
) -> SweepDone:
    """Run a scenario at every point of a plan and write ``results/<scenario>-sweep-<key>`` (or ``out``).

    Points share the workers: a worker that has nothing left to do at one point begins with the next. ``sweep.json``
    exists from the start and lists the finished points; an interrupted sweep keeps those. Repeated on its folder, a
    sweep grows: points with the same keys and values keep the runs that fit, as ``run_study`` does. Other points, and
    runs that no longer fit, go to the sweep ``<folder>.previous-1`` (2, …). Raises the errors of ``run_study``.
    """
    watcher = watcher or SweepWatcher()
    folder = Path(out) if out is not None else plan.default_folder
    failures: dict[tuple[int, str, int], VflsimError] = {}
    steps = [
        Step(number, len(plan.points), setting_of(plan.keys, point.values), point.scenario, own)
        for number, (point, own) in enumerate(zip(plan.points, plan.own_runs, strict=True), start=1)
    ]
    with locked(folder):
        room = SweepRoom(folder, plan, options)
        specs = [point.placed(folder, options, room.aside) for point in plan.points]

        def finished(position: int, study: Study) -> None:
            failures.update({(position, *run): error for run, error in study.failures.items()})
            room.finished(position)
            watcher.ended(steps[position], study)

        def data_of(spec: StudySpec) -> ScenarioData:
            return ScenarioData(spec.scenario, plan.shelf)

        def watcher_of(position: int) -> Watcher:
            return watcher.watching(steps[position])

        try:
            room.write()
            watcher.prepared(folder, room.moved_to)
            watcher.planned(steps)
            if room.grown:
                gone = [setting_of(plan.keys, point.values) for point in room.gone]
                watcher.grown(room.stay, gone, room.aside)
            pool = Pool(specs, watcher_of, plan.owners(), room.opened, finished, data_of)
            pool.run(engine or engine_of(options, plan.runs, plan.shelf))
        except BaseException:
            room.withdraw()
            raise
    return SweepDone(Sweep.open(folder), failures)
