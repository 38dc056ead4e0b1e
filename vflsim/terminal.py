"""What a study looks like in a terminal: live progress, one line a run, the comparison at the end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from vflsim.results.report import comparison_table
from vflsim.results.write import Prepared
from vflsim.runner.conductor import Progress
from vflsim.runner.run import Outcome
from vflsim.runner.study import Stage, Study, Watcher
from vflsim.scenario.models import Scenario


class Display(Watcher):
    """Shows virtual time, rounds and the metric of the run under way; keeps a line for every run that has ended."""

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console, self._scenario = console, scenario
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def prepared(self, what: Prepared) -> None:
        """Say where earlier results went."""
        if what.moved_to is not None:
            self._console.print(f"results of another version of this scenario moved to {what.moved_to}")

    def progressed(self, stage: Stage, progress: Progress) -> None:
        """Show how far the run is."""
        table = Table.grid(padding=(0, 2))
        table.add_row(
            f"run {stage.number}/{stage.total}",
            f"[bold]{stage.protocol}[/] seed {stage.seed}",
            f"{progress.time_s:,.1f} s{self._horizon(stage)}",
            f"round {progress.rounds:,}",
            _metric(progress.metrics),
        )
        self._live.update(table)

    def ended(self, stage: Stage, outcome: Outcome) -> None:
        """A line for the run."""
        counts, info = outcome.info.counts, outcome.info
        last = outcome.tables.metrics.slice(max(0, outcome.tables.metrics.num_rows - 1)).to_pylist()
        row = last[0] if last else {}
        how = f"[red]failed: {outcome.error.what}[/]" if outcome.error else f"ended by {info.stop_reason}"
        self._console.print(
            f"{stage.number:>3}/{stage.total} [bold]{stage.protocol}[/] seed {stage.seed}: "
            f"{row.get('time_s', 0):,.1f} s, {counts['rounds']:,} rounds, {_metric(row)}, {how} "
            f"({info.wall_clock_s:.1f} s real)",
            highlight=False,
            soft_wrap=True,
        )

    def _horizon(self, stage: Stage) -> str:
        time = self._scenario.stop_of(stage.protocol).time
        return f" of {time:,.0f}" if time is not None else ""


def _metric(row: dict[str, float]) -> str:
    shown = [f"{name} {row[name]:.4f}" for name in row if name.startswith("test_") and name != "test_loss"]
    return shown[0] if shown else ""


def show_comparison(console: Console, study: Study, folder: Path) -> None:
    """The comparison, and where the files are."""
    console.print()
    console.print(comparison_table(study.results))
    console.print(
        f"{len(study.results.runs)} runs in {study.seconds:.1f} s; files in [bold]{folder}[/]", highlight=False
    )
    console.print(f"next: vflsim plot {folder}", highlight=False)
