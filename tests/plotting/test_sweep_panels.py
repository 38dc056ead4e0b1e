"""Sweeps over two keys are heat maps, over more small multiples; keys that change together stay lines."""

import dataclasses
import json
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle
from story import Story
from toy_runs import toy_results

from vflsim.errors import ResultsError
from vflsim.plotting import plot, save_all
from vflsim.results.sweeps import Sweep


def swept(folder: Path, keys: list[str], points: dict[tuple, list[float]], finished: int = 99) -> Sweep:
    """Runs of one round at every point: its seconds for seeds 0, 1, …"""
    entries = []
    for place, (values, seconds) in enumerate(points.items()):
        for seed, each in enumerate(seconds):
            Story(clients=1).step(0, each, [1]).written(folder / str(place), seed)
        entries.append({"values": values, "folder": str(place), "finished": place < finished})
    page = {"scenario": "story", "keys": keys, "timing_only": True, "points": entries}
    (folder / "sweep.json").write_text(json.dumps(page))
    return Sweep.open(folder)


GRID = {("5 Mbps", 2): [1.0, 3.0], ("5 Mbps", 1): [30.0, 50.0], ("0.5 Mbps", 2): [400.0], ("0.5 Mbps", 1): [5e3]}


def test_two_keys_are_a_panel_of_cells_in_ascending_order(tmp_path: Path) -> None:
    sweep = swept(tmp_path, ["timing.clients.link.up", "protocols.fast.t"], GRID, finished=3)
    figure = plot(sweep, "sweep")
    panel, bar = figure.axes
    cells = {text.get_position(): text.get_text() for text in panel.texts}
    assert cells == {(1, 1): "2", (1, 0): "40", (0, 1): "400", (0, 0): "not\nfinished"}
    assert [text.get_text() for text in panel.get_xticklabels()] == ["0.5", "5"]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["1", "2"]
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("bandwidth [Mbps]", "t (clients waited for)")
    assert " ".join(bar.get_ylabel().split()) == "mean round duration [s]"
    assert bar.get_yscale() == "log"
    assert bar.get_ylim() == pytest.approx((2, 400))
    times = figure.numbers["times"]
    assert times[["up", "t", "shown"]].to_numpy().tolist() == [
        ["5 Mbps", 2, 2],
        ["5 Mbps", 1, 40],
        ["0.5 Mbps", 2, 400],
    ]
    assert "1 value has not finished" in " ".join(figure.get_suptitle().split())


@pytest.mark.slow
def test_cells_that_did_not_reach_the_target_are_hatched_lower_bounds(tmp_path: Path) -> None:
    entries = []
    for place, horizon in enumerate((2, 40, 2, 40)):
        toy_results(tmp_path / str(place), horizon=horizon)
        entries.append({"values": [place % 2, place // 2], "folder": str(place), "finished": True})
    page = {"scenario": "toy", "keys": ["a.x", "a.y"], "timing_only": False, "points": entries}
    (tmp_path / "sweep.json").write_text(json.dumps(page))
    figure = plot(Sweep.open(tmp_path), "sweep-target")
    found = figure.numbers["times"]
    for axes, name in zip(figure.axes, Sweep.open(tmp_path).protocols, strict=False):
        bounds = {(row.x, row.y): row.reached < row.n for row in found[found["protocol"] == name].itertuples()}
        hatched = {patch.get_xy() for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch()}
        assert hatched == {(x - 0.5, y - 0.5) for (x, y), bound in bounds.items() if bound}
        assert {text.get_position() for text in axes.texts if text.get_text().startswith("> ")} == {
            place for place, bound in bounds.items() if bound
        }
    assert {bool(row.reached < row.n) for row in found.itertuples()} == {False, True}
    assert "hatched: more than this" in " ".join(figure.get_suptitle().split())


def test_three_keys_are_panels_of_lines_against_the_first(tmp_path: Path) -> None:
    points = {(a, b, c): [a + 10.0 * b + c] for a in (2, 1) for b in (1, 2) for c in (0, 5)}
    figure = plot(swept(tmp_path, ["k.a", "k.b", "k.c"], points), "sweep")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "b = 1\nc = 0",
        "b = 2\nc = 0",
        "b = 1\nc = 5",
        "b = 2\nc = 5",
    ]
    for axes, (b, c) in zip(figure.axes, [(1, 0), (2, 0), (1, 5), (2, 5)], strict=True):
        assert axes.lines[0].get_xdata() == pytest.approx([1, 2])
        assert axes.lines[0].get_ydata() == pytest.approx([1 + 10 * b + c, 2 + 10 * b + c])
        assert axes.get_xlabel() == ("a" if c == 5 else "")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["wait"]


def test_keys_that_change_together_stand_side_by_side(tmp_path: Path) -> None:
    sweep = swept(tmp_path, ["k.a", "k.b"], {(1, "5 ms"): [2.0], (2, "9 ms"): [3.0]})
    assert sweep.zipped
    (axes,) = plot(sweep, "sweep").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a 1\nb 5 ms", "a 2\nb 9 ms"]
    assert [path.name for path in save_all(sweep, tmp_path / "out")] == ["sweep.png"]


def test_keys_are_left_out_at_one_of_their_values_and_the_form_follows(tmp_path: Path) -> None:
    points = {(a, b, f"{c} ms"): [a + 10.0 * b + c] for a in (1, 2) for b in (1, 2) for c in (0, 5)}
    sweep = swept(tmp_path, ["k.a", "k.b", "timing.c"], points)
    heat = plot(sweep, "sweep", at={"c": "5 ms"})
    assert heat.get_suptitle().splitlines()[0] == "story, c = 5 ms"
    assert heat.numbers["times"][["a", "b", "shown"]].to_numpy().tolist() == [
        [a, b, a + 10 * b + 5] for a in (1, 2) for b in (1, 2)
    ]
    (axes,) = plot(sweep, "sweep", at=["c=5 ms", "k.b=2"]).axes
    assert axes.lines[0].get_ydata() == pytest.approx([26, 27])
    panels = plot(sweep, "sweep", at=["c=0 ms"], form="panels")
    assert [axes.get_title(loc="left") for axes in panels.axes] == ["b = 1", "b = 2"]
    assert panels.axes[1].lines[0].get_ydata() == pytest.approx([21, 22])


@pytest.mark.parametrize(
    ("options", "what", "allowed"),
    [
        ({"form": "lines"}, "no figure of 2 keys has the form 'lines'", "map, panels"),
        ({"form": "map", "at": ["a=1"]}, "no figure of 1 key has the form 'map'", "lines"),
        ({"at": ["nonsense=1"]}, "'nonsense' is no key of this sweep", "a, b"),
        ({"at": ["a=7"]}, "no point has a = 7", "1, 2"),
        ({"at": ["a=1", "b=1"]}, "b is the only key", "one key less than the sweep has"),
    ],
)
def test_a_form_or_a_point_that_there_is_not_is_refused(options: dict, what: str, allowed: str, tmp_path: Path) -> None:
    sweep = swept(tmp_path, ["k.a", "k.b"], {(a, b): [1.0] for a in (1, 2) for b in (1, 2)})
    with pytest.raises(ResultsError, match=what) as caught:
        plot(sweep, "sweep", **options)
    assert caught.value.allowed == allowed


@pytest.mark.slow
def test_costs_to_another_target_are_drawn(tmp_path: Path) -> None:
    entries = []
    for place in range(2):
        toy_results(tmp_path / str(place), seeds=2, horizon=20 + 20 * place)
        entries.append({"values": [place], "folder": str(place), "finished": True})
    page = {"scenario": "toy", "keys": ["a.x"], "timing_only": False, "points": entries}
    (tmp_path / "sweep.json").write_text(json.dumps(page))
    sweep = Sweep.open(tmp_path)
    figure = plot(sweep, "sweep", metric="bytes_to_target", target="test_accuracy=0.5")
    low = Sweep.open(tmp_path, {"test_accuracy": 0.5})
    expected = low.estimates("bytes_to_target", "test_accuracy ≥ 0.5 for 5 evaluations")["mean"].dropna().tolist()
    assert figure.numbers["times"]["mean"].dropna().tolist() == pytest.approx(expected)
    assert len(expected) > 4
    assert figure.axes[0].get_ylabel() == "bytes to test accuracy ≥ 0.5 [B]"
    times = plot(sweep, "sweep-target", target="test_accuracy=0.5")
    assert times.axes[0].get_ylabel() == "time to test accuracy ≥ 0.5 [s]"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keys", [["timing.a", "timing.b"], ["timing.a", "timing.b", "timing.c"]])
@pytest.mark.parametrize("title", [None, "a title of the user's own that is far longer than a narrow figure is wide"])
def test_a_long_title_stays_within_the_figure(tmp_path: Path, keys: list[str], title: str | None) -> None:
    points = {(1, k, 1)[: len(keys)]: [1.0, 2.0 + k] for k in (1, 2)}
    sweep = swept(tmp_path, keys, points, finished=2)
    sweep = dataclasses.replace(sweep, scenario="a_scenario_whose_name_alone_is_wider_than_all_cells_together")
    figure = plot(sweep, "sweep", title=title)
    figure.draw_without_rendering()
    words = next(text for text in figure.texts if text.get_text() == figure.get_suptitle())
    box = words.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert "over seeds" in " ".join(figure.get_suptitle().split())


def test_labels_stay_within_a_figure_of_few_cells(tmp_path: Path) -> None:
    sweep = swept(tmp_path, ["timing.a", "protocols.fast.t"], {(1, k): [1.0, 2.0 + k] for k in (1, 2)})
    figure = plot(sweep, "sweep", metric="steady_round_duration")
    figure.draw_without_rendering()
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    (side,) = (text for text in figure.texts if text.get_text() == figure.get_supylabel())
    label = figure.axes[-1].yaxis.label
    for text in (side, label):
        box = text.get_window_extent()
        assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert side.get_window_extent().y1 <= title.get_window_extent().y0
