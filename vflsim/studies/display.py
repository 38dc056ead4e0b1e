"""Terminal output of a study or a sweep: live progress, and a line for each run or point that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from vflsim.results.store.closed_forms import LeftOut
from vflsim.results.store.folder import Prepared
from vflsim.scenario.models import Scenario
from vflsim.simulation.reporter import Progress
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import Growth, Remaining, Report, StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.studies.sweep import Step, SweepWatcher
from vflsim.studies.texts import asides, choice_lines, kept, live_on, main_metric, sentences
from vflsim.tables.terminal import SafeConsole, say
from vflsim.vocabulary.amounts import quantity, roughly
from vflsim.vocabulary.plain_yaml import at_most

_BAR = 8
_PLAIN_WIDTH = 120
_NAMED = 8
_SINGLY = 4
"""The most runs of a protocol that have a line each."""
_AFTER_S = 0.1
"""What the summary and the closed forms of a protocol take at the end of a study."""


class Display(SweepWatcher):
    """Shows a live line for every run under way (in a terminal), and prints a line for every point that has ended.

    Of a single study (``alone``) it prints every run that has ended. ``waiting`` counts the runs of each point that
    have not begun.
    """

    def __init__(self, console: Console, study: Scenario | None = None) -> None:
        self.console = console
        self._live = live_on(console)
        self._folder = Path()
        self._count = self._total = 0
        self._planned = False
        self.printed: set[str] = set()
        self._under_way: dict[int, StudyDisplay] = {}
        self.remaining = Remaining({})
        self.waiting: dict[int, int] = {}
        self.alone: StudyDisplay | None = None
        if study is not None:
            step = Step(1, 1, "", study, dict.fromkeys(study.protocols, len(study.seeds)))
            self.planned([step])
            self.alone = self.watching(step)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def prepared(self, folder: Path) -> None:
        """Remember the results folder."""
        self._folder = folder

    def grown(self, stay: int, gone: Sequence[str]) -> None:
        """Print the number of points that are points of this sweep, and the others."""
        say(self.console, f"{self._folder}: {stay} of {stay + len(gone)} values of an earlier sweep stay")
        if gone:
            say(self.console, f"  there, but not in this sweep: {', '.join(at_most(gone, _NAMED))}")

    def planned(self, steps: Sequence[Step]) -> None:
        """Count the runs that are to begin."""
        runs = Counter[str]()
        for step in steps:
            runs.update(step.own)
        alone = len(steps) == 1 and not steps[0].setting
        after_s = _AFTER_S * len(runs) if alone else 0.0  # points of a sweep are finished beside the runs of others
        self.remaining, self._planned = Remaining(runs, after_s=after_s), True
        self.waiting = {step.number: sum(step.own.values()) for step in steps}

    def watching(self, step: Step) -> StudyDisplay:
        """Make the display for the runs of one point."""
        self._total = step.total
        self._under_way[step.number] = StudyDisplay(self, step)
        return self._under_way[step.number]

    def ended(self, step: Step, study: Study) -> None:
        """Print a line for the point."""
        self._count += 1
        self._under_way.pop(step.number, None)
        self.waiting.pop(step.number, None)
        head = f"{step.number:>{len(str(step.total))}}/{step.total} "
        failed = (f", {len(study.failures)} failed", "red") if study.failures else ""
        self.console.print(Text.assemble(head, (step.setting, "bold"), f"  {study.summary}", failed))
        self.show()

    def show(self) -> None:
        """Show the lines of the runs under way, after a bar for all points."""
        if self._live is None or not self._total:
            return
        done = self._count + sum(point.share for point in self._under_way.values())
        filled = min(_BAR, round(_BAR * done / self._total))
        rest = ("━" * (_BAR - filled), "bright_black")
        number = f"{self._count}/{self._total}" if self.alone is None else self.alone.number
        bar = Text.assemble(("━" * filled, "green"), rest, f" {number}  {self._left()}")
        lines = [line for point in self._under_way.values() for line in point.lines()] or [Text()]
        heads = [bar, *[Text(" " * bar.cell_len)] * (len(lines) - 1)]
        pairs = zip(heads, lines, strict=True)
        self._live.update([Text.assemble(*pair, no_wrap=True, overflow="ellipsis") for pair in pairs])

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds that are left, if all points are known; shared runs take none."""
        return self.remaining.seconds(sum(self.waiting.values())) if self._planned else None

    def _left(self) -> str:
        """Tell the time that is left, with a fixed width."""
        seconds = self.seconds_left
        return "" if seconds is None else f"{f'{roughly(seconds)} left':<13}"

    def interrupted(self, again: str, folder: Path | None = None) -> str:
        """Describe an interruption: what is kept in the ``folder``, and how to resume."""
        folder = folder or self._folder
        if self.alone is not None:
            return self.alone.interrupted(again, folder)
        if not self._count:
            state = f"ended runs are kept in {folder}" if folder.exists() else "nothing was written"
            on = f"\n  resume with: {again}" if folder.exists() else ""
            return f"interrupted before the first value had finished: {state}{on}"
        return kept(f"{self._count} of {self._total} values had finished", folder, again)


class StudyDisplay(Watcher):
    """The runs of one study. As a point of a sweep it prints only warnings, each once per sweep.

    ``count`` of ``total`` runs have ended.
    """

    def __init__(self, owner: Display, step: Step) -> None:
        self._owner, self._console, self._step, self._scenario = owner, owner.console, step, step.scenario
        self._name_width = max(map(len, step.scenario.protocols))
        self._under_way: dict[StudyRun, Progress | None] = {}
        self._ended: set[StudyRun] = set()
        self._doing = ""
        self.count, self.total = 0, len(step.scenario.protocols) * len(step.scenario.seeds)

    @property
    def _alone(self) -> bool:
        return not self._step.setting

    def described(self, lines: Sequence[str]) -> None:
        """Print the description of the data, and for a point of a sweep only warnings. Print equal lines once."""
        for line in lines:
            if line not in self._owner.printed and (self._alone or line.startswith("warning")):
                self._owner.printed.add(line)
                say(self._console, line)

    def grown(self, what: Prepared, growth: Growth) -> None:
        """Print which earlier runs are kept; for a point of a sweep, print only moved runs and warnings."""
        self.count = len(growth.kept)
        self._need_not_begin(sum(protocol in self._step.own for protocol, _ in growth.kept))
        if self._alone:
            lines = sentences(what, growth)
        else:
            lines = [f"{self._step.setting}:{line}" for line in asides(what, growth)]
            lines += [f"  warning: {note}" for note in growth.notes]
        for line in lines:
            say(self._console, line)

    def resumed(self, what: Prepared, finished: int, total: int, differences: Sequence[str]) -> None:
        """Print which earlier results are kept, and how they differ from new ones; shared runs may be among them."""
        self.count = finished
        progress = f"{finished} of {total} runs have finished and stay" if finished else "no run has finished yet"
        say(self._console, f"{what.folder}: {progress}")
        for difference in differences:
            say(self._console, f"  warning: {difference}")
        self._need_not_begin(finished)

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """Print which protocols are vectorised, and why the others are not."""
        for line in choice_lines(paths) if self._alone else ():
            say(self._console, line)

    def doing(self, what: str) -> None:
        """Show what the study does while no run is under way."""
        self._doing = what
        self._owner.show()

    def began(self, stage: StudyRun) -> None:
        """Show a line for the run until it ends."""
        self._need_not_begin(1)
        self._under_way[stage] = None
        self._owner.remaining.began(stage, self._step.number)
        self._owner.show()

    def progressed(self, stage: StudyRun, progress: Progress) -> None:
        """Show the progress of the run and of the study."""
        self._under_way[stage] = progress
        self._owner.remaining.progressed(stage, progress, self._step.number)
        self._owner.show()

    def ended(self, stage: StudyRun, report: Report) -> None:
        """Count the run; print a line for a run of a single study."""
        self._end(stage, report)
        if self._alone:
            self._print(stage, report)

    def kept(self, stage: StudyRun) -> None:
        """Count a run that was kept."""
        self._end(stage)

    def failed_analysis(self, left_out: Sequence[LeftOut]) -> None:
        """Print a warning for every closed form."""
        for each in left_out:
            say(self._console, f"warning: left out of the closed forms: {each}")

    @property
    def share(self) -> float:
        """The completed share of the runs."""
        shares = (progress.share for progress in self._under_way.values() if progress is not None)
        return (self.count + sum(shares)) / self.total

    @property
    def number(self) -> str:
        """The number of the latest run under way, of the total."""
        return f"{min(self.total, self.count + max(1, len(self._under_way)))}/{self.total}"

    def lines(self) -> Iterator[Text]:
        """Yield a line for every run under way, or for many of a protocol; without any, one with what else it does."""
        head = "" if self._alone else f"{self._step.setting}  "
        if self._doing and not self._under_way:
            yield Text.assemble((head, "bold"), f"{self._doing} …")
        counts = Counter(stage.protocol for stage in self._under_way)
        for protocol, many in counts.items():
            runs = [each for each in self._under_way.items() if each[0].protocol == protocol]
            if many > _SINGLY:  # one process trains them side by side: the one that is least far stands for them
                runs = [min(runs, key=lambda each: -1 if each[1] is None else each[1].rounds)]
            for stage, progress in runs:
                seeds = f"seed {stage.seed}" if many <= _SINGLY else f"{many} seeds"
                yield Text.assemble((head, "bold"), self._line(stage, progress, seeds))

    def interrupted(self, again: str, folder: Path) -> str:
        """Describe an interruption: how many runs are kept and where, and how to resume."""
        if self.count:
            return kept(f"{self.count} of {self.total} runs had ended", folder, again)
        before = "interrupted before the first run had ended: "
        if any(folder.glob("*/.seed-*.checkpoint")):
            return f"{before}a checkpoint is kept in {folder}\n  resume with: {again}"
        return before + (f"{folder} is as it was before" if folder.exists() else "nothing was written")

    def _need_not_begin(self, runs: int) -> None:
        waiting = self._owner.waiting
        waiting[self._step.number] = max(0, waiting.get(self._step.number, 0) - runs)

    def _end(self, stage: StudyRun, report: Report | None = None) -> None:
        seconds = None if report is None or report.error is not None else report.info.wall_clock_s
        self._owner.remaining.ended(stage, seconds, self._step.number)
        self.count += stage not in self._ended
        self._ended.add(stage)
        self._under_way.pop(stage, None)
        self._owner.show()

    def _print(self, stage: StudyRun, report: Report) -> None:
        self.described(report.info.one_by_one)
        head = (
            f"{self.count:>{len(str(self.total))}}/{self.total} ",
            (f"{stage.protocol:<{self._name_width}}", "bold"),
            f"  seed {stage.seed:<{max(len(str(seed)) for seed in self._scenario.seeds)}}  ",
        )
        if report.error is not None:
            self._console.print(
                Text.assemble(*head, (report.info.status, "red"), f": {report.error.where or report.error.what}")
            )
            return
        metric = main_metric(self._scenario, report.last)
        count = f"{quantity(report.last['time_s'], 's'):>8}  {report.info.counts['rounds']:>5,} rounds  "
        metric = f"{metric}  " if metric else ""
        note = f"  ({report.note})" if report.note else ""
        self._console.print(Text.assemble(*head, count, metric, f"stop: {report.info.stop_reason}{note}"))

    def _line(self, stage: StudyRun, progress: Progress | None, seeds: str) -> Text:
        if progress is None:
            return Text.assemble("starting ", (stage.protocol, "bold"), f", {seeds}")
        stop = self._scenario.stop_of(stage.protocol)
        trains = any(name.startswith(("train_", "test_")) for name in progress.metrics)
        return Text.assemble(
            f"{progress.doing or ('training' if trains else 'timing')} ",
            (stage.protocol, "bold"),
            f", {seeds}  {quantity(progress.time_s, 's')}",
            "" if stop.time is None else f" of {quantity(stop.time, 's')}",
            f"  round {progress.rounds:,}  {main_metric(self._scenario, progress.metrics)}",
        )


@contextmanager
def shown(wanted: bool | None, study: Scenario | None = None) -> Iterator[Display | None]:
    """Show progress on the standard error, by a new display; by default (None) in a terminal or a notebook only."""
    console = SafeConsole(stderr=True)
    interactive = live_on(console) is not None
    if not (interactive if wanted is None else wanted):
        yield None
        return
    if not interactive:
        console.width = _PLAIN_WIDTH
    with Display(console, study) as display:
        yield display
