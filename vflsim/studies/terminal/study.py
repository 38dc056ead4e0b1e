"""Terminal output of a study: live progress, one line per run, the comparison at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from vflsim.errors import VflsimError
from vflsim.results.read import Results
from vflsim.results.store.closed_forms import LeftOut
from vflsim.results.store.folder import Prepared
from vflsim.results.tables.comparison import comparison_table
from vflsim.scenario.models import Scenario
from vflsim.simulation.conductor import Progress
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import Growth, Report, StudyRun, Watcher
from vflsim.studies.runs.reuse_text import sentences
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.studies.terminal.live import live_on
from vflsim.studies.time_left import Remaining
from vflsim.text_table import SafeConsole, say
from vflsim.vocabulary.amounts import quantity, roughly

_BAR = 8
_PLAIN_WIDTH = 120
_D = TypeVar("_D")


class Display(Watcher):
    """Shows a live line for every run under way (in a terminal), and prints a line for every run that has ended.

    ``count`` of ``total`` runs have ended. ``moved_to`` is the new place of earlier results until it has been printed.
    """

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console, self._scenario = console, scenario
        self._live = live_on(console)
        self._name_width = max(map(len, scenario.protocols))
        self.moved_to: Path | None = None
        self._under_way: dict[StudyRun, Progress | None] = {}
        self._printed: set[str] = set()
        self._ended: set[StudyRun] = set()
        self.count, self.total = 0, len(scenario.protocols) * len(scenario.seeds)
        self._remaining = Remaining(dict.fromkeys(scenario.protocols, len(scenario.seeds)))
        self._point = 0

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def described(self, lines: Sequence[str]) -> None:
        """Print what the runs train on; print equal lines once."""
        for line in (line for line in lines if line not in self._printed):
            self._printed.add(line)
            say(self._console, line)

    def prepared(self, what: Prepared) -> None:
        """Print what happens to earlier results."""
        self.moved_to = what.moved_to

    def grown(self, what: Prepared, growth: Growth) -> None:
        """Print what becomes of earlier runs."""
        self.count = len(growth.kept)
        for line in sentences(what, growth):
            say(self._console, line)

    def resumed(self, what: Prepared, finished: int, total: int, differences: Sequence[str]) -> None:
        """Print which earlier results are kept, and how they differ from new ones."""
        self.count = finished
        left = f"{finished} of {total} runs have finished and stay" if finished else "no run has finished yet"
        say(self._console, f"{what.folder}: {left}")
        for difference in differences:
            say(self._console, f"  warning: {difference}")

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """Print which protocols are vectorised, and why the others are not."""
        quick = [name for name, choice in paths.items() if choice.path == "vectorised"]
        if quick:
            say(self._console, f"vectorised: {', '.join(quick)}")
        others: dict[str, list[str]] = {}
        for name, choice in paths.items():
            if choice.path == "event":
                others.setdefault(choice.why, []).append(name)
        for why, names in others.items():
            say(self._console, f"event by event: {', '.join(names)}" + (f" ({why})" if why else ""))

    def began(self, stage: StudyRun) -> None:
        """Show a line for the run until it ends."""
        self._under_way[stage] = None
        self._remaining.began(stage, self._point)
        self._show()

    def progressed(self, stage: StudyRun, progress: Progress) -> None:
        """Show the progress of the run and of the study."""
        self._under_way[stage] = progress
        self._remaining.progressed(stage, progress, self._point)
        self._show()

    def ended(self, stage: StudyRun, report: Report) -> None:
        """Print a line for the run."""
        if self.moved_to is not None:  # a run has ended: the move is final
            say(self._console, _moved(self.moved_to))
            self.moved_to = None
        self._end(stage, report)
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
        metric = self._metric(stage, report.last)
        count = f"{quantity(report.last['time_s'], 's'):>8}  {report.info.counts['rounds']:>5,} rounds  "
        metric = f"{metric}  " if metric else ""
        note = f"  ({report.note})" if report.note else ""
        self._console.print(Text.assemble(*head, count, metric, f"stop: {report.info.stop_reason}{note}"))

    def found(self, stage: StudyRun) -> None:
        """Count a run that was kept."""
        self._end(stage)

    def failed_analysis(self, left_out: Sequence[LeftOut]) -> None:
        """Print a warning for every closed form."""
        for each in left_out:
            say(self._console, f"warning: left out of the closed forms: {each}")

    def _end(self, stage: StudyRun, report: Report | None = None) -> None:
        seconds = None if report is None or report.error is not None else report.info.wall_clock_s
        self._remaining.ended(stage, seconds, self._point)
        self.count += stage not in self._ended
        self._ended.add(stage)
        self._under_way.pop(stage, None)
        self._show()

    def _show(self) -> None:
        """Show the lines of the runs under way, after a bar for all."""
        if self._live is not None:
            bar = self._bar()
            heads = [bar, *[Text(" " * bar.cell_len)] * (len(self._under_way) - 1)]
            runs = (self._line(stage, progress) for stage, progress in self._under_way.items())
            lines = (Text.assemble(head, run) for head, run in zip(heads, runs, strict=False))
            self._live.update([Text.assemble(line, no_wrap=True, overflow="ellipsis") for line in lines])

    def _bar(self) -> Text:
        shares = (progress.share for progress in self._under_way.values() if progress is not None)
        filled = round(_BAR * (self.count + sum(shares)) / self.total)
        number = min(self.total, self.count + max(1, len(self._under_way)))
        rest = ("━" * (_BAR - filled), "bright_black")
        return Text.assemble(("━" * filled, "green"), rest, f" {number}/{self.total}  {self._left()}")

    def _left(self) -> str:
        """Estimate the time that is left; targets may end runs earlier."""
        seconds = self._remaining.seconds(self.total - self.count - len(self._under_way))
        return time_left(seconds)

    def _line(self, stage: StudyRun, progress: Progress | None) -> Text:
        if progress is None:
            return Text.assemble((stage.protocol, "bold"), f", seed {stage.seed}")
        stop = self._scenario.stop_of(stage.protocol)
        return Text.assemble(
            (stage.protocol, "bold"),
            f", seed {stage.seed}  {quantity(progress.time_s, 's')}",
            "" if stop.time is None else f" of {quantity(stop.time, 's')}",
            f"  round {progress.rounds:,}  {self._metric(stage, progress.metrics)}",
        )

    def _metric(self, stage: StudyRun, row: Mapping[str, float]) -> str:
        """Format the main metric: the target's, else the first test metric."""
        targets = (target.metric for target in self._scenario.targets)
        wanted = [*targets, *(n for n in row if n.startswith("test_"))]
        known = [name for name in wanted if name in row and name != "test_loss"]
        return f"{known[0].removeprefix('test_').replace('_', ' ')} {row[known[0]]:.4f}" if known else ""


def time_left(seconds: float | None) -> str:
    """Format an estimate, with a fixed width; empty without one."""
    return "" if seconds is None else f"{f'{roughly(seconds)} left':<13}"


@contextmanager
def shown(display: Callable[[Console], AbstractContextManager[_D]], wanted: bool | None) -> Iterator[_D | None]:
    """Show progress on the standard error, by a new display; by default (None) in a terminal or a notebook only."""
    console = SafeConsole(stderr=True)
    interactive = live_on(console) is not None
    if not (interactive if wanted is None else wanted):
        yield None
        return
    if not interactive:
        console.width = _PLAIN_WIDTH
    with display(console) as showing:
        yield showing


def show_comparison(console: Console, study: Study, folder: Path) -> None:
    """Print the comparison and the results folder."""
    console.print()
    console.print(comparison_table(study.results))
    console.print()
    say(console, f"{study.summary}; files in {folder}")
    say(console, f"next: vflsim plot {quote(str(folder))}")


def failure(protocol: str, seed: int, error: VflsimError, results: Results) -> str:
    """Describe a failed run: which, after how many rounds, the error, and its notes."""
    rounds = results.run(protocol, seed).info.counts["rounds"]
    which = f"{protocol}, seed {seed}" + ("" if "round" in error.where else f", after {rounds:,} rounds")
    return "\n  ".join([f"error: {which}: {error}", *getattr(error, "__notes__", ())])


def interrupted(display: Display, folder: Path, again: str) -> str:
    """Describe an interruption: how many runs are kept and where, and how to resume."""
    if display.count:
        kept = f"{display.count} of {display.total} runs had ended and are kept in {folder}"
        return f"interrupted: {kept}\n  see them with: vflsim compare {quote(str(folder))}\n  resume with: {again}"
    if any(folder.glob("*/.seed-*.checkpoint")):
        kept = f"a checkpoint is kept in {folder}" + (f"\n  {_moved(display.moved_to)}" if display.moved_to else "")
        return f"interrupted before the first run had ended: {kept}\n  resume with: {again}"
    left = f"{folder} is as it was before" if folder.exists() else "nothing was written"
    return f"interrupted before the first run had ended: {left}"


def _moved(place: Path) -> str:
    return f"the results that were there are now in {place}"
