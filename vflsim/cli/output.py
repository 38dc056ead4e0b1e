"""Shared by commands that read results: the trust in them, the choice of runs, the output folder, and the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import ConsoleRenderable

from vflsim.cli.app import console, known, say

if TYPE_CHECKING:
    from vflsim.plotting.style import Picture
    from vflsim.results.read import Results

Trust = Annotated[
    bool, typer.Option("--trust", help="Import the modules that the results name, which runs their code.")
]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Only this seed (may be repeated).")]


def opened(
    folder: Path, protocols: Iterable[str] | None, seeds: Iterable[int] | None, command: str, trust: bool
) -> Results:
    """Open results. Raises ScenarioError for a protocol or a seed that they do not have."""
    from vflsim.results.read import Results

    found = Results.open(folder, trust)
    for each in protocols or ():
        known(each, found.protocols, "protocol", f"vflsim {command} --protocol")
    for number in seeds or ():
        known(str(number), found.seeds, "seed", f"vflsim {command} --seed")
    return found


def beside(results: Path, out: Path | None, what: str) -> Path:
    """Return ``out``, or the folder ``RESULTS-<what>`` beside the results."""
    whole = results.resolve()
    return out or (results if results.name == whole.name else whole).with_name(f"{whole.name}-{what}")


def written_and_shown(
    folder: Path,
    save: Callable[[Path], list[Path]],
    figures: Iterable[tuple[str, Picture]],
    tables: Iterable[ConsoleRenderable],
    left_out: Mapping[str, str],
) -> None:
    """Write tables and figures, then print the tables, what was left out, and the files.

    A reader that closes the pipe early costs no file.
    """
    from vflsim.results.store.write import write_file

    paths = save(folder)
    paths += [write_file(folder / f"{name}.png", made.png()) for name, made in figures]
    page = console()
    for table in tables:
        page.print(table)
        page.print()
    for name, why in left_out.items():
        say(f"left out: {name}: {why}")
    for path in paths:
        say(str(path))
