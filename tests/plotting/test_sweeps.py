"""Round times against the value that a sweep changed."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from closed_curves import write_curves
from scipy import stats
from story import Story
from toy_runs import toy_results

from vflsim.errors import ResultsError
from vflsim.plotting import SWEEP_PLOTS, open_folder, plot, save_all
from vflsim.plotting.closed_forms import LOOK
from vflsim.results import NotRecordedError
from vflsim.results.sweeps import Sweep

pytestmark = pytest.mark.usefixtures("unrendered")


def page(folder: Path, key: str, values: list, finished: int | None = None) -> Sweep:
    """Write ``sweep.json`` over the folders 0, 1, …."""
    done = len(values) if finished is None else finished
    entries = [{"values": [value], "folder": str(k), "finished": k < done} for k, value in enumerate(values)]
    said = {"scenario": "story", "keys": [key], "timing_only": True, "points": entries}
    (folder / "sweep.json").write_text(json.dumps(said))
    return Sweep.open(folder)


def swept(folder: Path, key: str, values: list, lasts: list[list[float]]) -> Sweep:
    """Runs of one round: ``lasts[k][seed]`` seconds for value k."""
    for k, seconds in enumerate(lasts):
        for seed, each in enumerate(seconds):
            Story(clients=1).step(0, each, [1]).written(folder / str(k), seed)
    return page(folder, key, values)


def test_a_line_is_the_means_at_the_values_in_their_unit(tmp_path: Path) -> None:
    lasts = [[3.0, 5.0], [1.0, 2.0], [7.0, 9.0]]
    sweep = swept(tmp_path, "timing.clients.link.up", ["50 Mbps", "500 Mbps", "5 Mbps"], lasts)
    figure = plot(sweep, "sweep")
    (axes,) = figure.axes
    assert axes.lines[0].get_xdata() == pytest.approx([5, 50, 500])
    assert axes.lines[0].get_ydata() == pytest.approx([8, 4, 1.5])
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "bandwidth [Mbps]"
    assert axes.get_ylabel() == "mean round duration [s]"
    bars = axes.containers[0].lines[2][0].get_segments()
    for bar, seconds in zip(bars, ([7, 9], [3, 5], [1, 2]), strict=True):
        low, high = stats.t.interval(0.95, 1, np.mean(seconds), stats.sem(seconds))
        assert bar[1, 1] == pytest.approx(high)
        # A logarithmic axis has no place below zero: such a bar is cut off just above it.
        assert bar[0, 1] == pytest.approx(max(low, 1e-3 * np.mean(seconds)))


def test_a_line_may_be_any_measure_or_percentile_with_its_unit(tmp_path: Path) -> None:
    for k, seconds in enumerate((1.0, 3.0)):
        story = Story(clients=1)
        for step in range(500):
            story.step(step * seconds, (step + 1) * seconds, [1])
        story.written(tmp_path / str(k), 0)
    sweep = page(tmp_path, "partition.clients", [2, 4])
    (axes,) = (figure := plot(sweep, "sweep", metric="p99")).axes
    assert axes.lines[0].get_ydata() == pytest.approx([1, 3])
    assert axes.get_ylabel() == "p99 of round durations [s]"
    assert figure.numbers["times"]["statistic"].unique().tolist() == ["quantile"]
    assert not len(figure.numbers["closed_form"])  # it is of the mean
    (axes,) = plot(sweep, "sweep", metric="rounds").axes
    assert axes.lines[0].get_ydata() == pytest.approx([500, 500])
    assert axes.get_ylabel() == "rounds"
    (axes,) = plot(sweep, "sweep", metric="bytes").axes
    assert axes.get_ylabel() == "bytes [B]"
    with pytest.raises(NotRecordedError, match="'p100'"):
        plot(sweep, "sweep", metric="p100")


def test_plain_numbers_close_together_stand_on_a_linear_axis(tmp_path: Path) -> None:
    sweep = swept(tmp_path, "constants.t", [2, 3, 4], [[1.0], [2.0], [3.0]])
    (axes,) = plot(sweep, "sweep").axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("linear", "linear", "t")
    assert axes.get_ylim()[0] == 0
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "3", "4"]


def test_what_is_no_number_stands_side_by_side(tmp_path: Path) -> None:
    bands = [{"kind": "uniform", "low": "1 ms", "high": "30 ms"}, {"kind": "uniform", "low": "30 ms", "high": "50 ms"}]
    (axes,) = plot(swept(tmp_path, "timing.clients.link.latency", bands, [[1.0], [2.0]]), "sweep").axes
    assert axes.lines[0].get_xdata().tolist() == [0, 1]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["uniform\nlow 1 ms\nhigh 30 ms", "uniform\nlow 30 ms\nhigh 50 ms"]


def test_unlimited_has_no_place_on_a_scale(tmp_path: Path) -> None:
    sweep = swept(tmp_path, "timing.server.link.up", ["5 Mbps", "unlimited"], [[1.0], [2.0]])
    (axes,) = plot(sweep, "sweep").axes
    assert axes.lines[0].get_xdata().tolist() == [0, 1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5 Mbps", "unlimited"]


def test_means_of_closed_forms_are_dashed(tmp_path: Path) -> None:
    swept(tmp_path, "constants.rate", [1, 2], [[1.0], [2.0]])
    x = np.linspace(0, 30, 20_001)
    for k, mean in enumerate((1.0, 2.0)):
        write_curves(tmp_path / str(k), [("wait", "round_duration", -1, x, stats.expon(scale=mean).cdf(x))])
    figure = plot(Sweep.open(tmp_path), "sweep")
    (line,) = (line for line in figure.axes[0].lines if line.get_color() == LOOK["color"])
    assert line.get_ydata() == pytest.approx([1, 2], rel=1e-5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["wait", "closed form"]


def test_values_that_have_not_finished_are_counted(tmp_path: Path) -> None:
    swept(tmp_path, "constants.t", [2, 3, 4], [[1.0], [2.0], [3.0]])
    (axes,) = plot(page(tmp_path, "constants.t", [2, 3, 4], finished=2), "sweep").axes
    assert axes.lines[0].get_xdata().tolist() == [2, 3]
    assert any("1 value has not finished" in text.get_text() for text in axes.texts)


def test_time_to_target_is_hollow_where_it_was_not_reached(tmp_path: Path) -> None:
    for k, horizon in enumerate((20, 60)):
        toy_results(tmp_path / str(k), seeds=2, horizon=horizon)
    figure = plot(page(tmp_path, "stop.time", ["20 s", "60 s"]), "sweep-target")
    (axes,) = figure.axes
    assert axes.get_ylabel() == "time to test accuracy ≥ 0.9 [s]"
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1].startswith("more than this")
    hollow = {line.get_color(): line for line in axes.lines if line.get_markerfacecolor() == "white"}
    assert hollow, "some run has not reached the target"
    with pytest.raises(NotRecordedError, match="no target"):
        plot(swept(tmp_path / "untrained", "constants.t", [2], [[1.0]]), "sweep-target")


def test_save_all_draws_what_a_sweep_has_data_for(tmp_path: Path) -> None:
    sweep = swept(tmp_path, "constants.t", [2, 3], [[1.0], [2.0]])
    assert isinstance(open_folder(tmp_path), Sweep)
    assert [path.name for path in save_all(sweep)] == ["sweep.png"]
    with pytest.raises(ResultsError, match="there is no figure 'timeline' of a sweep"):
        plot(sweep, "timeline")
    with pytest.raises(ResultsError, match="there is no figure 'sweep' of one scenario's results"):
        plot(sweep.results[0], "sweep")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SWEEP_PLOTS])
def test_scripts_draw_from_a_sweep(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, horizon in enumerate((10, 20)):
        toy_results(tmp_path / str(k), seeds=1, horizon=horizon)
    page(tmp_path, "stop.time", ["10 s", "20 s"])
    script = Path(__file__).parents[2] / "plots" / "figure.py"
    monkeypatch.setattr("sys.argv", [str(script), name, str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    assert Path(capsys.readouterr().out.strip()).read_bytes().startswith(b"\x89PNG")
