"""``vflsim evaluate`` and ``vflsim explain``: attacks on runs, certificates against them, and which clients matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

import vflsim
from vflsim.cli.app import OnlySeeds, Protocols, ResultsFolder, Trust, app, console, known, say
from vflsim.errors import ScenarioError
from vflsim.party_names import name_from_now_on

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

    from vflsim.plotting.style import Picture
    from vflsim.results.read import Results


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
    seed: OnlySeeds = None,
    trust: Trust = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of tables and figures (default: RESULTS-evaluated).")
    ] = None,
) -> None:
    """Attack finished runs: what their models and messages give away, and what they withstand."""
    from vflsim.attacks import evaluation_tables, save
    from vflsim.attacks.evaluate import attack_figures

    stored = opened(results, protocol, seed, "evaluate", trust)
    evaluation = vflsim.evaluate(stored, attack or (), options or (), protocols=protocol or (), seeds=seed or ())
    written_and_shown(
        beside(results, out, "evaluated"),
        partial(save, evaluation),
        attack_figures(evaluation),
        evaluation_tables(evaluation),
        evaluation.left_out,
    )


@app.command()
def explain(
    results: ResultsFolder,
    protocol: Protocols = None,
    seed: OnlySeeds = None,
    trust: Trust = False,
    sd: Annotated[
        float, typer.Option(help="Standard deviation of the noise on test features, in scaled units.", min=0)
    ] = 1.0,
    tsne_rows: Annotated[int, typer.Option(help="Test rows of the t-SNE; 0 for none.", min=0)] = 1000,
    top: Annotated[
        str | None, typer.Option(help="Write a scenario that trains again with the most important clients: 50%,20%.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of tables and figures (default: RESULTS-explained).")
    ] = None,
) -> None:
    """Explain clients by their linear heads: importance, noisy test features, embeddings."""
    from vflsim.explaining import explanation_tables, save, summarised
    from vflsim.explaining.figures import explained_figures
    from vflsim.results.store.write import write_file

    stored = opened(results, protocol, seed, "explain", trust)
    shares = [_share(text) for text in top.split(",")] if top is not None else []
    explanation = vflsim.explain(stored, protocols=protocol or (), seeds=seed or (), sd=sd, tsne_rows=tsne_rows)
    again = summarised(explanation, shares) if shares else None  # before anything is written
    folder = beside(results, out, "explained")
    written_and_shown(
        folder,
        partial(save, explanation),
        explained_figures(explanation),
        explanation_tables(explanation),
        explanation.left_out,
    )
    if again is not None:
        place = write_file(folder / "summarised.yaml", again)
        say(f"the most and the least important clients alone: vflsim run {quote(str(place))}")


def _share(text: str) -> float:
    number = text.strip().removesuffix("%").strip()
    try:
        return float(number) / 100 if text.strip().endswith("%") else float(number)
    except ValueError:
        what, allowed = f"{text!r} is not a share of clients", "per cent such as 50%,20%, or 0.5,0.2"
        raise ScenarioError(what, "vflsim explain --top", allowed) from None


def opened(
    folder: Path, protocols: Iterable[str] | None, seeds: Iterable[int] | None, command: str, trust: bool
) -> Results:
    """Open results. Raises ScenarioError for a protocol or a seed that they do not have."""
    from vflsim.results.read import Results

    results = Results.open(folder, trust)
    name_from_now_on(results.scenario)
    for each in protocols or ():
        known(each, results.protocols, "protocol", f"vflsim {command} --protocol")
    for number in seeds or ():
        known(str(number), results.seeds, "seed", f"vflsim {command} --seed")
    return results


def beside(results: Path, out: Path | None, what: str) -> Path:
    """Return ``out``, or the folder ``RESULTS-<what>`` beside the results."""
    whole = results.resolve()
    return out or (results if results.name == whole.name else whole).with_name(f"{whole.name}-{what}")


def written_and_shown(
    folder: Path,
    save: Callable[[Path], list[Path]],
    figures: Iterable[tuple[str, Picture]],
    tables: Iterable[ConsoleRenderable],
    left_out: Mapping[str, str],
) -> None:
    """Write tables and figures, then print the tables, what was left out, and the files.

    A reader that closes the pipe early costs no file.
    """
    from vflsim.results.store.write import write_file

    paths = save(folder)
    paths += [write_file(folder / f"{name}.png", figure.png()) for name, figure in figures]
    page = console()
    for table in tables:
        page.print(table)
        page.print()
    for name, why in left_out.items():
        say(f"left out: {name}: {why}")
    for path in paths:
        say(str(path))
