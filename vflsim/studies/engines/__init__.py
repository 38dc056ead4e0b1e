"""The unit of work, what engines are, and that of this process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from vflsim.learning.data.shelf import Shelf
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One run (scenario, protocol, seed) whose result is a folder. Any process can execute it.

    ``spec`` and ``run`` are all that another process needs; ``watcher`` observes the run in this process.
    """

    spec: StudySpec
    run: StudyRun
    watcher: Watcher

    @property
    def place(self) -> Path:
        """The address of the run."""
        return self.spec.address(self.run.protocol, self.run.seed)


Reports: TypeAlias = Generator[tuple[Unit, Report], None, None]


class Engine(Protocol):
    """Executes units in this process, in worker processes, or on other machines.

    The files do not depend on the engine.
    """

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Take units in the given order when they can start; yield their reports in the order in which they end.

        Raises ResultsError if a run cannot be written, ScenarioError if a study cannot be handed over.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OneByOne(ABC):
    """An engine that executes units in this process, in the given order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  some have nothing to let go of
        """Let go of what was held."""

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Execute units in the given order; yield the report of each. Raises ResultsError and DataError."""
        for unit in units:
            interrupt.check()
            unit.watcher.began(unit.run)
            yield unit, self._executed(unit, interrupt)

    @abstractmethod
    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report: ...


class Here(OneByOne):
    """Executes units in this process. Studies with the same data load them once while they stay on the ``shelf``."""

    def __init__(
        self, spec: StudySpec | None = None, data: ScenarioData | None = None, shelf: Shelf | None = None
    ) -> None:
        self._spec, self._data, self._shelf = spec, data, shelf

    def __exit__(self, *_: object) -> None:
        self._spec = self._data = None

    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report:
        if self._spec is not unit.spec or self._data is None:  # another study than before
            self._spec, self._data = unit.spec, ScenarioData(unit.spec.scenario, self._shelf)
        return unit.spec.carry_out(unit.run, self._data, reporting(unit, interrupt), interrupt)


def reporting(unit: Unit, interrupt: Interrupt) -> Callable[[Progress], None]:
    """Return what hands the progress of a unit's run to its watcher."""

    def report(progress: Progress) -> None:
        interrupt.check()
        unit.watcher.progressed(unit.run, progress)

    return report
