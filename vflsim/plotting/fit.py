"""Text that fits: titles, labels, names and legends of a figure in lines that stay within their room.

Only a layout tells how much room a label has, and broken lines change the layout. So both take turns until nothing
changes. A figure whose size the user has not asked for gets higher where text leaves its axes too little.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, final
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator
from matplotlib.transforms import BboxBase

_TURNS = 12
"""Most layouts of a figure; each has broken more lines, left out more ticks, or made it higher."""
_ROOM = 0.97
"""Share of its room that a line may take: fonts are a little wider in other formats."""
NAMES = 0.34
"""Share of the figure's width that the names of rows may take."""
_LEAST = 0.42
"""Share of its part of the figure, as high as it is without long texts, that a panel's axes are high at least."""
_MARGIN = 0.5
"""Inches that the numbers and the label beside axes take, before a layout tells it."""
_STEP = 0.4
"""Inches by which a figure grows that has no room for its axes."""
_GAP = 3.0
"""Pixels between labels, and between labels and what is beside them."""
_CUTS = "_-+/"
"""After which letters a word that is longer than a line is cut, if it has them."""


def broken(figure: Figure, words: str, font: FontProperties, room: float) -> str:
    """Break every line of a text into lines of at most ``room`` pixels of the figure; a word that is longer is cut."""
    lines = []
    for line in words.split("\n"):
        begun = ""
        for word in line.split(" "):
            if not begun or _width(figure, f"{begun} {word}", font) <= room:
                begun = f"{begun} {word}" if begun else word
            else:
                lines.append(begun)
                begun = word
            while _width(figure, begun, font) > room and (cut := _cut(figure, begun, font, room)) < len(begun):
                lines.append(begun[:cut])
                begun = begun[cut:]
        lines.append(begun)
    return "\n".join(lines)


def _cut(figure: Figure, word: str, font: FontProperties, room: float) -> int:
    """Return how many letters of a word fit, at least one: up to a separator behind the first third of these."""
    fit = 1
    while fit < len(word) and _width(figure, word[: fit + 1], font) <= room:
        fit += 1
    separated = [place for place in range(fit // 3 + 1, fit + 1) if word[place - 1] in _CUTS]
    return separated[-1] if separated else fit


def _width(figure: Figure, line: str, font: FontProperties) -> float:
    width, _, _ = _renderer(figure).get_text_width_height_descent(line, font, ismath=False)
    return float(width)


def _renderer(figure: Figure) -> Any:
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    return canvas.get_renderer()  # type: ignore[no-untyped-call]


@final
class Fitting:
    """The texts of one figure, as they were before they were broken into lines.

    ``notes`` are the lines between the title and the axes; ``grows``: whether the figure may get higher.
    """

    def __init__(self, figure: Figure, notes: Mapping[Axes, Text], grows: bool) -> None:
        self.figure, self.notes, self.grows = figure, notes, grows
        self._words: dict[Text, str] = {}
        self._renderer, self._height = _renderer(figure), figure.bbox.height

    def run(self) -> None:
        """Break lines, leave out ticks and let the figure grow until everything has its room."""
        self._begin()
        for _ in range(_TURNS):
            if not self._laid_out():
                if not (any([*self._legends(), *self._shared(), *self._ticks()]) or self._higher(_STEP)):
                    return
                continue
            for axes in self._axes:
                axes.get_tightbbox(self._renderer)  # places labels and titles
            if any([*self._legends(), *self._titles(), *self._labels(), *self._shared(), *self._ticks()]):
                continue
            if not self._grown():
                return

    def _laid_out(self) -> bool:
        """Lay the figure out; tell whether the labels leave room for the axes."""
        with catch_warnings():
            filterwarnings("error", "constrained_layout not applied")
            try:
                self.figure.get_layout_engine().execute(self.figure)  # type: ignore[union-attr]
            except UserWarning:
                return False
        return True

    @property
    def _axes(self) -> list[Axes]:
        return [axes for axes in self.figure.axes if axes.get_visible()]

    def _break(self, text: Text, room: float) -> bool:
        """Break a text into lines of ``room`` pixels; tell whether that changes it."""
        before = text.get_text()
        words = self._words.setdefault(text, before)
        text.set_text(broken(self.figure, words, text.get_fontproperties(), _ROOM * max(room, 1.0)))
        return text.get_text() != before

    def _box(self, text: Text) -> BboxBase:
        return text.get_window_extent(self._renderer)

    def _legends(self) -> Iterator[bool]:
        """Break the labels of legends that are wider than the figure."""
        for legend in self.figure.legends:
            excess = legend.get_window_extent(self._renderer).width - self.figure.bbox.width
            if excess > 0:
                widest = max(self._box(text).width for text in legend.get_texts())
                for text in legend.get_texts():
                    yield self._break(text, widest - excess)

    def _begin(self) -> None:
        """Break titles and notes by a guess: the first layout would take the room of wider ones from the axes."""
        for axes in self._axes:
            place = axes.get_subplotspec()
            columns = 1 if place is None else place.get_gridspec().ncols
            names = max((self._box(text).width for text in _names(axes.yaxis)), default=0.0)
            room = self.figure.bbox.width / columns - min(names, self._room_of_names) - _MARGIN * self.figure.dpi
            note = self.notes.get(axes)
            for text in (title_of(axes), note):
                if text is not None and text.get_text() and self._box(text).width > room:
                    self._break(text, room)
            if note is not None:
                raise_title(axes, note)

    def _titles(self) -> Iterator[bool]:
        """Break titles and notes that reach the panel to their right, or leave the figure."""
        for axes in self._axes:
            beside = [self._left(other) for other in self._axes if _right_of(axes, other)]
            end = min(beside, default=self.figure.bbox.x1) - _GAP
            note, changed = self.notes.get(axes), False
            for text in (title_of(axes), note):
                if text is not None and text.get_text() and (box := self._box(text)).x1 > end:
                    changed = self._break(text, end - box.x0) or changed
            if note is not None and changed:
                raise_title(axes, note)
            yield changed

    def _left(self, axes: Axes) -> float:
        """Return where axes begin, with their ticks and labels."""
        box = axes.yaxis.get_tightbbox(self._renderer)
        return float(axes.bbox.x0 if box is None else min(box.x0, axes.bbox.x0))

    def _labels(self) -> Iterator[bool]:
        """Break labels of axes that reach other panels, or leave the figure."""
        for axes in self._axes:
            for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
                if axis.label.get_text():
                    low, high = _interval(self._box(axis.label), side)
                    before, after = self._ends(axes, side)
                    room = 2 * min((low + high) / 2 - before, after - (low + high) / 2) - _GAP
                    yield high - low > room and self._break(axis.label, room)

    def _shared(self) -> Iterator[bool]:
        """Break titles and labels of the whole figure that leave it."""
        for text in self.figure.texts:
            if text.get_text():
                side = int(text.get_rotation() == 90)
                low, high = _interval(self._box(text), side)
                begin, end = _interval(self.figure.bbox, side)
                if side:  # centred
                    room = end - begin - self._title_height() - _GAP
                else:
                    room = (
                        end - _GAP - max(low, begin)
                        if text.get_horizontalalignment() == "left"
                        else end - begin - 2 * _GAP
                    )
                yield high - low > room and self._break(text, room)

    def _ends(self, axes: Axes, side: int) -> tuple[float, float]:
        """Return where the room for an axis's label begins and ends: halfway to the next panels, or at the edges."""
        low, high = _interval(axes.bbox, side)
        before, after = _interval(self.figure.bbox, side)
        if side:
            after -= self._title_height()
        for other in self._axes:
            start, end = _interval(other.bbox, side)
            if _same(axes, other, 1 - side):
                before = max(before, (low + end) / 2) if end <= low else before
                after = min(after, (high + start) / 2) if start >= high else after
        return before, after

    def _title_height(self) -> float:
        title = self.figure.get_suptitle()
        return sum(self._box(text).height + _GAP for text in self.figure.texts if title and text.get_text() == title)

    def _ticks(self) -> Iterator[bool]:
        """Break names beside rows that leave the axes too little width; mend ticks whose labels touch."""
        for axes in self._axes:
            if (names := _names(axes.yaxis)) and max(self._box(text).width for text in names) > self._room_of_names:
                yield _rename(axes.yaxis, [self._broken(text, self._room_of_names) for text in names])
            elif not names and self._touch(axes.yaxis, 1):
                yield _fewer(axes.yaxis)
            if self._touch(axes.xaxis, 0):
                yield _turned(names) if (names := _names(axes.xaxis)) else _fewer(axes.xaxis)

    @property
    def _room_of_names(self) -> float:
        return NAMES * self.figure.bbox.width

    def _broken(self, name: Text, room: float) -> str:
        return broken(self.figure, name.get_text(), name.get_fontproperties(), _ROOM * room)

    def _touch(self, axis: Axis, side: int) -> bool:
        """Tell whether labels of ticks lie closer together than the gap."""
        ends = sorted(_interval(self._box(text), side) for text in _shown(axis))
        return any(one[1] + _GAP > two[0] for one, two in pairwise(ends))

    def _grown(self) -> bool:
        """Make the figure higher if names of rows touch, or if labels leave its axes too little; tell whether."""
        lacking = 0.0
        for axes in self._axes:
            place = axes.get_subplotspec()
            rows = 1 if place is None else place.get_gridspec().nrows
            wanted = _LEAST * self._height / rows
            if len(names := _names(axes.yaxis)) > 1:
                boxes = [self._box(text) for text in names]
                middles = sorted((box.y0 + box.y1) / 2 for box in boxes)
                gap = min(two - one for one, two in pairwise(middles))
                wanted = max(wanted, axes.bbox.height * (max(box.height for box in boxes) + _GAP) / gap)
            lacking = max(lacking, rows * (wanted - axes.bbox.height))
        return lacking > 1 and self._higher(lacking / self.figure.dpi)

    def _higher(self, inches: float) -> bool:
        if self.grows:
            self.figure.set_figheight(self.figure.get_figheight() + inches)
        return self.grows


def title_of(axes: Axes) -> Text:
    """Return the title at the left of axes."""
    title: Text = getattr(axes, "_left_title")  # noqa: B009 Matplotlib has no public name for it
    return title


def raise_title(axes: Axes, note: Text) -> None:
    """Lift the title of axes above the lines of the note between both."""
    size, lines = mpl.rcParams["font.size"], note.get_text().count("\n") + 1
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=size * (0.8 + 1.1 * lines))


def _interval(box: BboxBase, side: int) -> tuple[float, float]:
    """Return where a box begins and ends, from left to right (``side`` 0) or from below to above (1)."""
    return (float(box.x0), float(box.x1)) if side == 0 else (float(box.y0), float(box.y1))


def _same(one: Axes, other: Axes, side: int) -> bool:
    """Tell whether two axes share some of their range."""
    (low, high), (start, end) = (_interval(axes.bbox, side) for axes in (one, other))
    return one is not other and start < high and end > low


def _right_of(axes: Axes, other: Axes) -> bool:
    return _same(axes, other, 1) and other.bbox.x0 >= axes.bbox.x1


def _shown(axis: Axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    pairs = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
    return [text for at, text in pairs if low <= at <= high and text.get_visible() and text.get_text()]


def _names(axis: Axis) -> list[Text]:
    """Return the labels of an axis that has names (``set_ticks(places, names)``) instead of numbers."""
    return _shown(axis) if isinstance(getattr(axis.get_major_formatter(), "func", None), partial) else []


def _rename(axis: Axis, names: list[str]) -> bool:
    """Give names of ticks other words; tell whether that changes them."""
    shown = _shown(axis)
    if names == [text.get_text() for text in shown]:
        return False
    axis.set_ticks(axis.get_majorticklocs(), names)
    return True


def _turned(names: list[Text]) -> bool:
    """Turn names below columns; tell whether they were not turned yet."""
    before = [name.get_rotation() for name in names]
    for name in names:
        name.set_rotation(90)
    return any(angle != 90 for angle in before)


def _fewer(axis: Axis) -> bool:
    """Let an axis of numbers have fewer ticks; tell whether it has."""
    before = len(_shown(axis))
    locator, wanted = axis.get_major_locator(), max(2, before * 2 // 3)
    if isinstance(locator, LogLocator):
        locator.set_params(subs=(1.0,), numticks=wanted)
    elif isinstance(locator, MaxNLocator | FixedLocator):
        locator.set_params(nbins=wanted)
    return len(_shown(axis)) < before
