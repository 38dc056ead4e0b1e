"""``vflsim plan``, ``work`` and ``collect``: a study in shares, on machines that do not know of each other."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from vflsim.cli.app import Overrides, ScenarioFile, Seeds, app, complain, console, load, must_be_folder, say
from vflsim.cli.options import CheckpointEvery, Device, Eager, Tf32, Threads, Workers
from vflsim.cli.runs import conclude

UnitsFile = Annotated[Path, typer.Argument(help="A file that `vflsim plan` has written.", metavar="UNITS")]


@app.command()
def plan(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    seeds: Seeds = None,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")] = False,
    path: Annotated[
        Literal["auto", "event", "vectorised"], typer.Option(help="How to simulate timing-only runs.")
    ] = "auto",
    eager: Eager = False,
    device: Device = "auto",
    threads: Threads = 1,
    tf32: Tf32 = False,
) -> None:
    """Print one line for each run of a study, for `vflsim work`: vflsim plan SCENARIO > units.jsonl."""
    loaded = load(scenario, overrides, seeds)
    from vflsim.studies.paths import choices
    from vflsim.studies.study import checked
    from vflsim.studies.unit_file import PlanHead, UnitPlan

    head = PlanHead(timing_only=timing_only, path=path, eager=eager, device=device, threads=threads, tf32=tf32)
    head.options()
    choices(loaded, path, timing_only)
    checked(loaded, timing_only)
    made = UnitPlan.of(head, loaded)
    sys.stdout.writelines(made.lines())
    complain(f"{len(made.units)} units; compute them: vflsim work UNITS --shard 1/4 --out FOLDER (2/4, 3/4, 4/4)")


@app.command()
def work(
    units: UnitsFile,
    out_folder: Annotated[Path, typer.Option("--out", help="The shard's own folder goes here: shard-03-of-20.")],
    shard: Annotated[
        str | None, typer.Option(help="Which share: 3/20 (default: the task of a Slurm array).", metavar="K/N")
    ] = None,
    workers: Workers = 1,
    checkpoint_every: CheckpointEvery = "60 s",
) -> None:
    """Compute a share of the units that `vflsim plan` has listed; repeated, it continues where it was interrupted."""
    from vflsim.studies.interrupt import exit_status
    from vflsim.studies.options import remark
    from vflsim.studies.shards import Shard, work_on
    from vflsim.studies.unit_file import UnitPlan
    from vflsim.terminal import Display, failure, interrupted

    own = Shard.of(shard, os.environ)
    read = UnitPlan.read(units)
    options = read.head.options(workers=workers, checkpoint_every=checkpoint_every, resume=True)
    mine = own.units(read)
    again = shlex.join(["vflsim", "work", str(units), "--shard", str(own), *_same(sys.argv[2:])])
    display, folder = Display(console(), read.scenarios[read.units[0].scenario]), out_folder / own.folder
    display.total = len(mine)
    say(f"shard {own}: {len(mine)} of {len(read.units)} units")
    if note := remark(read.head.device, options):
        say(note)
    try:
        with display:
            study = work_on(read, own, out_folder, options, display)
    except KeyboardInterrupt as interruption:
        complain(interrupted(display, folder, again))
        raise typer.Exit(exit_status(interruption)) from None
    say(f"{study.summary}; files in {folder}")
    for (protocol, seed), problem in study.failures.items():
        complain(failure(protocol, seed, problem, study.results))
    if any(not run.diverged for run in study.results.failed):
        complain(f"rerun failed runs with: {again}")
    if study.results.failed:
        raise typer.Exit(1)


@app.command()
def collect(
    units: UnitsFile,
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of shards, or folders that hold them.", metavar="FOLDER…", callback=must_be_folder
        ),
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME, or NAME-timing).")
    ] = None,
) -> None:
    """Merge the results of shards into one folder, as a single process would have written it."""
    from vflsim.studies.collected import collect as collected
    from vflsim.studies.unit_file import UnitPlan
    from vflsim.terminal import Display, failure, show_comparison

    read = UnitPlan.read(units)
    display = Display(console(), read.scenarios[read.units[0].scenario])
    with display:
        study, differences = collected(read, units, folders, out_folder, display)
    show_comparison(console(), study, study.results.folder)
    for difference in differences:
        say(f"warning: {difference}")
    for (protocol, seed), problem in study.failures.items():
        complain(failure(protocol, seed, problem, study.results))
    conclude(study.results.failed)


def _same(arguments: list[str]) -> list[str]:
    """Return the given options but ``--shard``, without the file."""
    rest = list(arguments)
    if "--shard" in rest:
        del rest[rest.index("--shard") : rest.index("--shard") + 2]
    return [each for each in rest if not each.startswith("--shard=")][1:]
