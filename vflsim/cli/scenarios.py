"""``vflsim scenarios`` and ``vflsim new``: scenarios to run, and one to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vflsim.cli.app import app, completed, console, say
from vflsim.errors import ScenarioError
from vflsim.shipped import TEMPLATE, scenario_file, shipped, started, title


@app.command()
def scenarios() -> None:
    """List the scenarios that come with vflsim; run one by its name."""
    table = Table.grid(padding=(0, 2, 0, 0))
    known = shipped()
    for name, file in known.items():
        table.add_row(Text(name, style="cyan"), Text(title(file)))
    page = console()
    page.print(Padding(table, (0, 0, 1, 0)))
    say("run one: vflsim run quickstart; make one your own: vflsim new my_study --from quickstart")
    if known:
        say(f"the files: {next(iter(known.values())).parent}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The scenario's name; its file is NAME.yaml.", metavar="NAME")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Copy this scenario instead.", metavar="SCENARIO", autocompletion=completed),
    ] = None,
) -> None:
    """Write a commented scenario to start from, NAME.yaml, into the working directory."""
    from vflsim.results.store.write import write_file
    from vflsim.scenario.load import load

    file = Path(f"{name}.yaml")
    if file.exists():
        raise ScenarioError("this file exists", str(file), "a new name", "choose another name, or remove the file")
    begin = TEMPLATE if source is None else scenario_file(source)
    load(begin, [f"name={name}"])  # the name can name a folder
    write_file(file, started(name, begin))
    say(f"{file}: edit it, then vflsim check {file}, vflsim run {file}")
