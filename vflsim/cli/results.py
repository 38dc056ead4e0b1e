"""Commands that read a results folder: trace, verify."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import ResultsFolder, app, say
from vflsim.errors import ResultsError


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

    problems = verify_folder(results, say)
    for problem in problems:
        say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        raise ResultsError(count, str(results), "complete, unchanged results", "run it again with --resume")
    say(f"{runs_in(results)} runs in {results} are sound")
