"""Figures from results: each is a function from :class:`vflsim.results.Results` to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError
from vflsim.plotting.costs import costs_to_target
from vflsim.plotting.curves import metric_against_bytes, metric_against_rounds, metric_against_time
from vflsim.plotting.durations import round_durations
from vflsim.plotting.style import Picture, protocol_styles
from vflsim.plotting.timeline import timeline
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.write import write_file

PLOTS: dict[str, Callable[..., Picture]] = {
    "time": metric_against_time,
    "rounds": metric_against_rounds,
    "bytes": metric_against_bytes,
    "durations": round_durations,
    "target": costs_to_target,
    "timeline": timeline,
}
"""Every figure by the name under which ``Results.plot`` and the file it is saved in know it."""


def draw(kind: str, results: Results, **options: Any) -> Picture:
    """One figure by name; options are those of its function. Raises ResultsError for an unknown name."""
    if kind not in PLOTS:
        raise ResultsError(f"there is no figure {kind!r}", "plot", ", ".join(PLOTS))
    return PLOTS[kind](results, **options)


def save_all(results: Results, folder: Path | str | None = None) -> list[Path]:
    """Save every figure that these results have the data for as ``<name>.png``, whole or not at all.

    ``folder`` is the results' own by default and is made if absent; one figure is drawn at a time. Raises ResultsError
    where a table is damaged or the folder cannot be written.
    """
    folder = results.folder if folder is None else Path(folder)
    paths = []
    for name, function in PLOTS.items():
        try:
            figure = function(results)
        except NotRecordedError:
            continue
        paths.append(write_file(folder / f"{name}.png", figure.png()))
    return paths


__all__ = [
    "PLOTS",
    "Picture",
    "costs_to_target",
    "draw",
    "metric_against_bytes",
    "metric_against_rounds",
    "metric_against_time",
    "protocol_styles",
    "round_durations",
    "save_all",
    "timeline",
]
