"""``vflsim check``: check a scenario, and print what it would run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer
from rich.text import Text

import vflsim
from vflsim.cli.app import Overrides, Protocols, ScenarioFile, Seeds, app, console, overriding, say
from vflsim.cli.options import Threads, Workers
from vflsim.errors import DataError


@app.command()
def check(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run no rounds: predict no real time, and do not try out code of your own.")
    ] = False,
    workers: Workers = 1,
    threads: Threads = 1,
) -> None:
    """Check a scenario; print what it would run, with durations in virtual and real time, bytes and memory."""
    page = console()
    try:
        with page.status("measuring …") if page.is_terminal and not quick else nullcontext():
            found = vflsim.check(
                scenario, overriding(overrides, seeds), protocols=protocol or (), quick=quick, workers=workers,
                threads=threads,
            )  # fmt: skip
    except DataError:
        say(f"{scenario}: the scenario itself is valid, but its data cannot be used")
        raise
    from vflsim.results.tables.sections import conditions_table
    from vflsim.studies.checks.describe import described

    loaded = found.scenario
    page.print(Text.assemble((f"{scenario} is valid", "green")), soft_wrap=True)
    say(f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds = {found.runs} runs")
    for line in described(loaded, found.data):
        say(line)
    page.print()
    page.print(found.table)
    page.print()
    page.print(conditions_table({each.protocol: each.conditions for each in found.expectations if each.conditions}))
