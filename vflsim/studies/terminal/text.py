"""Text about studies and sweeps: how runs are simulated, the comparison, failed runs, what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote

from rich.console import Console

from vflsim.errors import VflsimError
from vflsim.results.read import Results
from vflsim.results.tables.comparison import comparison_table
from vflsim.results.tables.sections import answers_table
from vflsim.scenario.models import Scenario
from vflsim.studies.pool import Study
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.studies.sweeps.sweep import SweepDone
from vflsim.text_table import say


def show_comparison(console: Console, study: Study, folder: Path) -> None:
    """Print the comparison, the answers under deadlines if there are any, and the results folder."""
    for table in (comparison_table(study.results), answers_table(study.results)):
        if table is not None:
            console.print()
            console.print(table)
    console.print()
    say(console, f"{study.summary}; files in {folder}")
    say(console, f"next: vflsim plot {quote(str(folder))}")


def failure(protocol: str, seed: int, error: VflsimError, results: Results) -> str:
    """Describe a failed run: which, after how many rounds, the error, and its notes."""
    rounds = results.run(protocol, seed).info.counts["rounds"]
    which = f"{protocol}, seed {seed}" + ("" if "round" in error.where else f", after {rounds:,} rounds")
    return "\n  ".join([f"error: {which}: {error}", *getattr(error, "__notes__", ())])


def failures(done: SweepDone) -> list[str]:
    """Describe the failed runs of a sweep, each with its point. Describe a shared run once."""
    sweep, lines = done.sweep, list[str]()
    for (position, protocol, seed), error in done.failures.items():
        same = [other for (other, *_), one in done.failures.items() if one is error]
        if position == same[0]:
            more = f" and {len(same) - 1} other values" if len(same) > 1 else ""
            setting = sweep.setting(sweep.points[position])
            lines.append(f"{setting}{more}: {failure(protocol, seed, error, sweep.results[position])}")
    return lines


def choice_lines(paths: Mapping[str, Choice]) -> Iterator[str]:
    """Say which protocols are vectorised, and why the others are not."""
    if quick := [name for name, choice in paths.items() if choice.path == "vectorised"]:
        yield f"vectorised: {', '.join(quick)}"
    others: dict[str, list[str]] = {}
    for name, choice in paths.items():
        if choice.path == "event":
            others.setdefault(choice.why, []).append(name)
    for why, names in others.items():
        yield f"event by event: {', '.join(names)}" + (f" ({why})" if why else "")


def kept(what: str, folder: Path, again: str) -> str:
    """Describe what an interruption has kept, and how to resume."""
    seen = f"see them with: vflsim compare {quote(str(folder))}"
    return f"interrupted: {what} and are kept in {folder}\n  {seen}\n  resume with: {again}"


def main_metric(scenario: Scenario, row: Mapping[str, float]) -> str:
    """Format the main metric of a row: the target's, else the first test metric. Empty if the row has none."""
    targets = (target.metric for target in scenario.targets)
    wanted = [*targets, *(n for n in row if n.startswith("test_"))]
    known = [name for name in wanted if name in row and name != "test_loss"]
    return f"{known[0].removeprefix('test_').replace('_', ' ')} {row[known[0]]:.4f}" if known else ""
