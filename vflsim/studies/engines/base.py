"""The unit of work: one run of one study, and the engines that execute units."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

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
