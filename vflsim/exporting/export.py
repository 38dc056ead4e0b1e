"""Export results to a tracker, after the fact, from their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeAlias

from vflsim.errors import ResultsError
from vflsim.exporting.logs import Log, logs_of

TrackerName: TypeAlias = Literal["mlflow", "tensorboard", "wandb", "trackio"]
Writer: TypeAlias = Callable[[Iterable[Log], Path, str | None], str]
"""Writes runs to a store: a folder, or the address of a server. Returns where they are, and what shows them."""

TRACKERS: Mapping[TrackerName, str] = {
    "mlflow": "vflsim.exporting.to_mlflow",
    "tensorboard": "vflsim.exporting.to_tensorboard",
    "wandb": "vflsim.exporting.to_wandb",
    "trackio": "vflsim.exporting.to_trackio",
}
"""The modules that write, each with a function ``write``; they import libraries that vflsim does not need."""


def export(folder: Path, to: TrackerName, out: Path | None = None, uri: str | None = None) -> str:
    """Export every run of a results folder or of a sweep; return where they are, and how to look at them.

    ``out`` is the folder of the local store (default: ``<folder>-<to>`` beside the results), ``uri`` the address of an
    MLflow server instead. Raises ResultsError for results that cannot be read, a store of an earlier export by default,
    an address that the tracker does not take, and a library that is not installed.
    """
    if uri is not None and to != "mlflow":
        raise ResultsError(f"{to} takes no address", f"--uri {uri}", "with --to mlflow", "leave it out")
    if uri is not None and out is not None:
        raise ResultsError("two places", f"--out {out} --uri {uri}", "one of them")
    whole = folder.resolve()
    place = out or whole.with_name(f"{whole.name}-{to}")
    if out is None and uri is None and place.exists():
        what = "is there already, from an earlier export"
        raise ResultsError(what, str(place), remedy=f"remove it, or add to it with --out {place}")
    write: Writer = import_module(TRACKERS[to]).write
    return write(logs_of(folder), place, uri)


def missing(library: str, extra: str) -> ResultsError:
    """Return the error for a library that is not installed."""
    return ResultsError(
        f"{library} is not installed", f"--to {extra}", remedy=f"pip install 'vflsim[{extra}]', or {library} alone"
    )
