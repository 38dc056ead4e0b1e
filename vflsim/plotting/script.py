"""Main functions of the scripts in plots/, and what the command line shares with them: options and output paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, VflsimError, printable
from vflsim.plotting import LOOKS, PLOTS, SWEEP_PLOTS, figure_of, open_folder, options_of, plot, plots_of
from vflsim.plotting.own import is_path
from vflsim.plotting.panels import metric_panels
from vflsim.plotting.style import FORMATS
from vflsim.plotting.theme import appearance
from vflsim.results import write_file
from vflsim.results.read import Results
from vflsim.results.statistics.targets import target_from_text
from vflsim.results.sweeps.sweep import Sweep
from vflsim.vocabulary.plain_yaml import parse_value

OPTIONS = {
    "protocol": "protocols",
    "metric": "metric",
    "from": "start",
    "to": "end",
    "size": "size",
    "title": "title",
    "style": "style",
}
"""Option of a command line -> parameter of :func:`vflsim.plotting.plot`."""

HELP = {
    "protocol": "Only this protocol (may be repeated).",
    "metric": "Column of the metrics, e.g. test_loss (default: the target's metric).",
    "from": "Where the horizontal axis begins: 10 s, 20 (rounds), 5 MB.",
    "to": "Where the horizontal axis ends.",
    "size": "Width x height: 7x4 (inches), 85x60 mm or 18x10 cm.",
    "title": "Title instead of the scenario's name; '' for none.",
    "style": "default, paper, slides, grey, or a Matplotlib style file (.mplstyle).",
}


def given(results: Results | Sweep, kinds: Sequence[str], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options (parameters of ``plot``) that are not None.

    Raises ResultsError for one that a figure of ``kinds`` (empty: all) does not take, with the figures that take it.
    """
    known = plots_of(results)
    options = {name: value for name, value in said.items() if value is not None}
    words = {parameter: name for name, parameter in OPTIONS.items()}
    for parameter in options:
        takers = [kind for kind in known if parameter in (*LOOKS, *options_of(known[kind]))]
        for kind in kinds or known:
            own = (*LOOKS, *options_of(figure_of(results, kind))) if is_path(kind) else ()
            if kind not in takers and parameter not in own:
                what = f"the figure {kind!r} has no --{words.get(parameter, parameter)}"
                taken = (*LOOKS, *options_of(figure_of(results, kind)))
                others = [name for name, each in OPTIONS.items() if each in taken]
                remedy = f"name figures that have it: --kind {' --kind '.join(takers)}" if takers else ""
                raise ResultsError(what, "plot", ", ".join(f"--{name}" for name in others), remedy)
    return options


def add_options(parser: argparse.ArgumentParser, names: Iterable[str] = OPTIONS) -> None:
    """Add options of ``OPTIONS`` to the parser of a script."""
    for name in names:
        action = "append" if name == "protocol" else "store"
        parser.add_argument(f"--{name}", dest=OPTIONS[name], action=action, help=HELP[name])


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
        if name not in OPTIONS.values():
            more: dict[str, Any] = {"type": target_from_text if name == "target" else _value}
            if isinstance(parameter.default, bool):
                more = {"action": "store_const", "const": not parameter.default}
            takers = [kind for kind, function in PLOTS.items() if name in options_of(function)]
            parser.add_argument(f"--{name}", help=f"Of {', '.join(takers)}.", **more)
    said = vars(parser.parse_args())
    kind, folder, out = (said.pop(name) for name in ("kind", "results", "out"))
    try:
        results = open_folder(folder)
        place = picture_file(out or folder, figure_of(results, kind).__name__ if is_path(kind) else kind, "--out")
        written = write_file(place, plot(results, kind, **given(results, [kind], said)).rendered(place.suffix))
        print(printable(str(written)))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _value(text: str) -> Any:
    return parse_value(text, "plot")[0]


def panels_main(name: str, description: str, columns: int) -> None:
    """Draw several results side by side: ``script.py RESULTS … [--out FILE.png]`` (default: in the first folder).

    The process ends with code 2 if results cannot be read or the figure cannot be written.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run (or sweep) has written")
    parser.add_argument(
        "--out", type=Path, help=f".png, .svg or .pdf to write (default: {name}.png in the first folder)"
    )
    parser.add_argument("--columns", type=int, default=columns, help="panels per row (default: %(default)s)")
    parser.add_argument("--title", action="append", default=[], help="title of a panel; repeat it for each, in order")
    add_options(parser, ("metric", "size", "style"))
    said = parser.parse_args()
    if said.columns < 1:
        parser.error(f"--columns {said.columns}: at least 1")
    try:
        place = picture_file(said.out or said.results[0], name, "--out")
        shown = [open_folder(folder) for folder in said.results]
        with appearance(said.style, said.size, None):
            figure = metric_panels(shown, said.columns, said.metric, said.title)
        print(printable(str(write_file(place, figure.rendered(place.suffix)))))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
