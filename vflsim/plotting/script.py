"""Main functions of the scripts in plots/, and what the command line shares with them: options and output paths."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from vflsim.errors import ResultsError, VflsimError, printable
from vflsim.plotting import LOOKS, PLOTS, SWEEP_PLOTS, figure_of, open_folder, options_of, plot, plots_of
from vflsim.plotting.curves import (
    TIME,
    Runs,
    curve,
    limits,
    numbers_of,
    reference,
    runs_of,
    shown_of,
    without_references,
)
from vflsim.plotting.looks import kinds_of, labelled, protocol_styles
from vflsim.plotting.selection import is_path
from vflsim.plotting.style import (
    FORMATS,
    Numbers,
    Picture,
    failures,
    legend,
    metric_label,
    picture,
    remark,
    sides,
    stacked,
    x_axis,
)
from vflsim.plotting.theme import appearance
from vflsim.results import write_file
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.sweeps import Sweep
from vflsim.vocabulary.figures import FIGURE_OPTIONS
from vflsim.vocabulary.metrics import facts_of, range_of
from vflsim.vocabulary.plain_yaml import parse_value

PANEL = (3.0, 2.6)
"""Inches of one panel."""


def metric_panels(
    shown: Sequence[Results | Sweep], columns: int = 3, metric: str | None = None, titles: Sequence[str] = ()
) -> Picture:
    """Plot a metric (default: each one's main one) against virtual time, in rows of ``columns`` panels.

    A sweep has a panel per value. ``titles`` replace the scenarios' names, in order. A protocol looks the same in all
    panels. ``numbers`` as for a metric against time, with the ``panel`` (0, 1, …) in front. Raises ResultsError if the
    metric was not evaluated, NotRecordedError if no run has finished.
    """
    panels = [panel for each in shown for panel in _panels(each)]
    panels = [(title, panel) for title, (_, panel) in zip(titles, panels, strict=False)] + panels[len(titles) :]
    names = list(dict.fromkeys(name for _, results in panels for name in results.protocols))
    styles, handles = protocol_styles(kinds_of(*shown)), {}
    curves = [_panel_curves(results, names, metric) for _, results in panels]
    numbers = [
        numbers_of(lines, TIME.column, column, levels, range_of(column, results.own_metrics))
        for (column, lines, levels), (_, results) in zip(curves, panels, strict=True)
    ]
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    with picture(PANEL[0] * columns, PANEL[1] * rows + 0.3, _joined(numbers)) as figure:
        places = figure.subplots(rows, columns, squeeze=False)
        for axes, (title, results), (_, lines, levels), each in zip(places.flat, panels, curves, numbers, strict=False):
            means = each["means"]
            for name, runs in lines.items():
                handles[name] = curve(axes, means[means["protocol"] == name], runs, styles[name], logarithmic=False)
            for name, level in levels.items():
                handles[f"{name} (reference)"] = reference(axes, level, styles[name])
            limits(
                axes, np.concatenate([[*levels.values()], *(y for runs in lines.values() for _, y in runs.values())])
            )
            x_axis(axes, TIME.label, TIME.unit, logarithmic=False)
            axes.set_title(title, loc="left")
            remark(axes, shown_of(map(len, lines.values())).partition(";")[0] + failures(results))
        for axes in places.flat[len(panels) :]:
            axes.set_visible(False)
        sides(figure, metric_label(curves[-1][0], facts_of(curves[-1][0], panels[-1][1].own_metrics).unit))
        legend(figure, list(handles.values()), list(handles))
    return figure


def _panel_curves(
    results: Results, names: Sequence[str], metric: str | None
) -> tuple[str, dict[str, Runs], dict[str, float]]:
    """Return the metric of a panel, its runs by protocol, and the levels of references."""
    column = metric or results.main_metric
    if column not in results.evaluated:
        raise ResultsError(f"{column!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    curves = {name: runs for name in names if (runs := runs_of(results, name, TIME.column, column))}
    if not curves:
        raise NotRecordedError("no finished run", str(results.folder))
    return column, *without_references(results, curves, column)


def _joined(panels: Sequence[Numbers]) -> Numbers:
    """Stack the numbers of all panels, with their position (from 0) in front."""
    names = dict.fromkeys(name for panel in panels for name in panel)
    return {
        name: stacked({position: panel[name] for position, panel in enumerate(panels) if name in panel}, "panel")
        for name in names
    }


def _panels(shown: Results | Sweep) -> list[tuple[str, Results]]:
    if isinstance(shown, Results):
        return [(shown.name, shown)]
    one = len(shown.keys) == 1
    pairs = zip(shown.points, shown.results, strict=True)
    return [(f"{shown.scenario}: {point[0] if one else shown.setting(point)}", each) for point, each in pairs]


def given(results: Results | Sweep, kinds: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options (parameters of ``plot``) that are not None.

    Raises ResultsError for one that a figure of ``kinds`` (empty: all) does not take, with the figures that take it.
    """
    known = plots_of(results)
    options = {name: value for name, value in values.items() if value is not None}
    words = {option.parameter: name for name, option in FIGURE_OPTIONS.items()}
    for parameter in options:
        takers = [kind for kind in known if parameter in (*LOOKS, *options_of(known[kind]))]
        for kind in kinds or known:
            parameters = (*LOOKS, *options_of(figure_of(results, kind))) if is_path(kind) else ()
            if kind not in takers and parameter not in parameters:
                what = f"the figure {kind!r} has no --{words.get(parameter, parameter)}"
                taken = (*LOOKS, *options_of(figure_of(results, kind)))
                others = [name for name, option in FIGURE_OPTIONS.items() if option.parameter in taken]
                remedy = f"name figures that have it: --kind {' --kind '.join(takers)}" if takers else ""
                raise ResultsError(what, "plot", ", ".join(f"--{name}" for name in others), remedy)
    return options


def add_options(parser: argparse.ArgumentParser, names: Iterable[str] = FIGURE_OPTIONS) -> None:
    """Add options of ``FIGURE_OPTIONS`` to the parser of a script."""
    for option in (FIGURE_OPTIONS[name] for name in names):
        action = "append" if option.repeated else "store"
        parser.add_argument(option.flag, dest=option.parameter, action=action, help=option.help)


PICTURE = ".png"
_OTHER_PICTURES = (".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".eps", ".ps")


def picture_file(out: Path, name: str, where: str) -> Path:
    """Return the file of one picture: ``out`` if it names one, else ``<name>.png`` in the folder ``out``.

    Raises ResultsError for another picture format; ``where`` is the option that named it.
    """
    if out.is_dir() or not _is_picture(out):
        return out / f"{name}{PICTURE}"
    if out.suffix.lower() not in FORMATS:
        allowed = f"a file that ends in {', '.join(FORMATS)}, or a folder"
        raise ResultsError(f"{out}: no format of pictures", where, allowed, f"{out.with_suffix(PICTURE)}")
    return out


def picture_folder(out: Path, pictures: int, where: str) -> Path:
    """Return the folder of several pictures. Raises ResultsError for a path that looks like one picture."""
    if not out.is_dir() and _is_picture(out):
        raise ResultsError(
            f"{out} is the name of one picture, and there are {pictures}",
            where,
            f"a folder; or one --kind with a file that ends in {', '.join(FORMATS)}",
            f"{out.with_suffix('')}",
        )
    return out


def _is_picture(out: Path) -> bool:
    return out.suffix.lower() in (*FORMATS, *_OTHER_PICTURES)


def main(description: str) -> None:
    """Draw one figure: ``script.py KIND RESULTS [--out FILE.png]``, the options of `vflsim plot` and of its function.

    The process ends with code 2 if the results cannot be read, the figure has no such option, or it cannot be written.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("kind", help=f"{', '.join([*PLOTS, *SWEEP_PLOTS])}, or a class of your own: mine:Clients")
    parser.add_argument("results", type=Path, help="folder that vflsim run (or sweep) has written")
    parser.add_argument("--out", type=Path, help=".png, .svg or .pdf to write (default: RESULTS/KIND.png)")
    add_options(parser)
    every = {each.name: each for function in PLOTS.values() for each in [*signature(function).parameters.values()][1:]}
    for name, parameter in every.items():
        if name not in {option.parameter for option in FIGURE_OPTIONS.values()}:
            more: dict[str, Any] = {"type": _value}
            if isinstance(parameter.default, bool):
                more = {"action": "store_const", "const": not parameter.default}
            takers = [kind for kind, function in PLOTS.items() if name in options_of(function)]
            parser.add_argument(f"--{name}", help=f"Of {', '.join(takers)}.", **more)
    arguments = vars(parser.parse_args())
    kind, folder, out = (arguments.pop(name) for name in ("kind", "results", "out"))
    try:
        results = open_folder(folder)
        place = picture_file(out or folder, figure_of(results, kind).__name__ if is_path(kind) else kind, "--out")
        written = write_file(place, plot(results, kind, **given(results, [kind], arguments)).rendered(place.suffix))
        print(printable(str(written)))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _value(text: str) -> Any:
    return parse_value(text, "plot")[0]


def panels_main(description: str, figures: Mapping[str, tuple[str, int]]) -> None:
    """Draw several results side by side: ``script.py NAME RESULTS … [--out FILE.png]`` (default: in the first folder).

    ``figures`` has, by name, what each shows, and how many panels are in a row. The process ends with code 2 if results
    cannot be read or the figure cannot be written.
    """
    parser = argparse.ArgumentParser(description=description)
    shows = "; ".join(f"{name}: {what}" for name, (what, _) in figures.items())
    parser.add_argument("figure", choices=figures, help=shows)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run (or sweep) has written")
    parser.add_argument("--out", type=Path, help=".png, .svg or .pdf to write (default: NAME.png in the first folder)")
    parser.add_argument("--columns", type=int, help="panels per row (default: those of the figure)")
    parser.add_argument("--title", action="append", default=[], help="title of a panel; repeat it for each, in order")
    add_options(parser, ("metric", "size", "style"))
    arguments = parser.parse_args()
    columns = figures[arguments.figure][1] if arguments.columns is None else arguments.columns
    if columns < 1:
        parser.error(f"--columns {columns}: at least 1")
    try:
        place = picture_file(arguments.out or arguments.results[0], arguments.figure, "--out")
        shown = [open_folder(folder) for folder in arguments.results]
        with appearance(arguments.style, arguments.size, None):
            named = [labelled(each, {})[0] for each in shown]
            figure = metric_panels(named, columns, arguments.metric, arguments.title)
        print(printable(str(write_file(place, figure.rendered(place.suffix)))))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
