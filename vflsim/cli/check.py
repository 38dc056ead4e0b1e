"""``vflsim check``: check a scenario, and print what it would run."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.text import Text

from vflsim.cli.app import Overrides, Protocols, ScenarioFile, Seeds, app, console, load, say
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
    loaded = load(scenario, overrides, seeds, protocol)
    from vflsim.learning.learners.embedding_table import reusing_memory
    from vflsim.results.tables.conditions import conditions_table
    from vflsim.simulation.execution import patient_collector
    from vflsim.studies.checks.calibrate import ALL_S, BUDGET_S, Speed, calibrated
    from vflsim.studies.checks.data import read_and_check
    from vflsim.studies.checks.describe import described
    from vflsim.studies.checks.expected import expectation
    from vflsim.studies.checks.expected_table import expectation_table
    from vflsim.studies.checks.tryout import refuse_broken
    from vflsim.studies.runs.options import RunOptions

    options = RunOptions.of(workers=workers, threads=threads)
    with patient_collector():  # of a million clients all objects stay
        try:
            data = read_and_check(loaded, options.workers)
        except DataError:
            say(f"{scenario}: the scenario itself is valid, but its data cannot be used")
            raise
        if not quick:
            refuse_broken(loaded, data)
        start_s = time.process_time()  # a worker, too, imports all this and reads the data
        found = [expectation(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols]
    page, runs = console(), len(loaded.protocols) * len(loaded.seeds)
    page.print(Text.assemble((f"{scenario} is valid", "green")), soft_wrap=True)
    say(f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds = {runs} runs")
    for line in described(loaded, data):
        say(line)
    page.print()
    speeds: dict[str, Speed] | None = None if quick else {}
    if speeds is not None:
        budget_s = min(BUDGET_S, ALL_S / len(found))
        with page.status("measuring …") if page.is_terminal else nullcontext(), reusing_memory():
            for each in found:
                its = data.of(loaded.training_of(each.protocol))
                speeds[each.protocol] = calibrated(
                    loaded, each.protocol, its, options.execution, expected=each, budget_s=budget_s
                )
    page.print(expectation_table(loaded, found, speeds, options.workers, start_s))
    page.print()
    page.print(conditions_table({each.protocol: each.conditions for each in found if each.conditions}))
