"""Commands that read a results folder: trace, verify."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import vflsim
from vflsim.cli.app import Protocols, ResultsFolder, app, say
from vflsim.cli.options import Workers
from vflsim.cli.output import Seeds, Trust
from vflsim.errors import ResultsError, ScenarioError

if TYPE_CHECKING:
    from vflsim.studies.rerun import Sample


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
    place = vflsim.trace(results, out_file, protocol=protocol, seed=seed)
    say(str(place))
    if opened:
        _show(place)


def _show(trace: Path) -> None:
    """Open a trace in the browser's viewer, and wait until it has been fetched."""
    import webbrowser

    from vflsim.reporting import perfetto

    with perfetto.served(trace, perfetto.PORT) as server:
        place = perfetto.address(trace, server.port)
        verb = "opened" if webbrowser.open(place) else "no browser here: open"
        say(f"{verb} {place} (waiting until it fetches the trace; Ctrl-C ends this)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@app.command()
def verify(
    results: ResultsFolder,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Also compute runs again, and compare the bytes of tables and weights.")
    ] = False,
    protocol: Protocols = None,
    seed: Seeds = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="With --rerun: only this many rounds of each run, its first.", metavar="N")
    ] = None,
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="With --rerun: of each run only what follows its last checkpoint.")
    ] = False,
    workers: Workers = 1,
    trust: Trust = False,
) -> None:
    """Check that results are as they were written, and keep the rules: bytes add up, rounds have no gaps.

    With --rerun, also that they come out again: runs that are computed once more have the same bytes.
    """
    from vflsim.results.verify.runs import runs_in, verify_folder
    from vflsim.studies.rerun import Sample

    sample = Sample(protocol or (), seed or (), rounds, from_checkpoint)
    if not rerun and (sample != Sample() or workers != 1 or trust):
        what = (
            "--protocol, --seed, --rounds, --from-checkpoint, --workers and --trust say what is computed again, and how"
        )
        raise ScenarioError(what, "verify", remedy="add --rerun, or leave them out")
    problems = verify_folder(results, say)
    for problem in problems:
        say(problem)
    if rerun:
        problems += _rerun(results, sample, workers, trust)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        if rerun:
            allowed, remedy = "unchanged results that come out again", "docs/results.md, “Do they come out again?”"
        else:
            allowed, remedy = "complete, unchanged results", "run it again with --resume"
        raise ResultsError(count, str(results), allowed, remedy)
    say(f"{runs_in(results)} runs in {results} are sound")


def _rerun(results: Path, sample: Sample, workers: int, trust: bool) -> list[str]:
    """Compute runs again and print a line for each; return the problems."""
    from vflsim.studies.rerun import rerun, seconds_of

    took, done, problems = timedelta(seconds=round(seconds_of(results, sample))), 0, []
    say(f"computing again what took {took} (hours:minutes:seconds){' as whole runs' * sample.partial}")
    for each in rerun(results, sample, workers, trust):
        found = [f"{each.name}: {problem}" for problem in each.problems]
        lines = [f"{each.name} is left out: {each.left_out}"] if each.left_out else found
        for line in lines or [f"{each.name} comes out again: {each.what}"]:
            say(line)
        problems += found
        done += not each.left_out
    say(f"{done} runs computed again")
    return problems
