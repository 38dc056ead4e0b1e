"""Main functions of the scripts in ``plots/``: read results, write one figure, report errors as one message."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from vflsim.errors import VflsimError, printable
from vflsim.plotting import open_folder, plot
from vflsim.plotting.options import add_options, given
from vflsim.plotting.output_paths import picture_file
from vflsim.plotting.panels import metric_panels
from vflsim.plotting.theme import appearance
from vflsim.results import write_file


def main(kind: str, description: str, options: Callable[[argparse.ArgumentParser], object] | None = None) -> None:
    """Draw one figure from the command line: ``script.py RESULTS [--out FILE.png]`` and the options of `vflsim plot`.

    ``options`` adds others, named like the drawing function's parameters. The process ends with code 2 if the results
    cannot be read, the figure has no such option, or it cannot be written.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, help="folder that vflsim run (or sweep) has written")
    parser.add_argument("--out", type=Path, help=f".png, .svg or .pdf to write (default: RESULTS/{kind}.png)")
    add_options(parser)
    if options is not None:
        options(parser)
    said = vars(parser.parse_args())
    folder, out = said.pop("results"), said.pop("out")
    try:
        results, place = open_folder(folder), picture_file(out or folder, kind, "--out")
        written = write_file(place, plot(results, kind, **given(results, [kind], said)).rendered(place.suffix))
        print(printable(str(written)))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


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
