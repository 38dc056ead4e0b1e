"""``vflsim export``: results in MLflow, TensorBoard, Weights & Biases or Trackio."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vflsim.cli.app import ResultsFolder, app, say


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
    from vflsim.exporting.export import export as exported

    say(exported(results, to, out, uri))
