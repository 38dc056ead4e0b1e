"""``vflsim evaluate``: attacks on the runs of a study, and certificates against them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import ResultsFolder, app, console, known, say


@app.command()
def evaluate(
    results: ResultsFolder,
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack (may be repeated); without it all that apply.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="An option: pgd.omega=1,2", metavar="ATTACK.OPTION=VALUES")
    ] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="Only this protocol (may be repeated).")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed (may be repeated).")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of tables and figures (default: RESULTS-evaluated).")
    ] = None,
) -> None:
    """Attack finished runs: what their models and messages give away, and what they withstand."""
    from vflsim.attacks import chosen, evaluation_tables, save
    from vflsim.attacks import evaluate as evaluate_runs
    from vflsim.plotting.attacked import attack_figures
    from vflsim.results.read import Results
    from vflsim.results.write import write_file

    found = Results.open(results)
    for each in protocol or ():
        known(each, found.protocols, "protocol", "vflsim evaluate --protocol")
    for number in seed or ():
        known(str(number), found.seeds, "seed", "vflsim evaluate --seed")
    evaluation = evaluate_runs(found, chosen(attack or (), options or ()), protocol, seed, needed=bool(attack))
    whole = results.resolve()
    folder = out or (results if results.name == whole.name else whole).with_name(f"{whole.name}-evaluated")
    paths = save(evaluation, folder)
    paths += [write_file(folder / f"{name}.png", made.png()) for name, made in attack_figures(evaluation)]
    page = console()
    for table in evaluation_tables(evaluation):
        page.print(table)
        page.print()
    for name, why in evaluation.left_out.items():
        say(f"left out: {name}: {why}")
    for path in paths:
        say(str(path))
