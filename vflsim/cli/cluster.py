"""``vflsim plan``, ``work`` and ``collect``: a study in shares, on machines that do not know of each other."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vflsim.cli.app import (
    OverFile,
    Overrides,
    ScenarioFile,
    Seeds,
    TimingOnly,
    app,
    complain,
    console,
    load,
    must_be_folder,
    overriding,
    say,
    until_interrupted,
    with_execution,
)
from vflsim.cli.runs import conclude
from vflsim.errors import ScenarioError, VflsimError
from vflsim.vocabulary.execution_options import RECORDED, ExecutionOptions, remark

if TYPE_CHECKING:
    from vflsim.results.read import Results

UnitsFile = Annotated[Path, typer.Argument(help="A file that `vflsim plan` has written.", metavar="UNITS")]


@app.command()
@with_execution(*RECORDED)
def plan(
    scenario: ScenarioFile,
    over: Annotated[
        list[str] | None,
        typer.Option(help="Plan a sweep over this key, as `vflsim sweep` does.", metavar="KEY=V1,V2,…"),
    ] = None,
    over_file: OverFile = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="First values of all keys together, then the second ones.")
    ] = False,
    overrides: Overrides = None,
    seeds: Seeds = None,
    timing_only: TimingOnly = False,
    path: Annotated[Literal["auto", "event", "vectorised"], typer.Option(help="How to simulate.")] = "auto",
    *,
    execution: ExecutionOptions,
) -> None:
    """Print one line for each run of a study or a sweep, for `vflsim work`: vflsim plan SCENARIO > units.jsonl."""
    from vflsim.studies.plan import SweepPlan, axes_given, checked_point, planned
    from vflsim.studies.units import PlanHead, UnitPlan

    head = PlanHead.model_validate({"timing_only": timing_only, "path": path, **execution})
    head.options()
    if over or over_file is not None:
        if path != "auto":
            raise ScenarioError(f"a sweep chooses the path itself, not {path}", "--path", "auto", "leave --path out")
        axes = axes_given(scenario, over or (), over_file, overrides or ())
        texts = overriding(overrides, seeds, [key for axis in axes for key in axis.keys])
        sweep = planned(scenario, axes, zipped=zipped, overrides=texts, timing_only=timing_only)
    else:
        point = checked_point(load(scenario, overrides, seeds), timing_only, path=path)
        sweep = SweepPlan((), (point,), timing_only)
    unit_plan = UnitPlan.of(head, sweep)
    sys.stdout.writelines(unit_plan.lines())
    complain(f"{len(unit_plan.units)} units; compute them: vflsim work UNITS --shard 1/4 --out FOLDER (2/4, 3/4, 4/4)")


@app.command()
@with_execution("workers", "checkpoint_every", "together")
def work(
    units: UnitsFile,
    out_folder: Annotated[Path, typer.Option("--out", help="The shard's own folder goes here: shard-03-of-20.")],
    shard: Annotated[
        str | None, typer.Option(help="Which share: 3/20 (default: the task of a Slurm array).", metavar="K/N")
    ] = None,
    *,
    execution: ExecutionOptions,
) -> None:
    """Compute a share of the units that `vflsim plan` has listed; repeated, it continues where it was interrupted."""
    from vflsim.results.sweeps.axis import setting_of
    from vflsim.studies.display import Display
    from vflsim.studies.runs.progress import Watcher
    from vflsim.studies.shards import Shard, work_on
    from vflsim.studies.sweep import Step
    from vflsim.studies.units import PlannedStudy, UnitPlan

    share = Shard.of(shard, os.environ)
    read = UnitPlan.read(units)
    options = read.head.options(**execution, resume=True)
    mine, folder, studies = share.units(read), out_folder / share.folder, read.head.studies
    again = shlex.join(["vflsim", "work", str(units), "--shard", str(share), *_same(sys.argv[2:])])
    say(f"shard {share}: {len(mine)} of {len(read.units)} units")
    if note := remark(read.head.device, options):
        say(note)
    display = Display(console(), None if read.head.keys else read.scenario(studies[0]))

    def watcher_of(study: PlannedStudy) -> Watcher:
        number, setting = studies.index(study) + 1, setting_of(read.head.keys, study.values)
        watcher = display.alone or display.watching(Step(number, len(studies), setting, read.scenario(study)))
        watcher.total = sum(unit.folder == study.folder_of(*unit.run) for unit in mine)
        display.waiting[number] = watcher.total
        return watcher

    with until_interrupted(display, lambda: display.interrupted(again, folder)):
        done = work_on(read, share, out_folder, options, watcher_of)
    for each in done:
        say(f"{each.summary}; files in {each.results.folder}")
        _failures(each.results, each.failures)
    conclude([each.results for each in done], again)


@app.command()
def collect(
    units: UnitsFile,
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of shards, or folders with them.", metavar="FOLDER…", callback=must_be_folder),
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: as `vflsim run` or `sweep` says).")
    ] = None,
) -> None:
    """Merge the results of shards into one folder, as a single process would have written it."""
    from vflsim.results.sweeps.table import sweep_tables
    from vflsim.studies.display import Display
    from vflsim.studies.shards import Collected, otherwise, runs_of
    from vflsim.studies.study import run_study
    from vflsim.studies.sweep import run_sweep
    from vflsim.studies.texts import failures, show_comparison
    from vflsim.studies.units import UnitPlan

    read, page = UnitPlan.read(units), console()
    head, engine = read.head, Collected(runs_of(read, folders))
    if head.keys:
        with Display(page) as display:
            swept = run_sweep(read.sweep(), out_folder, options=head.options(), watcher=display, engine=engine)
        results: Sequence[Results] = swept.sweep.results
        for table in sweep_tables(swept.sweep):
            page.print()
            page.print(table)
        page.print()
        say(f"{sum(len(study.runs) for study in results)} runs; files in {swept.sweep.folder}")
        for text in failures(swept):
            complain(text)
    else:
        scenario = read.scenario(head.studies[0])
        with Display(page, scenario) as display:
            study = run_study(
                scenario, out_folder, timing_only=head.timing_only, path=head.path, options=head.options(),
                watcher=display.alone, engine=engine,
            )  # fmt: skip
        results = [study.results]
        show_comparison(page, study, study.results.folder)
        _failures(study.results, study.failures)
    for difference in otherwise(read, results):
        say(f"warning: {difference}")
    again = shlex.join(["vflsim", "work", str(units), "--shard", "K/N", "--out", str(folders[0])])
    conclude(results, again)


def _failures(results: Results, failures: dict[tuple[str, int], VflsimError]) -> None:
    from vflsim.studies.texts import failure

    for (protocol, seed), error in failures.items():
        complain(failure(protocol, seed, error, results))


def _same(arguments: list[str]) -> list[str]:
    """Return the given options but ``--shard``, without the file."""
    rest = list(arguments)
    if "--shard" in rest:
        del rest[rest.index("--shard") : rest.index("--shard") + 2]
    return [each for each in rest if not each.startswith("--shard=")][1:]
