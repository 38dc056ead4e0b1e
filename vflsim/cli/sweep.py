"""``vflsim sweep``: run a scenario once for every value of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import Overrides, ScenarioFile, Seeds, app, complain, console, overriding, say
from vflsim.cli.options import CheckpointEvery, Device, Eager, Resume, Tf32, Threads, Workers, again
from vflsim.cli.runs import conclude
from vflsim.errors import ScenarioError


@app.command()
def sweep(
    scenario: ScenarioFile,
    over: Annotated[
        list[str],
        typer.Option(
            help="The key and its values: protocols.t-sync.t=1,2,4 or constants.slow=1:9:2 (for 1, 3, 5, 7).",
            metavar="KEY=V1,V2,…",
        ),
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME-sweep-KEY, or …-timing).")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")] = False,
    workers: Workers = 1,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = "60 s",
    eager: Eager = False,
    device: Device = "auto",
    threads: Threads = 1,
    tf32: Tf32 = False,
) -> None:
    """Run a scenario once for every value of one of its keys, and compare round times against it."""
    from vflsim.results.sweep_table import sweep_tables
    from vflsim.scenario.overrides import values_of
    from vflsim.studies.interrupt import exit_status
    from vflsim.studies.options import RunOptions, remark
    from vflsim.studies.sweep import keys_of, run_sweep
    from vflsim.terminal import SweepDisplay

    options = RunOptions.of(
        workers=workers,
        resume=resume,
        checkpoint_every=checkpoint_every,
        eager=eager,
        device=device,
        threads=threads,
        tf32=tf32,
    )
    page = console()
    key, values = values_of(the_one(over), "--over")
    given = overriding(overrides, seeds, keys_of(key))
    display = SweepDisplay(page, key)
    if note := remark(device, options):
        say(note)
    try:
        done = run_sweep(
            scenario, key, values, given, out_folder, timing_only=timing_only, options=options, watcher=display
        )
    except KeyboardInterrupt as interruption:
        complain(display.interrupted(again()))
        raise typer.Exit(exit_status(interruption)) from None
    for table in sweep_tables(done.sweep):
        page.print()
        page.print(table)
    page.print()
    say(f"{sum(len(found.runs) for found in done.sweep.results)} runs; files in {done.sweep.folder}")
    for text in display.failures(done):
        complain(text)
    conclude([run for found in done.sweep.results for run in found.failed])


def the_one(over: list[str]) -> str:
    """Return the key and values of a sweep. Raises ScenarioError for several: there are no grids."""
    if len(over) > 1:
        raise ScenarioError(
            f"a sweep goes over one key, not over {len(over)}",
            " ".join(f"--over {each}" for each in over),
            "one --over",
            "sweep once for every value of the other keys, with --set KEY=VALUE and an --out of its own",
        )
    return over[0]
