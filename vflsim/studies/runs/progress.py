"""Progress reports of a study: which run begins, how far it is, how it ended; and an estimate of the time left."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from vflsim.errors import VflsimError
from vflsim.results.store.closed_forms import LeftOut
from vflsim.results.store.folder import Prepared
from vflsim.results.store.pages import RunInfo
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

    def kept(self, run: StudyRun) -> None:
        """Handle a written run of an interrupted study, which ``ended`` may have reported before."""

    def failed_analysis(self, left_out: Sequence[LeftOut]) -> None:
        """Handle closed forms whose computation failed."""


# --- time left --------------------------------------------------------------------------------------------------------


def study_s(runs_s: Iterable[float], free_s: Iterable[float] = (0.0,)) -> float:
    """Return the seconds that runs take on processes, given the seconds after which each process is free.

    ``runs_s`` are in starting order: a free process takes the next run.
    """
    free = sorted(free_s)
    for run_s in runs_s:
        heapq.heapreplace(free, free[0] + run_s)
    return max(free)


@dataclass(slots=True)
class _Pace:
    """The completed share of a run and the wall-clock time, at its first and at its latest row of metrics.

    Only at a row of metrics is all work complete up to that virtual time. A resumed run begins with a share above 0.
    """

    began: float
    first: tuple[float, float] | None = None
    latest: tuple[float, float] = (0.0, 0.0)
    row: Mapping[str, float] = field(default_factory=dict)

    @property
    def whole_s(self) -> float | None:
        """Wall-clock seconds of the whole run at its pace so far; None before there is one."""
        if self.first is None or self.latest[0] <= self.first[0]:
            return None
        return (self.latest[1] - self.first[1]) / (self.latest[0] - self.first[0])


class Remaining:
    """Estimates the wall-clock time that is left.

    A run under way continues at its pace, as far as its stop rules tell its end, or to the mean share at which those
    runs of its protocol ended that came further. Other runs take as long as those of their protocol; runs of protocols
    that have no pace yet take as long as all on average. ``runs`` is the number of runs of each protocol, ``after_s``
    what is left once all have ended. ``point`` tells apart equal runs at different points of a sweep.
    """

    def __init__(
        self, runs: Mapping[str, int], clock: Callable[[], float] = time.monotonic, after_s: float = 0.0
    ) -> None:
        self._to_begin, self._clock, self._after_s = Counter(runs), clock, after_s
        self._under_way: dict[tuple[StudyRun, int], _Pace] = {}
        self._ended: dict[str, list[float]] = {}
        self._shares: dict[str, list[float]] = {}

    def began(self, run: StudyRun, point: int = 0) -> None:
        """Note the start of a run."""
        self._to_begin[run.protocol] -= 1
        self._under_way[run, point] = _Pace(self._clock())

    def progressed(self, run: StudyRun, progress: Progress, point: int = 0) -> None:
        """Note how far a run is."""
        pace = self._under_way.setdefault((run, point), _Pace(self._clock()))
        if progress.metrics != pace.row and not progress.doing:
            pace.row, pace.latest = progress.metrics, (progress.share, self._clock())
            pace.first = pace.first or pace.latest

    def ended(self, run: StudyRun, seconds: float | None = None, point: int = 0) -> None:
        """Note the end of a run; ``seconds`` if it tells how long others take."""
        pace = self._under_way.pop((run, point), None)
        if seconds is not None:
            if pace is not None and not run.continued:  # with the time in which its files are written
                seconds = max(seconds, self._clock() - pace.began)
            self._ended.setdefault(run.protocol, []).append(seconds)
            if pace is not None and pace.whole_s is not None:
                self._shares.setdefault(run.protocol, []).append(pace.latest[0])

    def seconds(self, waiting: int) -> float | None:
        """Return the seconds left, given the runs still to begin; None if there is no basis for an estimate yet."""
        paces = {run.protocol: whole_s for (run, _), pace in self._under_way.items() if (whole_s := pace.whole_s)}
        known = paces | {protocol: fmean(seconds) for protocol, seconds in self._ended.items()}
        if not known:
            return None
        now, usual = self._clock(), fmean(known.values())
        remaining = []
        for (run, _), pace in self._under_way.items():
            share, since = pace.latest if pace.first else (0.0, now)
            whole_s, ends = pace.whole_s, [end for end in self._shares.get(run.protocol, []) if end > share]
            if whole_s is None:
                whole_s, ends = known.get(run.protocol, usual), []
            end = fmean(ends or [1.0])
            remaining.append(max(0.0, (end - share) * whole_s - (now - since)))
        counts = {protocol: max(0, count) for protocol, count in self._to_begin.items()}
        waits = [known.get(protocol, usual) for protocol, count in counts.items() for _ in range(count)]
        return study_s([fmean(waits or [usual])] * waiting, remaining or [0.0]) + self._after_s
