"""Run a scenario at every point of a sweep: one results folder per point, one page for all."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import ResultsError, VflsimError
from vflsim.results.folder import step_aside, step_back
from vflsim.results.lock import locked
from vflsim.results.sweep import Sweep, SweepPage
from vflsim.results.sweep_axis import setting_of
from vflsim.results.write import LOCK, SCENARIO, SWEEP, write_file
from vflsim.scenario.models import Scenario
from vflsim.studies.interrupt import Interrupt
from vflsim.studies.options import DEFAULT_OPTIONS, RunOptions
from vflsim.studies.planned import SweepPlan
from vflsim.studies.pool import Pool
from vflsim.studies.resume import another, refuse_another
from vflsim.studies.study import Study, engine_of
from vflsim.studies.unit import Engine
from vflsim.studies.watching import Watcher


@dataclass(frozen=True, slots=True)
class Step:
    """One point of a sweep: ``number`` (from 1) of ``total``, its keys and values in words, and its scenario."""

    number: int
    total: int
    setting: str
    scenario: Scenario


class SweepWatcher:
    """Observer of a sweep, without any action: subclasses override the methods that they need."""

    def prepared(self, folder: Path, moved_to: Path | None) -> None:
        """Handle the sweep's folder; ``moved_to`` is the new place of an earlier sweep."""

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
    exists from the start and lists the finished points; an interrupted sweep keeps those. Repeating the same sweep
    replaces its results run by run, or, with ``options.resume``, adds the missing ones; a different earlier sweep is
    moved aside. Raises the errors of ``run_study``.
    """
    watcher = watcher or SweepWatcher()
    folder = Path(out) if out is not None else plan.default_folder
    failures: dict[tuple[int, str, int], VflsimError] = {}
    steps = [
        Step(number, len(plan.points), setting_of(plan.keys, point.values), point.scenario)
        for number, point in enumerate(plan.points, start=1)
    ]
    with locked(folder):
        page, moved = _make_room(folder, plan.page, [point.text for point in plan.points], options.resume)

        def finished(position: int, study: Study) -> None:
            nonlocal page
            failures.update({(position, *run): error for run, error in study.failures.items()})
            page = page.with_finished(position)
            write_file(folder / SWEEP, page.text())
            watcher.ended(steps[position], study)

        def watcher_of(position: int) -> Watcher:
            return watcher.watching(steps[position])

        try:
            write_file(folder / SWEEP, page.text())
            watcher.prepared(folder, moved)
            with (
                Interrupt() as interrupt,
                Pool(plan, folder, options, watcher_of, finished) as pool,
                engine or engine_of(options, plan.runs) as executing,
                contextlib.closing(executing.carry_out(pool.units(), interrupt)) as reports,
            ):
                for unit, report in reports:
                    pool.ended(unit, report)
                pool.settle()
        except BaseException:
            _withdraw(folder, moved)
            raise
    return SweepDone(Sweep.open(folder), failures)


def _make_room(folder: Path, page: SweepPage, texts: list[str], resume: bool) -> tuple[SweepPage, Path | None]:
    """Return the initial page, and the new place of a different earlier sweep.

    Raises ResultsError for a folder that holds no sweep, and for resuming a different sweep.
    """
    try:
        if all(entry.name == LOCK for entry in folder.iterdir()):
            return page, None
        if not (folder / SWEEP).is_file():
            raise ResultsError(
                f"holds other things than a sweep (no {SWEEP})",
                str(folder),
                "a new or empty folder, or one that an earlier sweep has written",
                "choose another --out",
            )
        there = SweepPage.read(folder)
        if there.bare() == page.bare() and all(
            _holds(folder / entry.folder / SCENARIO, text) for entry, text in zip(page.points, texts, strict=True)
        ):
            return page.resumed(there), None
        if resume:
            _refuse(folder, there.bare(), page.bare(), texts)
        return page, step_aside(folder)
    except OSError as error:
        what = f"cannot be used: {error.strerror or error}"
        raise ResultsError(what, str(folder), "a folder that may be written", "choose another --out") from error


def _refuse(folder: Path, there: SweepPage, page: SweepPage, texts: list[str]) -> None:
    """Raise ResultsError: the folder holds a different sweep than the one to resume."""
    if there != page:
        raise another(folder, there.model_dump(mode="json"), page.model_dump(mode="json"))
    for entry, text in zip(page.points, texts, strict=True):
        refuse_another(folder / entry.folder, text)


def _holds(path: Path, text: str) -> bool:
    """Return whether the file holds this text or does not exist."""
    return not path.exists() or path.read_bytes() == text.encode()


def _withdraw(folder: Path, moved: Path | None) -> None:
    """Restore the folder if no run was written."""
    with contextlib.suppress(OSError):
        if any(entry.name not in (SWEEP, LOCK) for entry in folder.iterdir()):
            return
        (folder / SWEEP).unlink(missing_ok=True)
        if moved is not None:
            step_back(moved, folder)
