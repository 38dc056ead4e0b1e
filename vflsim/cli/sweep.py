"""``vflsim sweep``: run a scenario at every point of a grid of values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import Overrides, Protocols, ScenarioFile, Seeds, app, complain, console, overriding, say
from vflsim.cli.formats import Csv, Html, Latex, Markdown, Metric, form_of, show
from vflsim.cli.options import EXECUTION, again, with_execution
from vflsim.cli.runs import conclude
from vflsim.vocabulary.execution_options import ExecutionOptions


@app.command()
@with_execution(*EXECUTION)
def sweep(
    scenario: ScenarioFile,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="A key and its values: protocols.t-sync.t=1,2,4 or slow=1:9:2 (for 1, 3, 5, 7) or up=5,50,500 Mbps; "
            "several keys make a grid.",
            metavar="KEY=V1,V2,…",
        ),
    ] = None,
    over_file: Annotated[
        Path | None, typer.Option(help="A YAML file with keys and their values, besides those of --over.")
    ] = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="First values of all keys together, then the second ones, … instead.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs with estimated time and memory, and run nothing.")
    ] = False,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME-sweep-KEY, or …-timing).")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")] = False,
    metric: Metric = None,
    latex: Latex = False,
    markdown: Markdown = False,
    csv: Csv = False,
    html: Html = False,
    *,
    execution: ExecutionOptions,
) -> None:
    """Run a scenario with every combination of values of its keys, and say which are best for each protocol."""
    from vflsim.learning.learners.embedding_table import reusing_memory
    from vflsim.results.read import NotRecordedError
    from vflsim.results.sweeps.table import sweep_tables
    from vflsim.studies.runs.interrupt import exit_status
    from vflsim.studies.runs.options import RunOptions, remark
    from vflsim.studies.sweeps.axes import axes_given
    from vflsim.studies.sweeps.expected import expected_runs, expected_runs_table
    from vflsim.studies.sweeps.plan import planned
    from vflsim.studies.sweeps.sweep import run_sweep
    from vflsim.studies.terminal.display import Display
    from vflsim.studies.terminal.text import failures

    form = form_of("sweep", latex, markdown, csv, html)
    options = RunOptions.of(**execution)
    page, tell = console(stderr=form is not None), say if form is None else complain
    axes = axes_given(scenario, over or (), over_file, overrides or ())
    given = overriding(overrides, seeds, [key for axis in axes for key in axis.keys])
    display = Display(page)
    if note := remark(execution["device"], options):
        tell(note)
    plan = planned(scenario, axes, zipped=zipped, overrides=given, timing_only=timing_only, protocols=protocol or ())
    if dry_run:
        with reusing_memory():
            found = [*expected_runs(plan, options)]
        page.print(expected_runs_table(plan, found, options.workers))
        return
    if (same := plan.runs - plan.different_runs) and not options.resume:
        tell(f"{plan.runs} runs; {same} of them the same as at an earlier value, and not run again")
    try:
        with display:
            done = run_sweep(plan, out_folder, options=options, watcher=display)
    except KeyboardInterrupt as interruption:
        complain(display.interrupted(again()))
        raise typer.Exit(exit_status(interruption)) from None
    page.print()
    tables, unknown = sweep_tables(done.sweep), None
    if metric is not None:
        try:
            tables = [*sweep_tables(done.sweep, metric), *tables]
        except NotRecordedError as error:  # nothing that has been computed is left out
            unknown = error
    show(page, tables, form)
    page.print()
    tell(f"{sum(len(found.runs) for found in done.sweep.results)} runs; files in {done.sweep.folder}")
    for text in failures(done):
        complain(text)
    if unknown is not None:
        raise unknown
    conclude(done.sweep.results, again())
