"""``vflsim report`` and ``vflsim watch``: results as one HTML page, written or served."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import vflsim
from vflsim.cli.app import app, complain, must_be_folder, say

if TYPE_CHECKING:
    from vflsim.results.read import Results


@app.command()
def report(
    results: Annotated[
        list[Path],
        typer.Argument(help="Results folders (of runs or sweeps).", metavar="RESULTS...", callback=must_be_folder),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file (default: RESULTS/report.html; of several folders: ./report.html)."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The protocol that the others are compared with (default: the first that waits for all)."),
    ] = None,
) -> None:
    """Write results as one HTML page: the answer, figures and tables. It needs no network, so that you can mail it."""
    say(str(vflsim.report(results, out, baseline=baseline)))


@app.command()
def watch(
    results: Annotated[Path, typer.Argument(help="A results folder; it may be absent yet.", metavar="RESULTS")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any free one.", min=0, max=65535)] = 8765,
) -> None:
    """Serve the report of a folder to this machine's browser; the page follows the study that writes the folder."""
    from vflsim.reporting.watch import watched

    with watched(results, port) as server:
        absent = "" if results.is_dir() else " (absent yet)"
        say(f"{results}{absent}: open http://127.0.0.1:{server.port}/ (Ctrl-C ends this)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def report_on(results: Results) -> None:
    """Write the report of a study that has ended. An error costs the report alone, and one line."""
    from vflsim.reporting import write_report

    try:
        say(f"report: {write_report([results], brief=True)}")
    except Exception as error:  # the study's results stand, whatever happens to a page about them
        complain(f"warning: no report: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
