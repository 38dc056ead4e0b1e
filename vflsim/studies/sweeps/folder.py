"""Prepares a sweep's folder that may hold an earlier sweep: common points stay, others are moved aside."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.results.store.folder import free_previous, step_aside, step_back
from vflsim.results.store.write import LOCK, SCENARIO, SWEEP, followed, write_file
from vflsim.results.sweeps.sweep import SweepPage, SweepPoint
from vflsim.studies.runs.options import RunOptions
from vflsim.studies.runs.resume import another, refuse_another
from vflsim.studies.sweeps.plan import SweepPlan


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
