"""Progress reports of a study: which run begins, how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vflsim.errors import VflsimError
from vflsim.results.store.closed_forms import LeftOut
from vflsim.results.store.folder import Prepared
from vflsim.results.store.schema import RunInfo
from vflsim.simulation.checkpoints.files import Waypoint
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.vocabulary.imported import origin

Run: TypeAlias = tuple[str, int]
"""Protocol and seed."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: ``number`` (from 1) of ``total`` in starting order; ``continued``: from its checkpoint."""

    protocol: str
    seed: int
    number: int
    total: int
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Report of an ended run, small enough to send between processes.

    ``last`` is its last row of metrics (empty if it has none); ``error`` is the error of a failed run.
    """

    info: RunInfo
    last: Mapping[str, float]
    note: str = ""
    error: VflsimError | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> Report:
        """Summarise a run's outcome."""
        rows, error = outcome.tables.metrics, outcome.error
        if error is not None and error.__cause__ is not None and not isinstance(error.__cause__, VflsimError):
            error.add_note(f"raised in: {origin(error.__cause__)}")  # pickling keeps notes, but drops causes
        return cls(outcome.info, dict(*rows.slice(max(0, rows.num_rows - 1)).to_pylist()), outcome.note, error)


@dataclass(frozen=True)
class Growth:
    """The plan of a study in a folder: which runs are ``kept``, and which are ``left`` to do, in starting order.

    ``continued`` are the runs of ``left`` that start from a checkpoint. ``aside`` has the runs of earlier scenarios,
    each with the reasons, and ``entries`` their paths in the folder. ``back`` has the kept runs that return from the
    results of an earlier scenario, each with that place. ``notes`` tell how kept runs differ from new
    ones, and which runs are repeated. ``there`` says whether the folder holds any runs or checkpoints.
    """

    kept: Mapping[Run, RunInfo]
    left: Sequence[Run]
    continued: Mapping[Run, Waypoint]
    aside: Mapping[Run, tuple[str, ...]]
    entries: tuple[str, ...]
    back: Mapping[Run, Path]
    notes: tuple[str, ...]
    there: bool


class Watcher:
    """Observer of a study, without any action: subclasses override the methods that they need."""

    def described(self, lines: Sequence[str]) -> None:
        """Handle the description of data, task and batches, with warnings; called before the first run."""

    def grown(self, what: Prepared, growth: Growth) -> None:
        """Handle a folder with earlier runs: which of them are kept, continued, or of an earlier scenario."""

    def resumed(self, what: Prepared, finished: int, total: int, differences: Sequence[str]) -> None:
        """Handle a results folder that keeps its ``finished`` runs.

        ``differences`` lists how the execution of kept runs differs from now, and the damaged runs that are repeated.
        """

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """Handle the simulation paths of a timing-only study."""

    def doing(self, what: str) -> None:
        """Handle what the study does while no run is under way, in words."""

    def began(self, run: StudyRun) -> None:
        """Handle the start of a run."""

    def progressed(self, run: StudyRun, progress: Progress) -> None:
        """Handle the progress of a run."""

    def ended(self, run: StudyRun, report: Report) -> None:
        """Handle a run that has ended and is written."""

    def found(self, run: StudyRun) -> None:
        """Handle a written run of an interrupted study, which ``ended`` may have reported before."""

    def failed_analysis(self, left_out: Sequence[LeftOut]) -> None:
        """Handle closed forms whose computation failed."""
