"""What a rendered figure shows wrongly: text beyond its canvas, text over other text, axes without room."""

from __future__ import annotations

from itertools import combinations
from warnings import catch_warnings, simplefilter

import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from vflsim.plotting import Picture

_SLACK = 1.0
"""Pixels that boxes of text may leave the canvas, or share: a box has a margin around its letters."""
_LEAST = 0.35
"""Inches that axes need at least, in both directions."""


def faults(figure: Picture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw a figure and name its faults: none if all is well."""
    drawn: dict[int, Text] = {}
    draw = Text.draw

    def noted(text: Text, renderer: object, *more: object, **others: object) -> None:
        if text.get_visible() and text.get_text().strip():
            drawn[id(text)] = text
        draw(text, renderer, *more, **others)

    with monkeypatch.context() as patch, catch_warnings(record=True) as warnings:
        simplefilter("always")
        patch.setattr(Text, "draw", noted)
        figure.draw_without_rendering()
    drawn = {key: text for key, text in drawn.items() if text.get_figure(root=True) is figure}
    renderer = figure.canvas.get_renderer()
    boxes = [(text, text.get_window_extent(renderer)) for text in drawn.values()]
    found = [str(warning.message) for warning in warnings]
    found += [f"{_named(text)} leaves the canvas" for text, box in boxes if not _within(figure.bbox, box)]
    found += [
        f"{_named(one)} lies over {_named(other)}"
        for (one, first), (other, second) in combinations(boxes, 2)
        if _overlap(first, second)
    ]
    for axes in (each for each in figure.axes if each.get_visible()):
        found += [f"{_named(text)} lies over other axes" for text, box in boxes if _foreign(text, box, axes)]
        width, height = (side / figure.dpi for side in axes.bbox.size)
        if min(width, height) < (_LEAST if axes.get_label() != "<colorbar>" else 0.05):
            found.append(f"axes of {width:.2f} x {height:.2f} inches")
    return found


def _within(canvas: Bbox, box: Bbox) -> bool:
    low, high = (canvas.x0 - _SLACK, canvas.y0 - _SLACK), (canvas.x1 + _SLACK, canvas.y1 + _SLACK)
    return box.x0 >= low[0] and box.y0 >= low[1] and box.x1 <= high[0] and box.y1 <= high[1]


def _overlap(one: Bbox, other: Bbox) -> bool:
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.size) > 2 * _SLACK


def _foreign(text: Text, box: Bbox, axes: Axes) -> bool:
    """Tell whether text that belongs elsewhere lies over the data of these axes."""
    return text.axes is not axes and text not in axes.findobj(Text) and _overlap(box, axes.bbox)


def _named(text: Text) -> str:
    words = " ".join(text.get_text().split())
    return repr(words if len(words) < 40 else f"{words[:24]}…{words[-12:]}")
