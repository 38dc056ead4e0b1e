"""``vflsim evaluate``: attacks on the runs of a study, and certificates against them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import vflsim
from vflsim.cli.app import Protocols, ResultsFolder, app
from vflsim.cli.output import Seeds, Trust, beside, opened, written_and_shown


@app.command()
def evaluate(
    results: ResultsFolder,
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack (may be repeated); without it all that apply.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="An option: pgd.omega=1,2", metavar="ATTACK.OPTION=VALUES")
    ] = None,
    protocol: Protocols = None,
    seed: Seeds = None,
    trust: Trust = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of tables and figures (default: RESULTS-evaluated).")
    ] = None,
) -> None:
    """Attack finished runs: what their models and messages give away, and what they withstand."""
    from vflsim.attacks import evaluation_tables, save
    from vflsim.attacks.figures import attack_figures

    found = opened(results, protocol, seed, "evaluate", trust)
    evaluation = vflsim.evaluate(found, attack or (), options or (), protocols=protocol or (), seeds=seed or ())
    written_and_shown(
        beside(results, out, "evaluated"),
        partial(save, evaluation),
        attack_figures(evaluation),
        evaluation_tables(evaluation),
        evaluation.left_out,
    )
