"""``vflsim sweep`` and ``vflsim tune``: a scenario at every point of a grid, and a choice by validation rows."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from vflsim.cli.app import (
    EXECUTION,
    Csv,
    Html,
    Latex,
    Markdown,
    Metric,
    OverFile,
    Overrides,
    Protocols,
    ScenarioFile,
    Seeds,
    TimingOnly,
    again,
    app,
    complain,
    console,
    form_of,
    options_of,
    overriding,
    say,
    show,
    until_interrupted,
    with_execution,
)
from vflsim.cli.runs import conclude
from vflsim.errors import ScenarioError
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
    over_file: OverFile = None,
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
    timing_only: TimingOnly = False,
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
    from vflsim.studies.display import Display
    from vflsim.studies.plan import axes_given, planned
    from vflsim.studies.sweep import expected_runs_table, run_sweep
    from vflsim.studies.texts import failures

    form = form_of("sweep", latex, markdown, csv, html)
    page, tell = console(stderr=form is not None), say if form is None else complain
    options = options_of(execution, tell)
    axes = axes_given(scenario, over or (), over_file, overrides or ())
    texts = overriding(overrides, seeds, [key for axis in axes for key in axis.keys])
    plan = planned(
        scenario, axes, zipped=zipped, overrides=texts, timing_only=timing_only, protocols=protocol or (),
        quick=options.quick,
    )  # fmt: skip
    if dry_run:
        with reusing_memory():
            page.print(expected_runs_table(plan, options))
        return
    if (same := plan.runs - plan.different_runs) and not options.resume:
        tell(f"{plan.runs} runs; {same} of them the same as at an earlier value, and not run again")
    display = Display(page)
    with until_interrupted(display, lambda: display.interrupted(again())):
        done = run_sweep(plan, out_folder, options=options, watcher=display)
    page.print()
    tables, unknown = sweep_tables(done.sweep), None
    if metric is not None:
        try:
            tables = [*sweep_tables(done.sweep, metric), *tables]
        except NotRecordedError as error:  # nothing that has been computed is left out
            unknown = error
    show(page, tables, form)
    page.print()
    tell(f"{sum(len(study.runs) for study in done.sweep.results)} runs; files in {done.sweep.folder}")
    for text in failures(done):
        complain(text)
    if unknown is not None:
        raise unknown
    conclude(done.sweep.results, again())


@app.command()
@with_execution(*EXECUTION)
def tune(
    scenario: ScenarioFile,
    over: Annotated[
        list[str],
        typer.Option(
            help="Keys of training and the grid; keys with commas between them get the same value: "
            "training.client_optimizer.lr,training.server_optimizer.lr=0.001,0.01",
            metavar="KEY[,KEY]=V1,V2,…",
        ),
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME-tune).")
    ] = None,
    overrides: Overrides = None,
    in_tuning: Annotated[
        list[str] | None,
        typer.Option("--in-tuning", help="Override a key in the tuning runs alone: stop.time=500", metavar="KEY=VALUE"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Tuning seeds; none of them may be the scenario's.")] = "10000:10001",
    metric: Annotated[
        str | None, typer.Option(help="Column to score by (default: the task's first validation metric).")
    ] = None,
    score: Annotated[
        Literal["plateau", "area"],
        typer.Option(help="plateau: mean over the last tenth of the evaluations; area: mean over virtual time."),
    ] = "plateau",
    latex: Latex = False,
    markdown: Markdown = False,
    csv: Csv = False,
    html: Html = False,
    *,
    execution: ExecutionOptions,
) -> None:
    """Tune every protocol by the same procedure, and write scenarios with the chosen values."""
    from vflsim.results.sweeps.tuning import tuning_table
    from vflsim.studies.display import Display
    from vflsim.studies.plan import axes_of
    from vflsim.studies.tune import tune_protocols

    if len(over) > 1:
        remedy = "put commas between keys that go together: --over KEY,KEY=V1,V2,…"
        raise ScenarioError(f"a tuning has one axis, not {len(over)}", f"--over {over[1]}", "--over once", remedy)
    form = form_of("tune", latex, markdown, csv, html)
    page, tell = console(stderr=form is not None), say if form is None else complain
    options = options_of(execution, tell)
    (axis,) = axes_of(scenario, over, overrides or ())
    display = Display(page)
    texts, in_tuning = overriding(overrides, over=axis.keys), overriding(in_tuning)
    with until_interrupted(display, lambda: display.interrupted(again())):
        tuned = tune_protocols(
            scenario, axis.key, axis.values, texts, out_folder, seeds=seeds, metric=metric, score=score,
            in_tuning=in_tuning, options=options, watcher=display,
        )  # fmt: skip
    page.print()
    show(page, [tuning_table(tuned.tuning)], form)
    page.print()
    tell(f"{len(tuned.tuning.runs)} runs; all scores in {tuned.tuning.sweep.folder / 'tuning.md'}")
    for what, place in (("its own best value for each protocol", tuned.own), ("one value for all", tuned.common)):
        if place is not None:
            tell(f"{what}: vflsim run {quote(str(place))}")
    if None in tuned.tuning.chosen.values():
        raise typer.Exit(1)
