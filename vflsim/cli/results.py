"""Commands that read a results folder: plot, report, watch, trace, verify."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import vflsim
from vflsim.cli.app import Protocols, ResultsFolder, app, complain, known, must_be_folder, say
from vflsim.cli.options import Workers
from vflsim.cli.output import Seeds, Trust
from vflsim.errors import ResultsError, ScenarioError

if TYPE_CHECKING:
    from vflsim.results.read import Results
    from vflsim.studies.rerun import Sample


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
    from vflsim.plotting.own import is_path
    from vflsim.plotting.script import given, picture_file, picture_folder
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

    from vflsim.reporting import serving

    with serving.served(trace, serving.PORT) as server:
        place = serving.address(trace, server.port)
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
