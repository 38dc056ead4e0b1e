"""A sweep: one results folder per point, one page for all, and a table of what it would run."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from vflsim.errors import ResultsError, VflsimError
from vflsim.results.store.folder import EARLIER, LOCK, SCENARIO, SWEEP, followed, locked, returned
from vflsim.results.store.write import write_file
from vflsim.results.sweeps import Sweep, SweepPage, SweepPoint
from vflsim.results.sweeps.axis import axes_of, setting_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.estimates import Expectation, expectation
from vflsim.studies.checks.run_speed import BUDGET_S, Speed, measured_speed, together
from vflsim.studies.engines import Engine
from vflsim.studies.plan import SweepPlan
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.runs.spec import StudySpec, another, refuse_another
from vflsim.studies.study import engine_of
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import quantity, roughly
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, RunOptions
from vflsim.vocabulary.plain_yaml import flow


class SweepRoom:
    """The folder of a sweep and its ``sweep.json``, which lists the points of this sweep.

    Points of an earlier sweep stay in the folder: ``stay`` counts those that are listed again, ``gone`` are the others.
    Pages of another earlier sweep go to ``earlier/<digest>``. Raises ResultsError for a folder that holds no sweep, and
    for resuming a different sweep.
    """

    def __init__(self, folder: Path, plan: SweepPlan, options: RunOptions) -> None:
        folder = Path(os.path.abspath(followed(folder)))
        self._folder, self._plan, self._new = folder, plan, plan.page
        self._points = list(self._new.points)
        self._earlier: dict[str, SweepPoint] = {}
        self._page: SweepPage | None = None
        self._left: tuple[Path, list[str]] | None = None
        self.gone: list[str] = []
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
                self._refuse_another(self._page)
            self._compare(self._page, options.anew)
        except OSError as error:
            what = f"cannot be used: {error.strerror or error}"
            raise ResultsError(what, str(folder), "a folder that may be written", "choose another --out") from error

    @property
    def stay(self) -> int:
        """The number of points of an earlier sweep that are points of this one."""
        return len(self._earlier)

    @property
    def grown(self) -> bool:
        """Whether the folder holds a different earlier sweep."""
        return self._page is not None and self._page.bare() != self._new.bare()

    def write(self) -> None:
        """Write ``sweep.json``."""
        write_file(self._folder / SWEEP, self._new.model_copy(update={"points": tuple(self._points)}).text())

    def opened(self, position: int) -> None:
        """Record in ``sweep.json`` that a point's folder has the new scenario."""
        if self._points[position].scenario_sha256 != self._new.points[position].scenario_sha256:
            self._points[position] = self._new.points[position]
            self.write()

    def finished(self, position: int) -> None:
        """Record in ``sweep.json`` that a point's runs have ended."""
        self._points[position] = self._new.points[position].model_copy(update={"finished": True})
        self.write()

    def withdraw(self) -> None:
        """Clean up after an interruption: restore the page if no point was begun, otherwise list what is there."""
        begun = [self._holds(position) for position in range(len(self._points))]
        with contextlib.suppress(OSError, ResultsError):
            if not any(begun):
                (self._folder / SWEEP).unlink(missing_ok=True)
                if self._left is not None:
                    returned(self._left[0], self._folder, self._left[1])
                elif self._page is not None:
                    write_file(self._folder / SWEEP, self._page.text())
                return
            for position, point in enumerate(self._new.points):
                if not begun[position]:
                    self._points[position] = self._earlier.get(point.folder, self._points[position])
            self.write()

    def _compare(self, page: SweepPage, anew: bool) -> None:
        """Find the points that are there already; another sweep's pages leave."""
        new, there = self._new, {point.folder: point for point in page.points}
        if (page.keys, page.timing_only) == (new.keys, new.timing_only):
            places = [point for point in new.points if point.folder in there]
            self._earlier = {
                point.folder: there[point.folder] for point in places if there[point.folder].values == point.values
            }
        self.gone = [setting_of(page.keys, point.values) for name, point in there.items() if name not in self._earlier]
        if not self._earlier:
            place = self._folder / EARLIER / sha256(page.bare().text().encode()).hexdigest()[:12]
            pages = [each.name for each in self._folder.iterdir() if each.is_file() and each.name != LOCK]
            self._left = place, pages
            returned(self._folder, place, pages)
        for position, point in enumerate(new.points):
            if (before := self._earlier.get(point.folder)) is not None:
                same = {"finished": before.finished and not anew}
                self._points[position] = point.model_copy(update=same) if self._holds(position) else before

    def _holds(self, position: int) -> bool:
        """Return whether a point's folder has the new scenario."""
        point = self._plan.points[position]
        path = self._folder / point.folder / SCENARIO
        return path.is_file() and path.read_bytes() == point.text.encode()

    def _refuse_another(self, page: SweepPage) -> None:
        """Raise ResultsError unless the folder holds this sweep."""
        there, new = page.bare(), self._new.bare()
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

    def prepared(self, folder: Path) -> None:
        """Handle the sweep's folder."""

    def grown(self, stay: int, gone: Sequence[str]) -> None:
        """Handle an earlier sweep, of which ``stay`` points are points of this one, and ``gone`` are not."""

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
    sweep grows: points with the same keys and values keep the runs that fit, as ``run_study`` does. Other points stay
    in the folder, but not in ``sweep.json``. Raises the errors of ``run_study``.
    """
    watcher = watcher or SweepWatcher()
    folder = Path(out) if out is not None else plan.default_folder
    failures: dict[tuple[int, str, int], VflsimError] = {}
    steps = [
        Step(number, len(plan.points), setting_of(plan.keys, point.values), point.scenario, counts)
        for number, (point, counts) in enumerate(zip(plan.points, plan.own_runs, strict=True), start=1)
    ]
    with locked(folder):
        room = SweepRoom(folder, plan, options)
        specs = [point.placed(folder, options) for point in plan.points]

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
            watcher.prepared(folder)
            watcher.planned(steps)
            if room.grown:
                watcher.grown(room.stay, room.gone)
            pool = Pool(specs, watcher_of, data_of, plan.owners(), room.opened, finished)
            pool.run(engine or engine_of(options, plan.runs, plan.shelf))
        except BaseException:
            room.withdraw()
            raise
    return SweepDone(Sweep.open(folder), failures)


# --- what it would run ------------------------------------------------------------------------------------------------


_ALL_S = 30.0
"""Wall-clock seconds for all measured rounds."""


def expected_runs_table(plan: SweepPlan, options: RunOptions) -> DataTable:
    """Tabulate the runs of a plan, point by point, with the time of all, from a few measured rounds of each.

    A point's runs that are the same as those of an earlier point refer to it. Raises a run's errors as ScenarioError.
    """
    owners = plan.owners()
    budget_s = min(BUDGET_S, _ALL_S / sum(map(len, plan.own_runs)))
    known: dict[tuple[int, str], tuple[Expectation, Speed]] = {}
    rows, times = list[tuple[Cell, ...]](), list[float]()
    for position, point in enumerate(plan.points):
        scenario, data = point.scenario, ScenarioData(point.scenario, plan.shelf)
        for name in scenario.protocols:
            owner = owners[position, name]
            real: Cell = f"as in {plan.points[owner].folder}"
            if owner == position:
                loaded = data.of(scenario.training_of(name))
                runs = expectation(scenario, name, loaded)
                speed = measured_speed(
                    scenario, runs, loaded, options.execution, timing_only=plan.timing_only, budget_s=budget_s
                )
                known[position, name] = runs, speed
                real = _time(speed.run_s(runs))
                times += [speed.run_s(runs)] * len(scenario.seeds)
            runs, _ = known[owner, name]
            virtual, memory = _time(runs.rounds * runs.step_s), quantity(runs.size.bytes, "B")
            rows.append((*map(flow, point.values), name, len(scenario.seeds), virtual, real, memory))
    axes = axes_of(plan.keys, [point.values for point in plan.points])
    header = (*(axis.label for axis in axes), "protocol", "seeds", "a run in virtual time", "in real time", "memory")
    ended = [seconds for seconds in times if math.isfinite(seconds)]
    without = f", without {len(times) - len(ended)} that only a target ends" if len(ended) < len(times) else ""
    same = plan.runs - len(times)
    notes = [
        f"{len(plan.points)} points, {plan.runs} runs"
        + (f"; {same} of them the same as at an earlier point, and not run again." if same else "."),
        "Real time: about, for a run with a core to itself, from some measured rounds; "
        f"{together(ended, options.workers)}{without}.",
        "Memory of a run, about: features, weights, gradients, optimisers, activations, and what a protocol keeps.",
    ]
    title = f"{plan.points[0].scenario.name}: what the sweep would run"
    return DataTable(header, rows, title=title, notes=notes, left=tuple(range(len(axes) + 1)))


def _time(seconds: float) -> Cell:
    if math.isnan(seconds):
        return "—"
    return "until the target" if math.isinf(seconds) else roughly(seconds)
