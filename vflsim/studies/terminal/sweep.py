"""Terminal output of a sweep: one live display for all points, one line per point that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from vflsim.results.store.folder import Prepared
from vflsim.scenario.changes import at_most
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import Growth, Report, StudyRun
from vflsim.studies.runs.reuse_text import asides
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.studies.sweeps.sweep import Step, SweepDone, SweepWatcher
from vflsim.studies.terminal.live import live_on
from vflsim.studies.terminal.study import Display, failure, time_left
from vflsim.studies.time_left import Remaining
from vflsim.text_table import say

_BAR = 8
_NAMED = 8


class SweepDisplay(SweepWatcher):
    """Shows a live line for every run under way (in a terminal), and prints a line for every point that has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = live_on(console)
        self._folder = Path()
        self._moved_to: Path | None = None
        self._count = self._total = 0
        self._planned = False
        self._printed: set[str] = set()
        self._under_way: dict[int, _PointDisplay] = {}
        self.remaining = Remaining({})
        self.waiting: dict[int, int] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def prepared(self, folder: Path, moved_to: Path | None) -> None:
        """Remember the results folder."""
        self._folder, self._moved_to = folder, moved_to

    def grown(self, stay: int, gone: Sequence[str], place: Path) -> None:
        """Print how many points stay, and where the others are."""
        say(self._console, f"{self._folder}: {stay} of {stay + len(gone)} values of an earlier sweep stay")
        if gone:
            say(self._console, f"  moved to {place}: {', '.join(at_most(gone, _NAMED))}")

    def planned(self, steps: Sequence[Step]) -> None:
        """Count the runs that are to begin."""
        runs = Counter[str]()
        for step in steps:
            runs.update(step.own)
        self.remaining, self._planned = Remaining(runs), True
        self.waiting = {step.number: sum(step.own.values()) for step in steps}

    def watching(self, step: Step) -> Display:
        """Make the display for the runs of one point."""
        self._total = step.total
        self._under_way[step.number] = _PointDisplay(self._console, step, self._printed, self)
        return self._under_way[step.number]

    def ended(self, step: Step, study: Study) -> None:
        """Print a line for the point."""
        if not self._count and self._moved_to is not None:
            say(self._console, f"another sweep that was there is now in {self._moved_to}")
        self._count += 1
        self._under_way.pop(step.number, None)
        self.waiting.pop(step.number, None)
        head = f"{step.number:>{len(str(step.total))}}/{step.total} "
        failed = (f", {len(study.failures)} failed", "red") if study.failures else ""
        self._console.print(Text.assemble(head, (step.setting, "bold"), f"  {study.summary}", failed))
        self.show()

    def show(self) -> None:
        """Show the lines of the runs under way, after a bar for all points."""
        if self._live is None or not self._total:
            return
        done = self._count + sum(point.share for point in self._under_way.values())
        filled = min(_BAR, round(_BAR * done / self._total))
        rest = ("━" * (_BAR - filled), "bright_black")
        bar = Text.assemble(("━" * filled, "green"), rest, f" {self._count}/{self._total}  {self._left()}")
        lines = [line for point in self._under_way.values() for line in point.lines()] or [Text()]
        heads = [bar, *[Text(" " * bar.cell_len)] * (len(lines) - 1)]
        pairs = zip(heads, lines, strict=True)
        self._live.update([Text.assemble(*pair, no_wrap=True, overflow="ellipsis") for pair in pairs])

    def _left(self) -> str:
        """Estimate the time that is left, if all points are known; shared runs take none."""
        return time_left(self.remaining.seconds(sum(self.waiting.values()))) if self._planned else ""

    def failures(self, done: SweepDone) -> list[str]:
        """Describe the failed runs, each with its point; a run that points share once."""
        sweep, lines = done.sweep, list[str]()
        for (position, protocol, seed), error in done.failures.items():
            same = [other for (other, *_), one in done.failures.items() if one is error]
            if position == same[0]:
                more = f" and {len(same) - 1} other values" if len(same) > 1 else ""
                setting = sweep.setting(sweep.points[position])
                lines.append(f"{setting}{more}: {failure(protocol, seed, error, sweep.results[position])}")
        return lines

    def interrupted(self, again: str) -> str:
        """Describe an interruption: how many points are kept and where, and how to resume."""
        if not self._count:
            left = f"ended runs are kept in {self._folder}" if self._folder.exists() else "nothing was written"
            on = f"\n  resume with: {again}" if self._folder.exists() else ""
            return f"interrupted before the first value had finished: {left}{on}"
        return (
            f"interrupted: {self._count} of {self._total} values had finished and are kept in {self._folder}\n"
            f"  see them with: vflsim compare {quote(str(self._folder))}\n  resume with: {again}"
        )


class _PointDisplay(Display):
    """The runs of one point: prints only warnings, each once per sweep (``printed``)."""

    def __init__(self, console: Console, step: Step, printed: set[str], owner: SweepDisplay) -> None:
        super().__init__(console, step.scenario)
        self._setting, self._printed, self._owner = step.setting, printed, owner
        self._own, self._point, self._remaining = step.own, step.number, owner.remaining

    def described(self, lines: Sequence[str]) -> None:
        """Print warnings only."""
        super().described([line for line in lines if line.startswith("warning")])

    def prepared(self, what: Prepared) -> None:
        """Print nothing: the sweep has printed the folder."""

    def grown(self, what: Prepared, growth: Growth) -> None:
        """Count the kept runs, say which runs are moved, and print warnings."""
        self.count = len(growth.kept)
        self._need_not_begin(sum(protocol in self._own for protocol, _ in growth.kept))
        for line in asides(what, growth):
            say(self._console, f"{self._setting}:{line}")
        for note in growth.notes:
            say(self._console, f"  warning: {note}")

    def resumed(self, what: Prepared, finished: int, total: int, differences: Sequence[str]) -> None:
        """Print what is kept; shared runs may be among it."""
        super().resumed(what, finished, total, differences)
        self._need_not_begin(finished)

    def began(self, stage: StudyRun) -> None:
        """Show a line for the run until it ends."""
        self._need_not_begin(1)
        super().began(stage)

    def _need_not_begin(self, runs: int) -> None:
        waiting = self._owner.waiting
        waiting[self._point] = max(0, waiting.get(self._point, 0) - runs)

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """Print nothing."""

    def ended(self, stage: StudyRun, report: Report) -> None:
        """Count the run, and print nothing."""
        self._end(stage, report)

    @property
    def share(self) -> float:
        """The completed share of the point's runs."""
        shares = (progress.share for progress in self._under_way.values() if progress is not None)
        return (self.count + sum(shares)) / self.total

    def lines(self) -> Iterator[Text]:
        """Yield a line for every run under way."""
        for stage, progress in self._under_way.items():
            yield Text.assemble((f"{self._setting}  ", "bold"), self._line(stage, progress))

    def _show(self) -> None:
        self._owner.show()
