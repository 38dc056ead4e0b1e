"""Main functions of the scripts in ``plots/``: read results, write one figure, report errors as one message."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.plotting import open_folder, plot
from vflsim.plotting.panels import metric_panels
from vflsim.plotting.places import picture_file
from vflsim.results import write_file


def main(kind: str, description: str, options: Callable[[argparse.ArgumentParser], object] | None = None) -> None:
    """Draw one figure from the command line: ``script.py RESULTS [--out FILE.png]`` and the figure's own options.

    ``options`` adds arguments named like the drawing function's parameters. The process ends with code 2 if the results
    cannot be read or the figure cannot be written.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, help="folder that vflsim run (or sweep) has written")
    parser.add_argument("--out", type=Path, help=f".png, .svg or .pdf to write (default: RESULTS/{kind}.png)")
    if options is not None:
        options(parser)
    given = vars(parser.parse_args())
    folder, out = given.pop("results"), given.pop("out")
    try:
        place = picture_file(out or folder, kind, "--out")
        print(write_file(place, plot(open_folder(folder), kind, **given).rendered(place.suffix)))
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
    metric_option(parser)
    given = parser.parse_args()
    if given.columns < 1:
        parser.error(f"--columns {given.columns}: at least 1")
    try:
        place = picture_file(given.out or given.results[0], name, "--out")
        figure = metric_panels(
            [open_folder(folder) for folder in given.results], given.columns, given.metric, given.title
        )
        print(write_file(place, figure.rendered(place.suffix)))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def metric_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--metric``: which column of the metrics to draw."""
    parser.add_argument("--metric", help="column of the metrics, e.g. test_loss (default: the target's metric)")
