"""The engine of a single process: one run after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from vflsim.scenario.data import ScenarioData
from vflsim.simulation.conductor import Progress
from vflsim.studies.engines.base import Reports, Unit
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.work import Work


class Here:
    """Executes units in this process. It holds the data of one study at a time."""

    def __init__(self, work: Work | None = None, data: ScenarioData | None = None) -> None:
        self._work, self._data = work, data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._work = self._data = None

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Execute units in the given order; yield the report of each. Raises ResultsError and DataError."""
        for unit in units:
            interrupt.check()
            unit.watcher.began(unit.run)
            yield unit, unit.work.carry_out(unit.run, self._of(unit.work), _reporting(unit, interrupt), interrupt)

    def _of(self, work: Work) -> ScenarioData:
        """Return the data of a study; load them if the study is another than before."""
        if self._work is not work or self._data is None:
            self._work, self._data = work, ScenarioData(work.scenario)
        return self._data


def _reporting(unit: Unit, interrupt: Interrupt) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        interrupt.check()
        unit.watcher.progressed(unit.run, progress)

    return report
