"""Options of figures: protocols, metric, window, size, title, style; in Python, on the command line, in scripts."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from thorough import in_turn
from typer.testing import CliRunner

from vflsim.cli import app
from vflsim.errors import ResultsError
from vflsim.plotting import PLOTS, plot
from vflsim.plotting.script import given
from vflsim.plotting.theme import COLUMNS, STYLES, size_of
from vflsim.results import NotRecordedError, Results
from vflsim.vocabulary.figures import FIGURE_OPTIONS

pytestmark = pytest.mark.usefixtures("few_pixels")


def legends(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLOTS)
def test_every_figure_takes_protocols_size_title_and_style(kind: str, results: Results) -> None:
    figure = plot(results, kind, protocols=["wait", "async"], size="12x10 cm", title="A title", style="paper")
    assert figure.get_size_inches() == pytest.approx([12 / 2.54, 10 / 2.54])
    shown = [figure.get_suptitle(), *(axes.get_title("left") for axes in figure.axes)]
    assert any(text.splitlines()[:1] == ["A title"] for text in shown)
    assert results.name not in shown
    named = {name for each in figure.numbers.values() if "protocol" in each for name in each["protocol"]}
    assert named <= {"wait", "async"}
    assert "async" in named
    assert figure.findobj(mpl.text.Text)[0].get_fontfamily() == ["STIXGeneral"]
    assert figure.png().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unrendered")
def test_a_protocol_keeps_its_look_when_others_are_left_out(results: Results) -> None:
    def line(figure):
        texts = [text.get_text() for text in figure.legends[0].get_texts()]
        return figure.legends[0].get_lines()[texts.index("async")]

    all_of_them, alone = (line(plot(results, "time", protocols=names)) for names in (None, ["async"]))
    assert (alone.get_color(), alone.get_marker()) == (all_of_them.get_color(), all_of_them.get_marker())


@pytest.mark.usefixtures("unrendered")
def test_speed_ups_keep_their_baseline_when_it_is_not_among_the_protocols(results: Results) -> None:
    ratios = plot(results, "speedup", protocols=["async"]).numbers["ratios"]
    assert set(ratios["protocol"]) == {"async"}


@pytest.mark.usefixtures("unrendered")
def test_a_window_limits_the_axis_the_legend_and_the_y_axis(results: Results) -> None:
    ends = results.metrics.groupby(["protocol", "seed"])["time_s"].max().groupby("protocol").max()
    late = [name for name in results.protocols if ends[name] >= 30]
    figure = plot(results, "time", start="30 s", end=0.6 * 60)
    assert figure.axes[0].get_xlim() == (30, 36)
    assert [name for name in legends(figure) if name in results.protocols] == late
    assert len(late) < len(results.protocols)
    seen = results.metrics[results.metrics["protocol"].isin(late) & results.metrics["time_s"].between(30, 36)]
    assert figure.axes[0].get_ylim()[0] > results.metrics["test_accuracy"].min()
    assert figure.axes[0].get_ylim()[0] < seen["test_accuracy"].min()
    assert len(figure.numbers["means"]) == len(plot(results, "time").numbers["means"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "start", "end", "shown"),
    [
        ("time", "2 s", "0.5 min", (2, 30)),
        ("rounds", 1, 3, (1, 3)),
        ("bytes", "1 kB", "2 kB", (1000, 2000)),
        ("durations", "100 ms", 4, (0.1, 4)),
        ("survival", "100 ms", 4, (0.1, 4)),
        ("staleness", 1, 3, (1, 3)),
        ("timeline", "1000 ms", "3 s", (1, 3)),
        ("utilisation", "1000 ms", "3 s", (1, 3)),
    ],
)
@pytest.mark.usefixtures("unrendered")
def test_windows_have_the_axis_unit(kind: str, start: object, end: object, shown: tuple, results: Results) -> None:
    assert plot(results, kind, start=start, end=end).axes[-1].get_xlim() == pytest.approx(shown)


@pytest.mark.usefixtures("unrendered")
def test_bins_of_utilisation_divide_the_window(results: Results) -> None:
    links = plot(results, "utilisation", protocols=["wait"], start=1, end=3, bins=4).numbers["links"]
    assert np.unique(links["start_s"]) == pytest.approx([1, 1.5, 2, 2.5])


@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("time", {"start": 3, "end": 3}, "empty window"),
        ("time", {"start": "3 kB"}, "does not fit a time"),
        ("bytes", {"end": "3 s"}, "does not fit a size"),
        ("time", {"start": "1 h"}, "every run ends before 3600 s"),
        ("breakdown", {"metric": "test_loss"}, "no option 'metric'"),
        ("time", {"size": "7"}, "no size"),
        ("time", {"size": "7x4 miles"}, "no size"),
        ("time", {"size": "700x4"}, "no size"),
        ("time", {"style": "fancy"}, "no style 'fancy'"),
        ("time", {"protocols": ["nonsense"]}, "no protocol 'nonsense'"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(kind: str, options: dict, what: str, results: Results) -> None:
    with pytest.raises(ResultsError, match=what) as caught:
        plot(results, kind, **options)
    assert caught.value.allowed or isinstance(caught.value, NotRecordedError)


def test_a_figure_without_room_for_its_axes_is_refused(results: Results) -> None:
    with pytest.raises(ResultsError, match=r"no room for the figure in 2 x 1\.5 inches"):
        plot(results, "time", size=(2, 1.5)).png()


def test_sizes_have_units() -> None:
    assert size_of("7x4") == (7, 4)
    assert size_of("254 x 127 mm") == pytest.approx((10, 5))
    assert size_of("10 cm × 1 in") == pytest.approx((10 / 2.54, 1))


def test_a_figure_is_as_wide_as_a_column_or_two(results: Results) -> None:
    for size, width in COLUMNS.items():
        for kind in ("time", "target"):
            assert plot(results, kind, size=size).get_figwidth() == width
    with pytest.raises(ResultsError, match="slides has no columns"):
        plot(results, "time", size="single", style="slides")


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("few_pixels")
@pytest.mark.parametrize("style", STYLES)
def test_styles_are_drawn_without_touching_global_settings(style: str, results: Results) -> None:
    before = dict(mpl.rcParams)
    assert plot(results, "time", style=style).png() != plot(results, "time", title="other").png()
    assert dict(mpl.rcParams) == before


def test_grey_figures_have_no_colour_and_lines_that_differ(results: Results) -> None:
    figure = plot(results, "time", style="grey")
    rgba = np.asarray(figure.canvas.buffer_rgba() if figure.canvas.draw() is None else None)[..., :3]
    assert (rgba.max(axis=2) == rgba.min(axis=2)).all()
    assert len({str(line._dash_pattern) for line in figure.legends[0].get_lines()}) == len(results.protocols)


def test_a_style_file_of_matplotlib_sets_what_it_says(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "own.mplstyle"
    file.write_text('# a comment\nfont.size: 13\naxes.edgecolor: "#123456"  # another\n\naxes.grid : False\n')
    figure = plot(results, "time", style=file)
    assert mpl.colors.to_hex(figure.axes[0].spines["left"].get_edgecolor()) == "#123456"
    assert figure.rc["font.size"] == 13
    assert not figure.axes[0].xaxis.get_gridlines()[0].get_visible()


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("axes.prop_cycle: cycler('color', [__import__('os').system('false')])", 1, "axes.prop_cycle cannot be set"),
        ("font.size: 9\ntext.usetex: True", 2, "text.usetex cannot be set"),
        ("font.size: nine", 1, "font.size"),
        ("font.colour: red", 1, "font.colour"),
        ("no setting", 1, "no setting"),
    ],
)
def test_a_style_file_with_anything_else_is_refused_with_its_line(
    text: str, line: int, what: str, results: Results, tmp_path: Path
) -> None:
    file = tmp_path / "own.mplstyle"
    file.write_text(text)
    with pytest.raises(ResultsError, match=what) as caught:
        plot(results, "time", style=file)
    assert caught.value.where == f"{file}:{line}"


def test_an_option_that_a_figure_lacks_is_refused_with_the_figures_that_have_it(results: Results) -> None:
    with pytest.raises(ResultsError, match="'target' has no --metric") as caught:
        given(results, ["target"], {"metric": "test_loss"})
    assert caught.value.allowed == "--protocol, --target, --size, --title, --style"
    expected = "--kind time --kind rounds --kind bytes --kind energy --kind epsilon --kind answers"
    assert caught.value.remedy.endswith(expected)
    assert given(results, ["time"], {"metric": "test_loss", "start": None}) == {"metric": "test_loss"}


def test_the_command_line_has_every_option(toy_folder: Path, tmp_path: Path) -> None:
    values = {"protocol": "async", "metric": "test_loss", "from": "2 s", "to": "30 s", "size": "9x6", "title": ""}
    values |= {"style": "slides"}
    assert {*FIGURE_OPTIONS} == {*values, "target", "at", "form"}  # those of other figures
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    out = tmp_path / "loss.svg"
    ended = CliRunner().invoke(app, ["plot", str(toy_folder), "--kind", "time", "--out", str(out), *words])
    assert ended.exit_code == 0, ended.output
    assert b"<svg" in out.read_bytes()


@pytest.mark.sampled(1)
@in_turn(kind=["time", "target", "waited", "breakdown"], style=["default", "paper", "slides"])
def test_long_titles_are_broken_and_not_cut_off(kind: str, style: str, results: Results) -> None:
    figure = plot(
        results, kind, title="A long title of a figure for a paper, which fits into no line " * 2, style=style
    )
    figure.draw_without_rendering()
    titles = [text for text in figure.findobj(mpl.text.Text) if "A long title" in text.get_text()]
    assert titles
    for text in titles:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height
