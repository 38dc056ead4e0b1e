"""``vflsim check``: check a scenario, and print what it would run."""

from __future__ import annotations

from rich.text import Text

from vflsim.cli.app import Overrides, ScenarioFile, Seeds, app, console, load, say
from vflsim.errors import DataError


@app.command()
def check(scenario: ScenarioFile, overrides: Overrides = None, seeds: Seeds = None) -> None:
    """Check a scenario; print what it would run, with durations, bytes and memory."""
    loaded = load(scenario, overrides, seeds)
    from vflsim.studies.checks import read_and_check
    from vflsim.studies.described import described
    from vflsim.studies.expected import expectation
    from vflsim.terminal import expectation_table

    try:
        data = read_and_check(loaded)
    except DataError:
        say(f"{scenario}: the scenario itself is valid, but its data cannot be used")
        raise
    found = [expectation(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols]
    page, runs = console(), len(loaded.protocols) * len(loaded.seeds)
    page.print(Text.assemble((f"{scenario} is valid", "green")), soft_wrap=True)
    say(f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds = {runs} runs")
    for line in described(loaded, data):
        say(line)
    page.print()
    page.print(expectation_table(loaded, found))
