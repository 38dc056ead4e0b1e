"""Figures: functions from :class:`vflsim.results.Results` (or a sweep) to a Matplotlib figure."""

from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError
from vflsim.party_names import naming
from vflsim.plotting.breakdown import time_breakdown
from vflsim.plotting.clients import staleness, waited_for
from vflsim.plotting.costs import costs_to_target, speed_up
from vflsim.plotting.curves import (
    answers_under_deadlines,
    metric_against_bytes,
    metric_against_energy,
    metric_against_epsilon,
    metric_against_rounds,
    metric_against_time,
)
from vflsim.plotting.durations import round_durations, survival
from vflsim.plotting.looks import kinds_in, labelled, protocol_styles
from vflsim.plotting.selection import is_path, known_protocols, only, own_figure
from vflsim.plotting.style import Picture, bars, legend, picture, remark
from vflsim.plotting.sweeps import round_time_against, time_to_target_against
from vflsim.plotting.theme import appearance
from vflsim.plotting.timeline import link_utilisation, timeline
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.costs import target_from_text
from vflsim.results.store.write import write_file
from vflsim.results.sweeps import Sweep, open_folder

PLOTS: dict[str, Callable[..., Picture]] = {
    "time": metric_against_time,
    "rounds": metric_against_rounds,
    "bytes": metric_against_bytes,
    "energy": metric_against_energy,
    "epsilon": metric_against_epsilon,
    "target": costs_to_target,
    "speedup": speed_up,
    "durations": round_durations,
    "survival": survival,
    "waited": waited_for,
    "breakdown": time_breakdown,
    "staleness": staleness,
    "answers": answers_under_deadlines,
    "utilisation": link_utilisation,
    "timeline": timeline,
}
"""Figures of one scenario's results, by the name that :func:`plot` takes and that their files have."""

SWEEP_PLOTS: dict[str, Callable[..., Picture]] = {"sweep": round_time_against, "sweep-target": time_to_target_against}
"""Figures of a sweep, likewise."""


def plots_of(results: Results | Sweep) -> dict[str, Callable[..., Picture]]:
    """Return the figures that exist for results, or for a sweep."""
    return SWEEP_PLOTS if isinstance(results, Sweep) else PLOTS


def plot(
    results: Results | Sweep,
    kind: str,
    *,
    protocols: Sequence[str] | None = None,
    size: str | tuple[float, float] | None = None,
    title: str | None = None,
    style: str | Path | None = None,
    **options: Any,
) -> Picture:
    """Draw the figure named ``kind``, of these ``protocols`` alone if there are any.

    ``kind`` may be the path of a class of your own, ``mine:Clients``, whose fields are its options.

    ``size`` is in inches, or text: with a unit (``85x60 mm``), or a column of a paper (``single``, ``double``);
    ``style`` is a name in :data:`vflsim.plotting.theme.STYLES` or a Matplotlib style file. ``options`` are the
    function's own; a ``target`` may be text, ``test_accuracy=0.9``. Raises ResultsError for an unknown figure, an
    option that it does not take, or an unknown protocol.
    """
    function = figure_of(results, kind)
    keys = options_of(function)
    if unknown := [name for name in options if name not in keys]:
        raise ResultsError(f"the figure {kind!r} has no option {unknown[0]!r}", "plot", ", ".join((*keys, *LOOKS)))
    if isinstance(target := options.get("target"), str):
        options["target"] = target_from_text(target)
    if protocols is not None:
        known_protocols(results, protocols)
        if "protocols" in keys:
            options["protocols"] = protocols
        else:
            results = only(results, protocols)
    with appearance(style, size, title), naming({} if isinstance(results, Sweep) else results.scenario):
        shown, given = labelled(results, options)
        return function(shown, **given)


def figure_of(results: Results | Sweep, kind: str) -> Callable[..., Picture]:
    """Return the function that draws a figure, by its name or path. Raises ResultsError for an unknown one."""
    if is_path(kind):
        return own_figure(kind, results)
    known = plots_of(results)
    if kind not in known:
        what = "a sweep" if isinstance(results, Sweep) else "one scenario's results"
        allowed = f"{', '.join(known)}, or a class of your own by path, as mine:Clients"
        raise ResultsError(f"there is no figure {kind!r} of {what}", "plot", allowed)
    return known[kind]


LOOKS = ("protocols", "size", "title", "style")
"""The options of every figure."""


def options_of(function: Callable[..., Picture]) -> tuple[str, ...]:
    """Return the names of the options of a function that draws a figure."""
    return tuple(signature(function).parameters)[1:]


def save_all(results: Results | Sweep, folder: Path | str | None = None, **options: Any) -> list[Path]:
    """Save every figure for which the results have data as ``<name>.png``, each whole or not at all.

    ``folder`` (default: the results' own) is made if absent. ``options`` are those of every figure. Raises ResultsError
    if a table is damaged or the folder cannot be written.
    """
    folder = results.folder if folder is None else Path(folder)
    paths = []
    for name in plots_of(results):
        try:
            figure = plot(results, name, **options)
        except NotRecordedError:
            continue
        paths.append(write_file(folder / f"{name}.png", figure.png()))
    return paths


__all__ = [
    "PLOTS",
    "SWEEP_PLOTS",
    "Picture",
    "Results",
    "answers_under_deadlines",
    "bars",
    "costs_to_target",
    "figure_of",
    "kinds_in",
    "legend",
    "link_utilisation",
    "metric_against_bytes",
    "metric_against_energy",
    "metric_against_epsilon",
    "metric_against_rounds",
    "metric_against_time",
    "open_folder",
    "picture",
    "plot",
    "plots_of",
    "protocol_styles",
    "remark",
    "round_durations",
    "round_time_against",
    "save_all",
    "speed_up",
    "staleness",
    "survival",
    "time_breakdown",
    "time_to_target_against",
    "timeline",
    "waited_for",
]
