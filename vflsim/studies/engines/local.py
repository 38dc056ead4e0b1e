"""The engine of a single process: one run after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from vflsim.learning.data.shelf import Shelf
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.base import Reports, Unit
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.spec import StudySpec


class Here:
    """Executes units in this process. Studies with the same data load them once while they stay on the ``shelf``."""

    def __init__(
        self, spec: StudySpec | None = None, data: ScenarioData | None = None, shelf: Shelf | None = None
    ) -> None:
        self._spec, self._data, self._shelf = spec, data, shelf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spec = self._data = None

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Execute units in the given order; yield the report of each. Raises ResultsError and DataError."""
        for unit in units:
            interrupt.check()
            unit.watcher.began(unit.run)
            yield unit, unit.spec.carry_out(unit.run, self._of(unit.spec), reporting(unit, interrupt), interrupt)

    def _of(self, spec: StudySpec) -> ScenarioData:
        """Return the data of a study; load them if the study is another than before."""
        if self._spec is not spec or self._data is None:
            self._spec, self._data = spec, ScenarioData(spec.scenario, self._shelf)
        return self._data


def reporting(unit: Unit, interrupt: Interrupt) -> Callable[[Progress], None]:
    """Return what hands the progress of a unit's run to its watcher."""

    def report(progress: Progress) -> None:
        interrupt.check()
        unit.watcher.progressed(unit.run, progress)

    return report
