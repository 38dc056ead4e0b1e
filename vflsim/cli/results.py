"""Commands that read a results folder: plot, report, watch, trace, verify, export, compare."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import vflsim
from vflsim.cli.app import (
    Baseline,
    Csv,
    Html,
    Latex,
    Markdown,
    Metric,
    OnlySeeds,
    Protocols,
    ResultsFolder,
    Trust,
    Workers,
    app,
    complain,
    console,
    form_of,
    known,
    must_be_folder,
    of_figures,
    say,
    show,
    with_options,
)
from vflsim.errors import ResultsError, ScenarioError

if TYPE_CHECKING:
    from vflsim.results.read import Results
    from vflsim.studies.rerun import Sample
    from vflsim.tables import DataTable


@app.command()
@with_options("look", of_figures())
def plot(
    results: Annotated[
        Path, typer.Argument(help="A folder of results, or of a sweep.", metavar="RESULTS", callback=must_be_folder)
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
    captions: Annotated[
        bool,
        typer.Option("--captions", help="Write a caption beside each figure: as text (.txt), and for LaTeX (.tex)."),
    ] = False,
    new_style: Annotated[
        Path | None,
        typer.Option(
            "--new-style",
            help="Write a style file (.yaml) with the protocols' looks and names, to edit, and draw nothing.",
        ),
    ] = None,
    trust: Trust = False,
    *,
    look: dict[str, Any],
) -> None:
    """Draw the figures of a results folder, or of a sweep."""
    from vflsim.plotting import figure_of, open_folder, plot as draw, plots_of
    from vflsim.plotting.looks import style_text, written
    from vflsim.plotting.script import PICTURE, given, picture_file, picture_folder
    from vflsim.plotting.selection import is_path
    from vflsim.results.read import NotRecordedError
    from vflsim.results.store.write import write_file

    stored = open_folder(results, trust)
    if new_style is not None:
        if new_style.exists():
            raise ResultsError("is there already", f"--new-style {new_style}", "a new file", f"--style {new_style}")
        say(str(write_file(new_style, style_text(stored))))
        return
    for name in kind or ():
        if not is_path(name):
            known(name, plots_of(stored), "figure", "vflsim plot --kind")
    names = {name: figure_of(stored, name).__name__ if is_path(name) else name for name in kind or plots_of(stored)}
    options = given(stored, kind or (), {name: value for name, value in look.items() if value != []})
    if kind and len(kind) == 1:
        places = {kind[0]: picture_file(results if out is None else out, names[kind[0]], "vflsim plot --out")}
    else:
        folder = results if out is None else picture_folder(out, len(names), "vflsim plot --out")
        places = {each: folder / f"{name}{PICTURE}" for each, name in names.items()}
    files: dict[Path, str | bytes] = {}
    for each, place in places.items():
        try:
            figure = draw(stored, each, **options)
        except NotRecordedError:
            if kind:
                raise
            continue
        files[place] = figure.rendered(place.suffix)
        files |= written(stored, each, figure, place) if captions else {}
    for place, content in files.items():
        say(str(write_file(place, content)))


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
    baseline: Baseline = None,
) -> None:
    """Write results as one HTML page: the answer, figures and tables. It needs no network, so that you can mail it."""
    say(str(vflsim.report(results, out, baseline=baseline)))


@app.command()
def watch(
    results: Annotated[Path, typer.Argument(help="A results folder; it may be absent yet.", metavar="RESULTS")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any free one.", min=0, max=65535)] = 8765,
) -> None:
    """Serve the report of a folder to this machine's browser; the page follows the study that writes the folder."""
    from vflsim.reporting.serving import watched

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
    seed: OnlySeeds = None,
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
    from vflsim.results.verify import runs_in, verify_folder
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
        differences = [f"{each.name}: {problem}" for problem in each.problems]
        lines = [f"{each.name} is left out: {each.left_out}"] if each.left_out else differences
        for line in lines or [f"{each.name} comes out again: {each.what}"]:
            say(line)
        problems += differences
        done += not each.left_out
    say(f"{done} runs computed again")
    return problems


@app.command()
def export(
    results: ResultsFolder,
    to: Annotated[Literal["mlflow", "tensorboard", "wandb", "trackio"], typer.Option(help="The tracker.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of a local store (default: RESULTS-TRACKER, a new one).")
    ] = None,
    uri: Annotated[str | None, typer.Option(help="Address of an MLflow server, instead of a local store.")] = None,
) -> None:
    """Export finished results, or a sweep's, to a tracker: every series by rounds and by virtual time."""
    from vflsim.exporting.trackers import export as exported

    say(exported(results, to, out, uri))


@app.command()
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(help="Results folders (of runs or sweeps).", metavar="RESULTS...", callback=must_be_folder),
    ],
    quantiles: Annotated[
        bool, typer.Option("--quantiles", help="Quantiles of round durations with 95 % intervals instead.")
    ] = False,
    metric: Metric = None,
    target: Annotated[
        str | None,
        typer.Option(help="Target instead of the scenario's: test_accuracy=0.85, or {test_accuracy: 0.85, for: 20 s}."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            help="Also rank the protocols when they had spent this, instead of the scenario's budget: 10 min, "
            "200 rounds, 20 MB or 500 J (may be repeated).",
        ),
    ] = None,
    pairing: Annotated[
        bool, typer.Option("--pairing", help="Add paired differences, and how much narrower pairing makes them.")
    ] = False,
    baseline: Baseline = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the table and the figures of the results.")
    ] = None,
    latex: Latex = False,
    markdown: Markdown = False,
    csv: Csv = False,
    html: Html = False,
) -> None:
    """Print the comparison of results; those of several studies are in one table."""
    from vflsim.results.read import Results, united
    from vflsim.results.statistics.costs import target_from_text
    from vflsim.results.statistics.quantiles import quantile_table
    from vflsim.results.store.folder import SWEEP
    from vflsim.results.sweeps import Sweep
    from vflsim.results.sweeps.table import sweep_tables
    from vflsim.results.tables import comparison_table
    from vflsim.results.tables.ranking import budget_tables, budgets_from

    form = form_of("compare", latex, markdown, csv, html)
    targets = None if target is None else target_from_text(target)
    budgets = budgets_from(budget, "--budget") if budget else None
    sweeps = [folder for folder in results if (folder / SWEEP).is_file()]
    studies = [Results.open(folder) for folder in results if folder not in sweeps]
    joint = united(studies, baseline) if studies else None
    joint = joint and joint.with_targets(targets)
    if metric is not None and joint is not None and not (budgets or joint.budgets):
        remedy = f"add --budget, or draw it: vflsim plot {joint.folder} --metric {metric}"
        what = "is no sweep and names no budget, whose tables show a --metric"
        raise ResultsError(what, str(joint.folder), "folders of sweeps, or --budget", remedy)
    tables: list[DataTable] = []
    if joint is not None:
        tables.append(quantile_table(joint) if quantiles else comparison_table(joint, pairing=pairing))
    tables += [] if joint is None or (quantiles and not budgets) else budget_tables(joint, budgets, metric)
    paths = [] if out is None else _written(out, joint, tables)
    for folder in sweeps:
        sweep = Sweep.open(folder, targets)
        for table in sweep_tables(sweep, metric, quantiles, budgets=budgets, baseline=baseline, pairing=pairing):
            table.title += f" ({folder})" if len(results) > 1 else ""
            tables.append(table)
    show(console(), tables, form)
    for path in paths:
        (say if form is None else complain)(str(path))


def _written(folder: Path, results: Results | None, tables: list[DataTable]) -> list[Path]:
    """Write the comparison as Markdown, and every figure that the results have data for. Raises ResultsError."""
    from vflsim.plotting import save_all
    from vflsim.plotting.style import FORMATS
    from vflsim.results.store.folder import SCENARIO, SWEEP
    from vflsim.results.store.write import write_file
    from vflsim.tables.formats import markdown

    if results is None:
        raise ResultsError("there are only sweeps, and a sweep has figures of its own", "--out", remedy="vflsim plot")
    if any((folder / name).is_file() for name in (SCENARIO, SWEEP)):
        raise ResultsError("holds results", f"--out {folder}", "a folder without results")
    if folder.suffix.lower() in FORMATS:
        raise ResultsError("is the name of one picture", f"--out {folder}", "a folder", str(folder.with_suffix("")))
    return [write_file(folder / "comparison.md", markdown(tables, tables[0].title)), *save_all(results, folder)]
