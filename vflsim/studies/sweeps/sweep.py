"""Run a scenario at every point of a sweep: one results folder per point, one page for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.results.store.folder import locked
from vflsim.results.sweeps.axis import setting_of
from vflsim.results.sweeps.sweep import Sweep
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.studies.engines.base import Engine
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.options import DEFAULT_OPTIONS, RunOptions
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.runs.spec import StudySpec
from vflsim.studies.study import engine_of
from vflsim.studies.sweeps.folder import SweepRoom
from vflsim.studies.sweeps.plan import SweepPlan


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
