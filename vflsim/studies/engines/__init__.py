"""The unit of work, what engines are, and that of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from vflsim.learning.data.shelf import Shelf
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.group import Member, carry_out
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One run (scenario, protocol, seed) whose result is a folder. Any process can execute it.

    ``spec`` and ``run`` are all that another process needs; ``watcher`` observes the run in this process. One process
    executes a unit together with its ``companions``, which have none of their own.
    """

    spec: StudySpec
    run: StudyRun
    watcher: Watcher
    companions: tuple[Unit, ...] = ()

    @property
    def place(self) -> Path:
        """The address of the run."""
        return self.spec.address(self.run.protocol, self.run.seed)

    @property
    def members(self) -> tuple[Unit, ...]:
        """The unit and its companions."""
        return self, *self.companions


def singly(units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield units and their companions one by one, for engines that execute no runs together."""
    return chain.from_iterable(unit.members for unit in units)


class Group:
    """Units that one process executes: the first begins with the group, others when they say how far they are.

    ``left`` are those that have not ended, by position; ``begun`` says whether the first has begun before.
    """

    def __init__(self, units: Sequence[Unit], begun: bool = False) -> None:
        self.left = dict(enumerate(units))
        self._begun = {0} if begun else set[int]()

    def begin(self, position: int = 0) -> Unit:
        """Tell the watcher of a unit once that its run has begun; return the unit."""
        unit = self.left[position]
        if position not in self._begun:
            self._begun.add(position)
            unit.watcher.began(unit.run)
        return unit

    def progressed(self, position: int, progress: Progress) -> None:
        """Tell the watcher of a unit how far its run is."""
        unit = self.begin(position)
        unit.watcher.progressed(unit.run, progress)

    def ended(self, position: int) -> Unit:
        """Take out a unit whose run has ended."""
        self.begin(position)
        return self.left.pop(position)

    def apart(self) -> list[Group]:
        """Return the units that are left, each as a group of its own."""
        return [Group([unit], position in self._begun) for position, unit in self.left.items()]


Reports: TypeAlias = Generator[tuple[Unit, Report], None, None]


class Engine(Protocol):
    """Executes units in this process, in worker processes, or on other machines.

    The files do not depend on the engine.
    """

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Take units in the given order when they can start; yield the reports of all, also companions, as they end.

        Raises ResultsError if a run cannot be written, ScenarioError if a study cannot be handed over.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OneByOne(ABC):
    """An engine that executes units in this process, in the given order, and none together."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  some have nothing to let go of
        """Let go of what was held."""

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Execute units in the given order; yield the report of each. Raises ResultsError and DataError."""
        for unit in singly(units):
            interrupt.check()
            unit.watcher.began(unit.run)
            yield unit, self._executed(unit, interrupt)

    @abstractmethod
    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report: ...


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
        """Execute units, companions with them, in the given order. Raises ResultsError and DataError."""
        for unit in units:
            interrupt.check()
            if self._spec is not unit.spec or self._data is None:  # another study than before
                self._spec, self._data = unit.spec, ScenarioData(unit.spec.scenario, self._shelf)
            group = Group(unit.members)
            group.begin()
            members = [
                Member(each.spec, each.run, reporting(partial(group.progressed, position), interrupt))
                for position, each in group.left.items()
            ]
            for position, report in carry_out(members, self._data, interrupt):
                yield group.ended(position), report


def reporting(tell: Callable[[Progress], None], interrupt: Interrupt) -> Callable[[Progress], None]:
    """Return what tells the progress of a run, unless the study is to end."""

    def report(progress: Progress) -> None:
        interrupt.check()
        tell(progress)

    return report
