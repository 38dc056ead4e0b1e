"""Every figure with names of 64 characters, in every style and width: no text is cut, or lies over other text."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from canvas import faults
from matplotlib.font_manager import FontProperties
from thorough import in_turn
from toy_runs import toy_results

from vflsim.plotting import PLOTS, SWEEP_PLOTS, Picture, open_folder, picture, plot
from vflsim.plotting.closed_forms import Curve, round_laws
from vflsim.plotting.delays import fits, law
from vflsim.plotting.fit import broken
from vflsim.plotting.script import metric_panels
from vflsim.plotting.theme import COLUMNS, STYLES, appearance
from vflsim.results import Results
from vflsim.timing.delays import Exponential

LONGEST = 64
LOOKS = [(style, size) for style in STYLES for size in (None, *COLUMNS) if STYLES[style].columns or size is None]
KEYS = ("timing.clients.link.up", "protocols.t-sync.t", "training.batch")
VALUES = (("5 Mbps", "50 Mbps"), (1, 2), (32, 64))
pytestmark = pytest.mark.usefixtures("few_pixels")


def long(name: str) -> str:
    """A name with few places at which it may be broken, and with wide letters."""
    return f"{name}_{'Wmx-quick_brown_' * 8}"[:LONGEST]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and in ``1``, ``2`` and ``3`` sweeps of it over so many keys."""
    root = tmp_path_factory.mktemp("long")
    toy_results(root / "study", horizon=40, answers=True, energy=True, named=long)
    for keys in (1, 2, 3):
        points = [*product(*VALUES[:keys])]
        for place, _ in enumerate(points):
            shutil.copytree(root / "study", root / str(keys) / str(place))
        entries = [{"values": values, "folder": str(place), "finished": True} for place, values in enumerate(points)]
        page = {"scenario": long("toy"), "keys": KEYS[:keys], "timing_only": False, "points": entries}
        (root / str(keys) / "sweep.json").write_text(json.dumps(page))
    return root


FIGURES = [("study", kind) for kind in PLOTS] + [(str(keys), kind) for keys in (1, 2, 3) for kind in SWEEP_PLOTS]


@pytest.mark.sampled(5)
@in_turn(
    drawn={"-".join(each): each for each in FIGURES}, look={f"{style}-{size}": (style, size) for style, size in LOOKS}
)
def test_all_text_has_its_room(
    drawn: tuple[str, str], look: tuple[str, str | None], named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, kind = drawn
    style, size = look
    assert faults(plot(open_folder(named / place), kind, style=style, size=size), monkeypatch) == []


def observed() -> np.ndarray:
    return np.random.default_rng(3).exponential(0.02, 500)


EXPONENTIAL = Exponential(mean=0.02)
CURVE = Curve(x := np.linspace(0, 30, 2001), 1 - np.exp(-x), 1 - np.exp(-x))
OTHERS = {
    "panels": lambda study: metric_panels([study, study]),
    "laws": lambda study: round_laws({long("wait"): CURVE}, {long("wait"): "synchronous"}, long("toy")),
    "law": lambda study: law(EXPONENTIAL, observed(), long("a law")),
    "fits": lambda study: fits(observed(), {long("one"): EXPONENTIAL, long("two"): EXPONENTIAL}, long("a.csv")),
}
"""Figures beside those of `vflsim plot`."""


@pytest.mark.sampled(2)
@in_turn(figure=OTHERS, size=[None, "single", "double"])
def test_other_figures_have_room_for_all_text(
    figure: str, size: str | None, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with appearance("default", size, None):
        drawn = figure(Results.open(named / "study"))
    assert faults(drawn, monkeypatch) == []


def drawn(*, right: float = 0.5, over: bool = False) -> Picture:
    with picture(3, 2, {}) as figure:
        axes = figure.add_subplot()
    for height, words in ((0.5, "some words"), (0.52, "other words"))[: 1 + over]:
        axes.text(right, height, words, transform=axes.transAxes).set_in_layout(False)
    return figure


def test_text_that_is_cut_or_lies_over_other_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(drawn(), monkeypatch) == []
    assert faults(drawn(right=0.95), monkeypatch) == ["'some words' leaves the canvas"]
    assert faults(drawn(over=True), monkeypatch) == ["'some words' lies over 'other words'"]


def test_lines_are_broken_between_words_and_long_words_at_separators() -> None:
    figure, font = drawn(), FontProperties(size=10)
    assert broken(figure, "one two", font, 1000) == "one two"
    assert broken(figure, "one two\nthree", font, 1) == "o\nn\ne\nt\nw\no\nt\nh\nr\ne\ne"
    lines = broken(figure, "several words, and then a_name_with-separators", font, 90).split("\n")
    assert "".join(lines).replace(" ", "") == "severalwords,andthena_name_with-separators"
    assert lines[-2:] == ["with-", "separators"]


def test_a_figure_grows_only_if_its_size_is_not_given(named: Path) -> None:
    study = Results.open(named / "study")
    grown = plot(study, "speedup", size="single").get_figheight()
    assert grown > 1.5 * plot(study, "speedup").get_figheight()
    assert plot(study, "speedup", size=(9, 3)).get_size_inches() == pytest.approx((9, 3))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", PLOTS)
def test_short_texts_stay_in_one_line(results: Results, kind: str) -> None:
    figure = plot(results, kind)
    if figure.get_suptitle():
        assert figure.get_suptitle().splitlines() == [line for line in figure.explained if line]
    assert all("\n" not in text.get_text() for legend in figure.legends for text in legend.get_texts())
