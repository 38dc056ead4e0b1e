"""Distributions of round durations, their tails, and the closed forms over them."""

from pathlib import Path

import numpy as np
import pytest
from closed_curves import write_curves
from matplotlib.colors import to_hex
from story import Story

from vflsim.plotting import plot
from vflsim.plotting.closed_forms import LOOK
from vflsim.plotting.durations import POINTS, durations
from vflsim.plotting.looks import protocol_styles
from vflsim.plotting.style import Picture
from vflsim.results import NotRecordedError, Results

pytestmark = pytest.mark.usefixtures("unrendered")


def lasting(seconds: list[float], clients: int = 1) -> Story:
    """Rounds of so many seconds."""
    story, now = Story(clients=clients), 0.0
    for each in seconds:
        story.step(now, now + each, [1])
        now += each
    return story


def legend(figure: Picture) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def dashed(figure: Picture) -> list:
    return [line for line in figure.axes[0].lines if line.get_color() == LOOK["color"]]


def test_the_survival_curve_is_the_share_of_longer_rounds(results: Results) -> None:
    figure = plot(results, "survival")
    for name, line in zip(results.protocols, figure.axes[0].lines, strict=True):
        rounds = results.rounds[results.rounds["protocol"] == name]
        seconds, first = np.unique(np.sort(rounds["end_s"] - rounds["start_s"]), return_index=True)
        assert line.get_xdata()[first] == pytest.approx(seconds)
        # Drawn "pre": the height at x holds up to x, so it is the share of rounds that last at least so long.
        assert line.get_drawstyle() == "steps-pre"
        lasted = (rounds["end_s"] - rounds["start_s"]).to_numpy()
        ages = [run.open_round() for run in results.runs if run.protocol == name]
        seen = np.array([*lasted, *(age for age in ages if age is not None)])  # rounds in progress are censored
        steps = [1 - (lasted == x).sum() / (seen >= x).sum() for x in seconds]  # Kaplan and Meier
        assert line.get_ydata()[first] == pytest.approx(np.cumprod([1, *steps])[:-1])
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")


def test_rounds_that_take_no_time_count_but_have_no_place_on_the_axis(tmp_path: Path) -> None:
    figure = plot(lasting([0, 0, 2, 4]).written(tmp_path), "survival")
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [2, 4]
    assert line.get_ydata().tolist() == [0.5, 0.25]
    with pytest.raises(NotRecordedError, match="took any time"):
        plot(lasting([0, 0]).written(tmp_path / "none"), "survival")


def test_many_rounds_are_thinned_and_keep_both_tails(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    seconds = np.sort(rng.exponential(size=60_000))
    ends = np.cumsum(seconds)
    story = Story(clients=1)
    story.rounds = [(k, end - each, end, [1], [], [1]) for k, (each, end) in enumerate(zip(seconds, ends, strict=True))]
    results = story.written(tmp_path, end=float(ends[-1]))
    known = np.sort(durations(results)["wait"])
    for kind, share in (("durations", lambda x: (known <= x).mean()), ("survival", lambda x: (known >= x).mean())):
        line = plot(results, kind).axes[0].lines[0]
        x, y = line.get_xdata(), line.get_ydata()
        assert len(x) <= 1.1 * POINTS
        assert set(known[:3]) | set(known[-3:]) <= set(x)
        assert y[-5:] == pytest.approx([share(value) for value in x[-5:]])
        assert y[len(y) // 2] == pytest.approx(share(x[len(x) // 2]))


@pytest.mark.parametrize("kind", ["durations", "survival"])
def test_the_closed_form_is_drawn_over_its_protocol(kind: str, tmp_path: Path) -> None:
    lasting([1, 2, 3]).written(tmp_path)
    assert "closed form" not in legend(plot(Results.open(tmp_path), kind))
    x = np.array([0.1, 1.0, 2.0, 200.0])
    cdf = 1 - np.exp(-x / 2)
    write_curves(tmp_path, [("wait", "round_duration", -1, x, cdf), ("other", "round_duration", -1, x, cdf)])
    figure = plot(Results.open(tmp_path), kind)
    (line,) = dashed(figure)
    assert line.get_xdata().tolist() == x.tolist()
    assert line.get_ydata().tolist() == (1 - cdf if kind == "survival" else cdf).tolist()
    assert legend(figure)[-1] == "closed form"
    assert figure.axes[0].get_xlim()[1] < 10, "the axis is as long as the rounds are, not as the curve is"


@pytest.mark.parametrize("kind", ["durations", "survival"])
def test_bounds_are_an_area_in_the_protocols_colour(kind: str, tmp_path: Path) -> None:
    lasting([1, 2, 3]).written(tmp_path)
    x, lower, upper = np.array([1.0, 2.0]), np.array([0.1, 0.8]), np.array([0.3, 0.9])
    write_curves(tmp_path, [("wait", "round_duration", -1, x, lower, upper)])
    results = Results.open(tmp_path)
    figure = plot(results, kind)
    (area,) = figure.axes[0].collections
    ends = {(at, 1 - y if kind == "survival" else y) for side in (lower, upper) for at, y in zip(x, side, strict=True)}
    assert ends <= {tuple(corner) for corner in area.get_paths()[0].vertices.tolist()}
    assert to_hex(area.get_facecolor()[0]) == protocol_styles(results)["wait"].color.lower()
    assert dashed(figure) == []
    assert legend(figure)[-1] == "between the bounds of a closed form"


def test_widely_spread_rounds_get_a_logarithmic_axis_that_holds_them_all(tmp_path: Path) -> None:
    lasting([0.01, 0.02, 0.03]).written(tmp_path)
    slow = lasting([100, 300])
    slow.protocol = "slow"
    axes = plot(slow.written(tmp_path), "durations").axes[0]
    assert axes.get_xscale() == "log"
    assert 0.001 < axes.get_xlim()[0] < 0.01
    assert 300 < axes.get_xlim()[1] < 1000


def test_a_single_round_is_drawn_and_none_is_not(tmp_path: Path) -> None:
    one = lasting([2]).written(tmp_path / "one")
    assert plot(one, "durations").axes[0].lines[0].get_ydata().tolist() == [0, 1]
    assert plot(one, "survival").axes[0].lines[0].get_ydata().tolist() == [1]
    for kind in ("durations", "survival"):
        with pytest.raises(NotRecordedError, match="no round was completed"):
            plot(lasting([]).written(tmp_path / "none"), kind)
