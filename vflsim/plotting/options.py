"""Options of figures on a command line: those of every figure, and those that only some take."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vflsim.errors import ResultsError
from vflsim.plotting import LOOKS, figure_of, options_of, plots_of
from vflsim.plotting.own import is_path
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep

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
