"""``vflsim tune``: tune every protocol over the same grid, by validation rows."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from vflsim.cli.app import Overrides, ScenarioFile, app, complain, console, overriding, say
from vflsim.cli.formats import Csv, Html, Latex, Markdown, form_of, show
from vflsim.cli.options import EXECUTION, again, with_execution
from vflsim.errors import ScenarioError
from vflsim.vocabulary.execution_options import ExecutionOptions


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
    from vflsim.studies.runs.interrupt import exit_status
    from vflsim.studies.runs.options import RunOptions, remark
    from vflsim.studies.sweeps.axes import axes_of
    from vflsim.studies.sweeps.tune import tune_protocols
    from vflsim.studies.terminal.display import Display

    if len(over) > 1:
        remedy = "put commas between keys that go together: --over KEY,KEY=V1,V2,…"
        raise ScenarioError(f"a tuning has one axis, not {len(over)}", f"--over {over[1]}", "--over once", remedy)
    form = form_of("tune", latex, markdown, csv, html)
    options = RunOptions.of(**execution)
    page, tell = console(stderr=form is not None), say if form is None else complain
    (axis,) = axes_of(scenario, over, overrides or ())
    display = Display(page)
    if note := remark(execution["device"], options):
        tell(note)
    try:
        with display:
            found = tune_protocols(
                scenario,
                axis.key,
                axis.values,
                overriding(overrides, over=axis.keys),
                out_folder,
                seeds=seeds,
                metric=metric,
                score=score,
                in_tuning=overriding(in_tuning),
                options=options,
                watcher=display,
            )
    except KeyboardInterrupt as interruption:
        complain(display.interrupted(again()))
        raise typer.Exit(exit_status(interruption)) from None
    page.print()
    show(page, [tuning_table(found.tuning)], form)
    page.print()
    tell(f"{len(found.tuning.runs)} runs; all scores in {found.tuning.sweep.folder / 'tuning.md'}")
    for what, place in (("its own best value for each protocol", found.own), ("one value for all", found.common)):
        if place is not None:
            tell(f"{what}: vflsim run {quote(str(place))}")
    if None in found.tuning.chosen.values():
        raise typer.Exit(1)
