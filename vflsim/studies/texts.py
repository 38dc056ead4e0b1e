"""Text about studies and sweeps: how runs are simulated, the comparison, failed runs, what is kept, live changes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from vflsim.errors import VflsimError
from vflsim.results.read import Results
from vflsim.results.store.folder import Prepared
from vflsim.results.tables import comparison_table
from vflsim.results.tables.ranking import budget_tables
from vflsim.results.tables.sections import answers_table
from vflsim.scenario.models import Scenario
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import Growth, Run
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.studies.sweep import SweepDone
from vflsim.tables.terminal import say
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.plain_yaml import at_most


def show_comparison(console: Console, study: Study, folder: Path) -> None:
    """Print the comparison, budgets and answers under deadlines if there are any, and the results folder."""
    results = study.results
    for table in (comparison_table(results), *budget_tables(results), answers_table(results)):
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


_NAMED = 3
_LINES = 8


def sentences(prepared: Prepared, growth: Growth) -> list[str]:
    """Return a few lines: how many runs are kept, which are computed, and where the others are now, and why."""
    total, kept = len(growth.kept) + len(growth.left), len(growth.kept)
    anew = [run for run in growth.left if run not in growth.continued]
    lines = [f"{prepared.folder}: {_kept(kept, total)}"]
    if growth.continued:
        lines.append(f"  continued from checkpoints: {listed(growth.continued)} ({_from(growth)})")
    if anew and (kept or growth.continued):
        lines.append(f"  to compute: {listed(anew)}")
    if growth.back:
        lines.append(f"  of an earlier study here: {listed(growth.back)}")
    lines += asides(prepared, growth)
    return [*lines, *(f"  warning: {note}" for note in growth.notes)]


def asides(prepared: Prepared, growth: Growth) -> list[str]:
    """Name the runs of earlier scenarios, with their place and the reasons."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run, reasons in growth.aside.items():
        groups.setdefault(reasons, []).append(run)
    lines = (
        f"  kept in {prepared.moved_to}: {listed(runs)} ({', '.join(at_most(reasons, _NAMED))})"
        for reasons, runs in groups.items()
    )
    return at_most(lines, _LINES)


def listed(runs: Collection[Run]) -> str:
    """Name runs in groups of protocols with the same seeds: ``15 runs: seeds 5–9 of 3 protocols``."""
    seeds: dict[str, list[int]] = {}
    for name, seed in runs:
        seeds.setdefault(name, []).append(seed)
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, some in seeds.items():
        groups.setdefault(tuple(sorted(some)), []).append(name)
    parts = [f"{_seeds(some)} of {_names(names)}" for some, names in groups.items()]
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {'; '.join(at_most(parts, _NAMED))}"


def _kept(kept: int, total: int) -> str:
    if kept == total:
        return f"all {total} runs are there and stay (--anew computes them again)"
    return f"{kept} of {total} runs are there and stay" if kept else "none of its runs is kept"


def _from(growth: Growth) -> str:
    times = sorted(waypoint.position.time_s for waypoint in growth.continued.values())
    first, last = quantity(times[0], "s"), quantity(times[-1], "s")
    return f"from {first}" if first == last else f"from {first} … {last}"


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} protocols"


def _seeds(seeds: tuple[int, ...]) -> str:
    """Format sorted seeds: ``seed 3``, ``seeds 0–4, 7``."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1][1:] = [seed]
        else:
            spans.append([seed])
    texts = ["–".join(map(str, span)) for span in spans]
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(at_most(texts, _LINES))}"


class InTerminal:
    """The last lines of a terminal; they vanish at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def start(self) -> None:
        """Begin to show lines."""
        self._live.start()

    def update(self, lines: Sequence[Text]) -> None:
        """Show these lines instead."""
        self._live.update(Group(*lines))

    def stop(self) -> None:
        """Remove the lines."""
        self._live.update("")
        self._live.stop()


class InNotebook:
    """One output of a notebook's cell, changed in place. Rich's own ``Live`` needs ipywidgets there."""

    def __init__(self) -> None:
        self._handle: Any = None

    def start(self) -> None:
        """Make the output."""
        self._handle = import_module("IPython.display").display(Text(), display_id=True)

    def update(self, lines: Sequence[Text]) -> None:
        """Show these lines instead."""
        self._handle.update(Text("\n").join(lines))

    def stop(self) -> None:
        """Leave an empty output."""
        self.update([])


def live_on(console: Console) -> InTerminal | InNotebook | None:
    """Return what shows changing lines on a console; None where they cannot change, as in a file or a pipe."""
    if console.is_jupyter:
        return InNotebook()
    return InTerminal(console) if console.is_terminal else None
