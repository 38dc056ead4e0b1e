"""The command `vflsim plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import app, known, must_be_folder, say
from vflsim.cli.output import Trust


@app.command()
def plot(
    results: Annotated[
        Path,
        typer.Argument(help="A folder of results, or of a sweep.", metavar="RESULTS", callback=must_be_folder),
    ],
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only this figure, or a class of your own: mine:Clients (may be repeated)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the figures (default: the results' own), or the file of a single one: .png, .svg or .pdf.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Only this protocol (may be repeated).")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Column of the metrics, e.g. test_loss (default: the target's metric).")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Where the horizontal axis begins: 10 s, 20 (rounds), 5 MB.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Where the horizontal axis ends.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Width x height: 7x4 (inches), 85x60 mm or 18x10 cm.", metavar="WxH")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title instead of the scenario's name; '' for none.")] = None,
    style: Annotated[
        str | None, typer.Option(help="default, paper, slides, grey, or a Matplotlib style file (.mplstyle).")
    ] = None,
    trust: Trust = False,
) -> None:
    """Draw the figures of a results folder, or of a sweep."""
    from vflsim.plotting import figure_of, open_folder, plots_of, save_all
    from vflsim.plotting import plot as draw
    from vflsim.plotting.options import given
    from vflsim.plotting.output_paths import picture_file, picture_folder
    from vflsim.plotting.own import is_path
    from vflsim.results.store.write import write_file

    found = open_folder(results, trust)
    for name in kind or ():
        if not is_path(name):
            known(name, plots_of(found), "figure", "vflsim plot --kind")
    names = {name: figure_of(found, name).__name__ if is_path(name) else name for name in kind or ()}
    said = {"protocols": protocol, "metric": metric, "start": start, "end": end}
    options = given(found, kind or (), said | {"size": size, "title": title, "style": style})
    if kind and len(kind) == 1:
        place = picture_file(results if out is None else out, names[kind[0]], "vflsim plot --out")
        paths = [write_file(place, draw(found, kind[0], **options).rendered(place.suffix))]
    else:
        folder = None if out is None else picture_folder(out, len(kind or plots_of(found)), "vflsim plot --out")
        figures = [(names[name], draw(found, name, **options).png()) for name in kind or ()]
        paths = [write_file((folder or results) / f"{name}.png", picture) for name, picture in figures]
        paths = paths or save_all(found, folder, **options)
    for path in paths:
        say(str(path))
