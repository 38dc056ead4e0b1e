"""What a study looks like in a terminal: live progress, one line a run, the comparison at the end."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vflsim.errors import VflsimError
from vflsim.results.layout import TextTable, say
from vflsim.results.report import comparison_table, quantity
from vflsim.results.write import Prepared
from vflsim.runner.conductor import Progress
from vflsim.runner.expected import TRIAL_STEPS, Expectation
from vflsim.runner.paths import Choice
from vflsim.runner.run import Outcome
from vflsim.runner.study import Stage, Study, Watcher
from vflsim.runner.sweep import Step, SweepWatcher
from vflsim.scenario.emit import flow
from vflsim.scenario.models import Scenario

_BAR = 8


class Interrupt:
    """Ctrl-C that cannot get lost: a library in whose callback it arrives may swallow the exception (pydantic does).

    It is raised as ever, and once more at the next ``check``.
    """

    def __init__(self) -> None:
        self._wanted = False
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, *_: object) -> None:
        self._wanted = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if there was one that has not ended the study."""
        if self._wanted:
            raise KeyboardInterrupt


class Display(Watcher):
    """One changing line for the run under way (in a terminal), and a line that stays for every run that has ended.

    ``ended`` runs are counted, so that an interruption can say what is kept.
    """

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console, self._scenario = console, scenario
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._name_width = max(map(len, scenario.protocols))
        self._prepared: Prepared | None = None
        self._interrupt = Interrupt()
        self.count, self.total = 0, len(scenario.protocols) * len(scenario.seeds)

    def __enter__(self) -> Display:
        self._interrupt.__enter__()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
        self._interrupt.__exit__()

    def prepared(self, what: Prepared) -> None:
        """Say what becomes of earlier results."""
        self._prepared = what
        if what.action == "kept":
            say(self._console, f"{what.folder} holds results of this very scenario: they are replaced run by run")

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """Which protocols are quick, and why the others are not."""
        quick = [name for name, choice in paths.items() if choice.path == "vectorised"]
        if quick:
            say(self._console, f"vectorised: {', '.join(quick)}")
        others: dict[str, list[str]] = {}
        for name, choice in paths.items():
            if choice.path == "event":
                others.setdefault(choice.why, []).append(name)
        for why, names in others.items():
            say(self._console, f"event by event: {', '.join(names)}" + (f" ({why})" if why else ""))

    def began(self, stage: Stage) -> None:
        """A run begins, unless there was a Ctrl-C."""
        self._interrupt.check()

    def progressed(self, stage: Stage, progress: Progress) -> None:
        """Show how far the run and the whole study are."""
        self._interrupt.check()
        if self._live is not None:
            self._live.update(self._progress(stage, progress))

    def ended(self, stage: Stage, outcome: Outcome) -> None:
        """A line for the run."""
        if stage.number == 1 and self._prepared is not None and self._prepared.moved_to is not None:  # for good, now
            say(self._console, f"the results of another scenario that were there are now in {self._prepared.moved_to}")
        self.count = stage.number
        head = (
            f"{stage.number:>{len(str(stage.total))}}/{stage.total} ",
            (f"{stage.protocol:<{self._name_width}}", "bold"),
            f"  seed {stage.seed:<{max(len(str(seed)) for seed in self._scenario.seeds)}}  ",
        )
        if outcome.error is not None:
            self._console.print(
                Text.assemble(*head, ("failed", "red"), f": {outcome.error.where or outcome.error.what}")
            )
            return
        rows = outcome.tables.metrics
        row = rows.slice(rows.num_rows - 1).to_pylist()[0]
        metric = self._metric(stage, row)
        count = f"{quantity(row['time_s'], 's'):>8}  {outcome.info.counts['rounds']:>5,} rounds  "
        said = f"{metric}  " if metric else ""
        note = f"  ({outcome.note})" if outcome.note else ""
        self._console.print(Text.assemble(*head, count, said, f"stop: {outcome.info.stop_reason}{note}"))

    def _progress(self, stage: Stage, progress: Progress) -> Text:
        stop = self._scenario.stop_of(stage.protocol)
        limits = (progress.time_s, stop.time), (progress.rounds, stop.rounds), (progress.updates, stop.updates)
        share = max((min(1.0, done / limit) for done, limit in limits if limit is not None), default=0.0)
        filled = round(_BAR * (stage.number - 1 + share) / stage.total)
        return Text.assemble(
            ("━" * filled, "green"),
            ("━" * (_BAR - filled), "bright_black"),
            f" {stage.number}/{stage.total}  ",
            (stage.protocol, "bold"),
            f", seed {stage.seed}  {quantity(progress.time_s, 's')}",
            "" if stop.time is None else f" of {quantity(stop.time, 's')}",
            f"  round {progress.rounds:,}  {self._metric(stage, progress.metrics)}",
            no_wrap=True,
            overflow="ellipsis",
        )

    def _metric(self, stage: Stage, row: Mapping[str, float]) -> str:
        """The metric that matters: the target's, else the first of the test metrics."""
        wanted = [*(self._scenario.stop_of(stage.protocol).target or ()), *(n for n in row if n.startswith("test_"))]
        known = [name for name in wanted if name in row and name != "test_loss"]
        return f"{known[0].removeprefix('test_').replace('_', ' ')} {row[known[0]]:.4f}" if known else ""


class SweepDisplay(SweepWatcher):
    """Like ``Display`` for the runs under way, but with one line that stays for every value of a sweep."""

    def __init__(self, console: Console, key: str) -> None:
        self._console, self._key = console, key
        self._folder = Path()
        self._moved_to: Path | None = None
        self._count = self._total = 0

    def prepared(self, folder: Path, moved_to: Path | None) -> None:
        """Remember where the results go."""
        self._folder, self._moved_to = folder, moved_to

    def watching(self, step: Step) -> Display:
        """A line for the runs of one value."""
        self._total = step.total
        return _ValueDisplay(self._console, step.scenario, f"{step.number}/{step.total} {self.said(step.value)}")

    def ended(self, step: Step, study: Study) -> None:
        """A line for the value."""
        if not self._count and self._moved_to is not None:
            say(self._console, f"another sweep that was there is now in {self._moved_to}")
        self._count = step.number
        head = f"{step.number:>{len(str(step.total))}}/{step.total} "
        count = f"  {len(study.results.runs)} runs in {study.seconds:.1f} s"
        failed = (f", {len(study.failures)} failed", "red") if study.failures else ""
        self._console.print(Text.assemble(head, (self.said(step.value), "bold"), count, failed))

    def said(self, value: object) -> str:
        """A value with its key: ``t = 4``."""
        return f"{self._key.rpartition('.')[2]} = {flow(value)}"

    def interrupted(self) -> str:
        """What an interruption leaves: how many values are kept, and where."""
        if not self._count:
            left = f"what had ended is kept in {self._folder}" if self._folder.exists() else "nothing was written"
            return f"interrupted before the first value had finished: {left}"
        return (
            f"interrupted: {self._count} of {self._total} values had finished and are kept in {self._folder}\n"
            f"  see them with: vflsim compare {self._folder}"
        )


class _ValueDisplay(Display):
    """The runs of one value of a sweep: no line stays."""

    def __init__(self, console: Console, scenario: Scenario, head: str) -> None:
        super().__init__(console, scenario)
        self._head = head

    def prepared(self, what: Prepared) -> None:
        """The sweep has said where its results are."""

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        """No line stays."""

    def ended(self, stage: Stage, outcome: Outcome) -> None:
        """Only count."""
        self.count = stage.number

    def _progress(self, stage: Stage, progress: Progress) -> Text:
        return Text.assemble((f"{self._head}  ", "bold"), super()._progress(stage, progress))


def show_comparison(console: Console, study: Study, folder: Path) -> None:
    """The comparison, and where the files are."""
    console.print()
    console.print(comparison_table(study.results))
    console.print()
    say(console, f"{len(study.results.runs)} runs in {study.seconds:.1f} s; files in {folder}")
    say(console, f"next: vflsim plot {folder}")


def failure(protocol: str, seed: int, error: VflsimError, rounds: int) -> str:
    """What is said about a run that failed: which, where in it, what; and where in the Python code, if not in ours."""
    which = f"{protocol}, seed {seed}" + ("" if "round" in error.where else f", after {rounds:,} rounds")
    text = f"error: {which}: {error}"
    cause = error.__cause__
    if cause is not None and not isinstance(cause, VflsimError):
        frames = traceback.extract_tb(cause.__traceback__)
        own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        text += f"\n  raised in: {own[-1].filename}:{own[-1].lineno}, {own[-1].name}" if own else ""
    return text


def interrupted(display: Display, folder: Path) -> str:
    """What an interruption leaves: how many runs are kept, and where."""
    if not display.count:
        left = f"{folder} is as it was before" if folder.exists() else "nothing was written"
        return f"interrupted before the first run had ended: {left}"
    return (
        f"interrupted: {display.count} of {display.total} runs had ended and are kept in {folder}\n"
        f"  see them with: vflsim compare {folder}"
    )


def expectation_table(scenario: Scenario, found: list[Expectation]) -> TextTable:
    """What runs of each protocol would be like."""
    header = ("protocol", "kind", "clients", "a step takes", "rounds at most", "bytes a round", "parameters", "memory")
    rows = [
        (
            each.protocol,
            each.kind,
            str(each.clients),
            quantity(each.step_s, "s"),
            _rounds(each.rounds),
            quantity(each.round_bytes, "B"),
            f"{each.size.parameters:,}",
            quantity(each.size.bytes, "B"),
        )
        for each in found
    ]
    steps = max(each.steps for each in found)
    many = f"up to {steps}" if steps == TRIAL_STEPS else f"{steps}"
    notes = [
        f"Times and bytes: means over {many} steps simulated without training, seed {scenario.seeds[0]}.",
        "Rounds at most: until stop's time, rounds, updates or epochs are used up; a target may end a run earlier.",
        "Memory: features, weights with gradients, and the table of a server that keeps one.",
    ]
    for name, entry in scenario.protocols.items():
        if entry.mechanism is not None:
            notes.append(f"{name}: {entry.mechanism.promise()}.")
    notes += [f"{each.protocol}: {each.coding}." for each in found if each.coding]
    if any(scenario.stop_of(each.protocol).precision for each in found):
        notes.insert(2, "Where stop.precision ends a run, its rounds are a guess from the spread of those steps.")
    return TextTable(header, rows, notes=notes, left=(0, 1))


def _rounds(limit: float) -> str:
    if limit != limit:
        return "none"
    return "unlimited" if limit == float("inf") else f"{int(limit * (1 + 1e-9)):,}"
