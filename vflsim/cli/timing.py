"""``vflsim timing``: the timing of a scenario from files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from vflsim.cli.app import app, console, say
from vflsim.errors import ScenarioError

_DIGITS, _LONGEST_MS = 9, 1e12
"""Most digits of a number of clients; a compute time of 32 years."""


@app.command()
def timing(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A device trace of FedScale or FLASH, a platform of SimGrid, or for each client a file or folder of "
            "iperf3 --json and ping.",
            metavar="SOURCE",
        ),
    ],
    form: Annotated[
        Literal["fedscale-availability", "fedscale-capacity", "flash-states", "simgrid", "links"] | None,
        typer.Option("--format", help="What the file is (default: what it looks like)."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="The platform's host that is the server (default: the first).")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="How many clients, or their names with commas (default: all).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Draw the clients (default: the first of the file).", min=0)
    ] = None,
    interrupted: Annotated[
        Literal["lost", "resumed"], typer.Option("--interrupted", help="What an outage does to work under way.")
    ] = "resumed",
    median: Annotated[
        float,
        typer.Option("--median", help="Compute time of the median device, where speeds are relative.", metavar="MS"),
    ] = 10.0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the timing here (.yaml), in place of printing it.")
    ] = None,
) -> None:
    """Turn a trace, a platform or measured links into timing for scenarios."""
    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise ScenarioError(f"{out} is no YAML file", "vflsim timing --out", "a file that ends in .yaml")
    if not 0 < median < _LONGEST_MS:
        raise ScenarioError(f"{median:g} ms", "vflsim timing --median", f"more than 0 and less than {_LONGEST_MS:g} ms")
    from vflsim.results.store.write import write_file
    from vflsim.scenario import emit
    from vflsim.timing.foreign import Wishes, read_timing

    wanted = _number_or_names(clients)
    read = read_timing(sources, form, Wishes(server, wanted, seed, interrupted, median))
    names = ", ".join(read.names[:5]) + (", …" if len(read.names) > 5 else "")
    say(f"{read.preset['title']}: {len(read.names):,} clients: {names}")
    for note in read.notes:
        say(f"note: {note}")
    text = emit.dump(read.preset)
    if out is None:
        page = console()
        page.print()
        page.print(Text(text.rstrip()), soft_wrap=True)
    else:
        say(f"{write_file(out, text)}: vflsim run SCENARIO --set timing=null --set timing.preset={out}")


def _number_or_names(text: str | None) -> int | list[str] | None:
    """Read ``--clients``. Raises ScenarioError for none of them."""
    if text is None:
        return None
    where = "vflsim timing --clients"
    if text.strip().isdecimal():
        if len(text) > _DIGITS or int(text) < 1:
            raise ScenarioError(f"{text[:_DIGITS]}{'…' if len(text) > _DIGITS else ''}", where, "1 to 999,999,999")
        return int(text)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ScenarioError(repr(text), where, "a number, or names with commas")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ScenarioError(f"client {twice[0]!r} stands twice", where, "each client once")
    return names
