"""``vflsim explore``: a page to play with time."""

from __future__ import annotations

import contextlib
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import app, completed, say
from vflsim.shipped import scenario_file


def _may_be_left_out(context: typer.Context, scenario: Path | None) -> Path | None:
    """Refuse a mistyped name before the imports that take seconds."""
    if scenario is not None and not context.resilient_parsing:
        scenario_file(scenario)
    return scenario


@app.command()
def explore(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            help="A scenario to begin with, a file or a name (default: the template of `vflsim new`).",
            metavar="[SCENARIO]",
            callback=_may_be_left_out,
            autocompletion=completed,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any free one.", min=0, max=65535)] = 8766,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Play with time on a page in this machine's browser: turn delays and links, and see at once what rounds take."""
    from vflsim.exploring.server import served

    with served(scenario, port, Path.cwd()) as (server, address):
        begun = browse and webbrowser.open(address)
        say(f"{'opened' if begun else 'open'} {address} (Ctrl-C ends this)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
