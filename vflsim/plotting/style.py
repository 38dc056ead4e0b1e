"""Common style of all figures: one palette, one font size, units on every axis, legends outside the axes.

Figures do not use pyplot: no global state, no window, any thread.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any, final
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vflsim.errors import ResultsError
from vflsim.party_names import titled
from vflsim.plotting.fit import NAMES, Fitting
from vflsim.plotting.theme import RC, current
from vflsim.results.read import Results

Numbers = dict[str, pd.DataFrame]


def stacked(parts: Mapping[Any, Mapping[str, Any] | pd.DataFrame], key: str = "protocol") -> pd.DataFrame:
    """Stack the columns of all parts into one frame, with the part's name in front as ``key``."""
    frames = []
    for name, columns in parts.items():
        frame = pd.DataFrame(columns).reset_index(drop=True)
        frame.insert(0, key, name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({key: []})


def frame(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Make a frame from rows."""
    return pd.DataFrame.from_records([tuple(row) for row in rows], columns=list(columns))


DPI = 200
FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"Software": "vflsim"},
    ".svg": {"Creator": "vflsim", "Date": None},
    ".pdf": {"Creator": "vflsim", "CreationDate": None},
}
"""The formats of figures by suffix, with metadata that do not differ between repetitions."""
FONTS: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "vflsim"}
"""Files hold TrueType fonts (PDF, PostScript) and text (SVG), as publishers ask."""
_HATCHES = ("", "....", "\\\\\\\\", "xxxx", "++", "||||", "----", "oo", "**", "OO")
_LUMINANCE = (0.299, 0.587, 0.114)
_PANEL = 1.35
"""Inches that a panel has at least in the default style's font, if several are side by side."""
WIDE = 5.0
"""Ratio of largest to smallest value above which an axis is logarithmic."""


@final
class Picture(Figure):
    """A Matplotlib figure that a notebook shows without pyplot.

    ``numbers`` holds the numbers that it draws, as frames by name; the docstring of the function that draws it lists
    them with their columns. They are in SI units, and complete even if the drawing is thinned or cut off. ``notes`` are
    the lines above axes that explain means and marks, ``explained`` the title and the lines above all of them.
    """

    numbers: Numbers
    rc: dict[Any, Any]
    notes: dict[Axes, Text]
    explained: list[str]

    def png(self) -> bytes:
        """Render the figure as PNG; equal figures give equal bytes."""
        return self.rendered(".png")

    def rendered(self, suffix: str, letters: bool = False) -> bytes:
        """Render the figure as ``.png``, ``.svg`` or ``.pdf``; equal figures give equal bytes.

        Files have fonts and text, so that text can be searched and edited; ``letters`` are shapes in an SVG instead.
        Raises KeyError for another suffix, ResultsError if the axes have no room beside their labels.
        """
        buffer, metadata = io.BytesIO(), FORMATS[suffix.lower()]
        with mpl.rc_context({**self.rc, **FONTS} | ({"svg.fonttype": "path"} if letters else {})), catch_warnings():
            filterwarnings("error", "constrained_layout not applied")
            kind = suffix.lower().removeprefix(".")
            try:
                super().savefig(buffer, format=kind, dpi=DPI, facecolor="white", metadata=metadata)
            except UserWarning as error:
                width, height = self.get_size_inches()
                what = f"the labels leave no room for the figure in {width:.3g} x {height:.3g} inches"
                raise ResultsError(what, "plot: size", "a larger size, or smaller fonts") from error
        return buffer.getvalue()

    def savefig(self, *place: Any, **options: Any) -> None:
        """Save the figure as Matplotlib does, with fonts in the file."""
        with mpl.rc_context({**self.rc, **FONTS}):
            super().savefig(*place, **options)

    def _repr_png_(self) -> bytes:
        return self.png()


@contextmanager
def picture(width: float, height: float, numbers: Numbers) -> Iterator[Picture]:
    """Make an empty figure to draw on inside the context; ``numbers`` are what it will show.

    The size in inches is that of the default style.
    """
    look = current()
    with mpl.rc_context(rc := {**RC, **look.rc}):
        figure = Picture(figsize=look.inches(width, height), layout="constrained")
        figure.numbers, figure.rc, figure.notes, figure.explained = numbers, rc, {}, []
        FigureCanvasAgg(figure)
        yield figure
        Fitting(figure, figure.notes, grows=look.size is None).run()
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        for line in (*lines, *(line for legend in figure.legends for line in legend.get_lines())):
            line.set_linewidth(look.lines * line.get_linewidth())
            line.set_markersize(look.lines * line.get_markersize())
        if look.grey:
            _without_colours(figure)


def columns_of(panels: int, width: float, names: Iterable[str]) -> int:
    """Return how many panels stand side by side, with the names of rows at their left.

    ``width`` is that of the default style, in inches. If not all panels fit, rows have as equal numbers as can be.
    """
    look = current()
    size = {**RC, **look.rc}["font.size"]
    wide, _ = look.inches(width, 1.0)
    room = wide - min(NAMES * wide, 0.5 * size / 72 * max(map(len, names)))
    most = max(1, min(panels, int(room / (_PANEL * size / RC["font.size"]))))
    return ceil(panels / ceil(panels / most))


def panels_of(figure: Figure, panels: int, columns: int) -> list[Axes]:
    """Make so many panels in ``columns`` that share their rows' names; places that are left are empty."""
    every = figure.subplots(ceil(panels / columns), columns, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.06})
    for axes in every.flat[panels:]:
        axes.set_visible(False)
    return list(every.flat[:panels])


def _without_colours(figure: Figure) -> None:
    """Replace every colour by the grey of its luminance; bars of many parts get hatches."""
    keys = [patch for legend in figure.legends for patch in legend.get_patches() if not patch.get_hatch()]
    dark = [patch.get_facecolor() for patch in keys if np.dot(patch.get_facecolor()[:3], _LUMINANCE) < 0.9]
    if len(dark) > 3 and not any(axes.collections for axes in figure.axes):
        hatches = dict(zip(dark, _HATCHES, strict=False))
        for bar in (each for each in figure.findobj(Patch) if isinstance(each, Patch) and not each.get_hatch()):
            if (hatch := hatches.get(bar.get_facecolor())) is not None:
                bar.set(hatch=hatch, edgecolor="#222222", linewidth=0.4)
    for artist in figure.findobj():
        for what in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = (getattr(artist, f"{verb}_{what}", None) for verb in ("get", "set"))
            if get is None or put is None or (isinstance(artist, Patch | Collection) and what == "color"):
                continue
            colors = mpl.colors.to_rgba_array(get())
            colors[:, :3] = (colors[:, :3] @ _LUMINANCE)[:, None]
            put(colors if isinstance(artist, Collection) else tuple(colors[0]) if len(colors) else "none")


def headline(place: Axes | Picture, text: str = "", note: str = "") -> None:
    """Write the title of a figure above its (first) axes, or above all of them: the user's, or ``text``.

    Above all axes, a ``note`` follows that explains means and marks.
    """
    title = current().title
    words = "\n".join(filter(None, (" ".join((text if title is None else title).split()), note)))
    figure = place.get_figure(root=True) if isinstance(place, Axes) else place
    if isinstance(figure, Picture):
        figure.explained += [text, note]
    if isinstance(place, Axes):
        place.set_title(words, loc="left")
    elif words:
        place.suptitle(words, x=0.01, ha="left", fontsize=place.rc["axes.titlesize"])


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int = 6) -> None:
    """Add a legend below the axes, in as many columns as fit the figure's width."""
    for ncols in range(min(columns, max(1, len(labels))), 0, -1):
        box = figure.legend(handles, labels, loc="outside lower center", ncols=ncols, handlelength=2.2)
        if ncols == 1 or box.get_window_extent().width <= figure.bbox.width:
            return
        box.remove()


def spread_widely(values: Iterable[float], ratio: float = WIDE) -> bool:
    """Whether positive values differ so much that only a logarithmic axis shows all of them."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > ratio * min(positive)


def x_axis(axes: Axes, label: str, unit: str, *, logarithmic: bool) -> None:
    """Label and scale the x axis; a linear one starts at 0, bytes get SI prefixes."""
    axes.set_xlabel(f"{label} [{unit}]" if unit else label)
    if logarithmic:
        axes.set_xscale("log")
        log_ticks(axes.xaxis, *axes.get_xlim())
    else:
        axes.set_xlim(left=0)
    if unit == "B":
        axes.set_xlabel(label)
        if not logarithmic:
            axes.xaxis.set_major_locator(MaxNLocator(5))  # their labels are long
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))


def log_ticks(axis: Axis, low: float, high: float, most: int = 8) -> None:
    """Choose the ticks of a logarithmic axis: over few decades, powers of ten alone would leave one or two labels."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=most))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(plain_number))


def beside(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write a small text at ``offset`` (points) from a place."""
    axes.annotate(text, at, offset, textcoords="offset points", fontsize="small", **look)


def plain_number(value: float, _: object = None) -> str:
    """Format a tick's label, without powers of ten if it is short without them."""
    return f"{value:g}" if value == 0 or 1e-3 <= value < 1e5 else f"{value:.0e}"


def remark(axes: Axes, text: str) -> None:
    """Add a small line between title and axes that explains means, bands and markers."""
    look: dict[str, Any] = {"fontsize": "small", "color": "#666666", "linespacing": 1.1}
    note = axes.annotate(text, (0, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", **look)
    note.set_in_layout(not axes.get_title(loc="left"))  # the title's distance keeps its place; a panel may be narrower
    if isinstance(figure := axes.get_figure(root=True), Picture):
        figure.notes[axes] = note


def bars(axes: Axes, at: Any, means: pd.DataFrame, color: str, width: float = 0.8) -> Any:
    """Draw a bar with its interval for each row of ``means`` (mean, low, high), and return the bars."""
    errors = np.stack([means["mean"] - means["low"], means["high"] - means["mean"]])
    axes.grid(visible=False, axis="x")
    return axes.bar(
        at, means["mean"], width, yerr=errors if np.isfinite(errors).any() else None, capsize=2, color=color
    )


def sides(figure: Figure, label: str) -> None:
    """Add one label for the y axes of all panels."""
    figure.supylabel(label, fontsize="medium")


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


def party_label(party: str) -> str:
    """Return what a figure calls a party (``client 2``): its name, in which a dollar sign begins no formula."""
    return titled(party).replace("$", r"\$")


def metric_label(column: str, unit: str = "") -> str:
    """Format a metrics column as an axis label: ``test_accuracy`` -> ``test accuracy``, with its unit in brackets."""
    label = column.replace("_auc", "_AUC").replace("_rmse", "_RMSE").replace("_r2", "_R²").replace("_", " ")
    return f"{label} ({unit})" if unit else label
