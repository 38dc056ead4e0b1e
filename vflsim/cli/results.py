"""Commands that read a results folder: plot, trace, verify."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import ResultsFolder, app, known, must_be_folder, say
from vflsim.errors import ResultsError


@app.command()
def plot(
    results: Annotated[
        Path,
        typer.Argument(help="A folder of results, or of a sweep.", metavar="RESULTS", callback=must_be_folder),
    ],
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this figure (may be repeated).")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the figures (default: the results' own), or the file of a single one: .png, .svg or .pdf.",
        ),
    ] = None,
) -> None:
    """Draw the figures of a results folder, or of a sweep."""
    from vflsim.plotting import open_folder, plots_of, save_all
    from vflsim.plotting import plot as draw
    from vflsim.plotting.places import picture_file, picture_folder
    from vflsim.results.write import write_file

    found = open_folder(results)
    for name in kind or ():
        known(name, plots_of(found), "figure", "vflsim plot --kind")
    if kind and len(kind) == 1:
        place = picture_file(results if out is None else out, kind[0], "vflsim plot --out")
        paths = [write_file(place, draw(found, kind[0]).rendered(place.suffix))]
    else:
        folder = None if out is None else picture_folder(out, len(kind or plots_of(found)), "vflsim plot --out")
        figures = [(name, draw(found, name).png()) for name in kind or ()]
        paths = [write_file((folder or results) / f"{name}.png", picture) for name, picture in figures]
        paths = paths or save_all(found, folder)
    for path in paths:
        say(str(path))


@app.command()
def trace(
    results: ResultsFolder,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol's runs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Only this seed's runs.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The file (default: RESULTS/trace.json); .gz compresses it.")
    ] = None,
    opened: Annotated[
        bool, typer.Option("--open", help="Show it in ui.perfetto.dev, which fetches it from this machine once.")
    ] = False,
) -> None:
    """Write runs as a trace for ui.perfetto.dev or chrome://tracing, with messages as arrows."""
    from vflsim.results.read import Results
    from vflsim.results.trace import write_trace

    place = write_trace(Results.open(results), out_file, protocol, seed)
    say(str(place))
    if opened:
        _show(place)


def _show(trace: Path) -> None:
    """Open a trace in the browser's viewer, and wait until it has been fetched."""
    import webbrowser

    from vflsim.report import perfetto

    with perfetto.served(trace, perfetto.PORT) as server:
        place = perfetto.address(trace, server.port)
        verb = "opened" if webbrowser.open(place) else "no browser here: open"
        say(f"{verb} {place} (waiting until it fetches the trace; Ctrl-C ends this)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@app.command()
def verify(results: ResultsFolder) -> None:
    """Check that results are as they were written, and keep the rules: bytes add up, rounds have no gaps."""
    from vflsim.results.verify import runs_in, verify_folder

    problems = verify_folder(results)
    for problem in problems:
        say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        raise ResultsError(count, str(results), "complete, unchanged results", "run it again with --resume")
    say(f"{runs_in(results)} runs in {results} are sound")
