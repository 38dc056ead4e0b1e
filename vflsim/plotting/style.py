"""Common style of all figures: one palette, one font size, units on every axis, legends outside the axes.

Figures do not use pyplot: no global state, no window, any thread.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vflsim.plotting.numbers import Numbers
from vflsim.results.read import Results

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's colours, safe for colour-blind readers; without yellow, which is invisible on white."""

_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.solid_capstyle": "butt",
    "hatch.linewidth": 0.6,
}
DPI = 200
FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"Software": "vflsim"},
    ".svg": {"Creator": "vflsim", "Date": None},
    ".pdf": {"Creator": "vflsim", "CreationDate": None},
}
"""The formats of figures by suffix, with metadata that do not differ between repetitions."""
WIDE = 5.0
"""Ratio of largest to smallest value above which an axis is logarithmic."""


@dataclass(frozen=True)
class Style:
    """Look of one protocol in every figure."""

    color: str
    dash: Any
    marker: str


@final
class Picture(Figure):
    """A Matplotlib figure that a notebook shows without pyplot.

    ``numbers`` holds the numbers that it draws, as frames by name; the docstring of the function that draws it lists
    them with their columns. They are in SI units, and complete even if the drawing is thinned or cut off.
    """

    numbers: Numbers

    def png(self) -> bytes:
        """Render the figure as PNG; equal figures give equal bytes."""
        return self.rendered(".png")

    def rendered(self, suffix: str) -> bytes:
        """Render the figure as ``.png``, ``.svg`` or ``.pdf``; equal figures give equal bytes.

        Raises KeyError for another suffix.
        """
        buffer, metadata = io.BytesIO(), FORMATS[suffix.lower()]
        with mpl.rc_context({**_RC, "svg.hashsalt": "vflsim", "pdf.fonttype": 42}):
            kind = suffix.lower().removeprefix(".")
            self.savefig(buffer, format=kind, dpi=DPI, facecolor="white", metadata=metadata)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()


def protocol_styles(protocols: Sequence[str]) -> dict[str, Style]:
    """Assign a colour, line and marker to every protocol by its place in the scenario: the same in all figures."""
    dashes = (dash for dash in itertools.cycle(_DASHES) for _ in PALETTE)
    looks = zip(itertools.cycle(PALETTE), dashes, itertools.cycle(_MARKERS), strict=False)
    return {name: Style(*look) for name, look in zip(protocols, looks, strict=False)}


@contextmanager
def picture(width: float, height: float, numbers: Numbers) -> Iterator[Picture]:
    """Make an empty figure (size in inches) to draw on inside the context; ``numbers`` are what it will show."""
    with mpl.rc_context(_RC):
        figure = Picture(figsize=(width, height), layout="constrained")
        figure.numbers = numbers
        FigureCanvasAgg(figure)
        yield figure


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int = 6) -> None:
    """Add a legend below the axes, in as many columns as fit the figure's width."""
    for ncols in range(min(columns, max(1, len(labels))), 0, -1):
        made = figure.legend(handles, labels, loc="outside lower center", ncols=ncols, handlelength=2.2)
        if ncols == 1 or made.get_window_extent().width <= figure.bbox.width:
            return
        made.remove()


def spread_widely(values: Iterable[float], ratio: float = WIDE) -> bool:
    """Whether positive values differ so much that only a logarithmic axis shows all of them."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > ratio * min(positive)


def x_axis(axes: Axes, label: str, unit: str, *, logarithmic: bool) -> None:
    """Label and scale the x axis; a linear one starts at 0, bytes get SI prefixes."""
    axes.set_xlabel(f"{label} [{unit}]" if unit else label)
    if logarithmic:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        # Over few decades, powers of ten alone would leave one or two labels.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=8))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    else:
        axes.set_xlim(left=0)
    if unit == "B":
        axes.set_xlabel(label)
        if not logarithmic:
            axes.xaxis.set_major_locator(MaxNLocator(5))  # their labels are long
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))


def plain_number(value: float, _: object = None) -> str:
    """Format a tick's label, without powers of ten if it is short without them."""
    return f"{value:g}" if value == 0 or 1e-3 <= value < 1e5 else f"{value:.0e}"


def remark(axes: Axes, text: str) -> None:
    """Add a small line between title and axes that explains means, bands and markers."""
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=17)
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", fontsize=7.5, color="#666666"
    )


def sides(figure: Figure, label: str) -> None:
    """Add one label for the y axes of all panels."""
    figure.supylabel(label, fontsize=9)


def failures(results: Results, costs: bool = False) -> str:
    """Name the protocols with failed or diverged runs, for a figure's remark.

    A figure of ``costs`` to a target leaves out failed runs only; diverged runs count as not reaching it.
    """
    note = ""
    for diverged, what in ((True, "diverged"), (False, "failed")):
        if names := dict.fromkeys(run.protocol for run in results.failed if run.diverged is diverged):
            note += f"; {what} runs{'' if diverged and costs else ' left out'}: {', '.join(names)}"
    return note


def target_label(target: str) -> str:
    """Format a target as an axis label, without its duration: ``test accuracy ≥ 0.9``."""
    return metric_label(target.partition(" for ")[0])


def metric_label(column: str) -> str:
    """Format a metrics column as an axis label: ``test_accuracy`` -> ``test accuracy``."""
    return column.replace("_auc", "_AUC").replace("_rmse", "_RMSE").replace("_r2", "_R²").replace("_", " ")
