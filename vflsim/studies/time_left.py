"""Estimate how long a study still takes, from the runs that have ended and those under way."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from vflsim.simulation.reporter import Progress
from vflsim.studies.checks.run_speed import study_s
from vflsim.studies.runs.progress import StudyRun


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
