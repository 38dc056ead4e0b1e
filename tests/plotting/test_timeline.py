"""Timelines of many clients stay legible; and the share of time in which links move bytes, by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from story import Story

from vflsim.plotting import plot
from vflsim.plotting.timeline import LINKS, utilisation
from vflsim.results import NotRecordedError, Results
from vflsim.results.events import activities


def parties(clients: int, folder: Path) -> Results:
    for protocol in ("wait", "deadline", "other"):
        story = Story(clients=clients, protocol=protocol)
        for m in range(1, clients + 1):
            story.tell(0, m, f"client-{m}", "compute.embed").message(m, m + 1, f"client-{m}", "server")
        results = story.step(clients + 1, clients + 2, range(1, clients + 1)).written(folder, end=clients + 2)
    return results


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("clients", "rows", "options"),
    [(3, 4, {}), (28, 29, {}), (28, 29, {"size": (8, 9)}), (40, 41, {"style": "paper"}), (41, 21, {}), (100, 34, {})],
)
def test_rows_are_high_enough_and_names_do_not_overlap(clients: int, rows: int, options: dict, tmp_path: Path) -> None:
    figure = plot(parties(clients, tmp_path), "timeline", **options)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_ylim() == (rows, 0)
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(boxes) >= 4
    for upper, lower in pairwise(boxes):
        assert upper.y0 >= lower.y1
    if not options:
        assert axes.get_window_extent().height / figure.dpi >= 0.09 * rows
    assert len(figure.numbers["activities"]) == 3 * (2 * clients + 1)
    thinned = [text.get_text() for text in axes.texts if "of 100 clients" in text.get_text()]
    assert bool(thinned) == (clients == 100)


def test_the_end_of_a_run_is_in_its_title(results: Results) -> None:
    titles = [axes.get_title("left") for axes in plot(results, "timeline", end=1000).axes]
    assert all("the run ends after" in title for title in titles)


def test_messages_stand_aside_while_their_party_is_away(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="wait")
    story.message(0, 6, "server", "client-1").message(1, 3, "client-2", "server").message(2, 9, "client-1", "server")
    story.tell(1, 4, "client-1", "outage").tell(8, 12, "client-2", "outage")
    figure = plot(story.step(9, 10, [1, 2]).written(tmp_path, end=12), "timeline")
    drawn = figure.numbers["activities"]
    transfers = drawn[drawn["activity"].isin(["transfer", "aside"])]
    assert sorted(transfers[["party", "start_s", "end_s", "label"]].to_numpy().tolist()) == [
        ["client-1", 2, 4, "stands aside"],
        ["client-1", 4, 9, "transfer"],
        ["client-2", 1, 3, "transfer"],
        ["server", 0, 1, "transfer"],
        ["server", 1, 4, "stands aside"],
        ["server", 4, 6, "transfer"],
    ]


def shares(results: Results, edges: list[float]) -> dict[str, list[float]]:
    run = results.runs[0]
    return {
        name: share.round(12).tolist()
        for name, share in utilisation(activities(run), run.info.participants, np.array(edges, float)).items()
    }


def test_a_direction_is_busy_while_something_moves_over_it(tmp_path: Path) -> None:
    story = Story(clients=2)
    story.message(0, 4, "client-1", "server").message(2, 6, "client-2", "server")  # overlapping, as on fair links
    story.message(8, 9, "server", "client-1", "gradient").tell(0, 9, "client-1", "latency.client-1→server", "server")
    found = shares(story.written(tmp_path, end=10.0), [0, 5, 10])
    assert found == {
        "server up": [0, 0.2],
        "server down": [1, 0.2],
        "clients up (mean)": [(4 + 3) / 10, 1 / 10],
        "clients down (mean)": [0, 0.1],
    }


def test_messages_between_clients_count_on_theirs_alone(tmp_path: Path) -> None:
    found = shares(Story(clients=2).message(0, 2, "client-1", "client-2").written(tmp_path, end=2.0), [0, 2])
    assert found == {
        "server up": [0],
        "server down": [0],
        "clients up (mean)": [0.5],
        "clients down (mean)": [0.5],
    }


def test_nothing_moves_while_either_party_is_out(tmp_path: Path) -> None:
    story = Story(clients=2).message(0, 4, "client-1", "server").message(0, 4, "client-2", "server")
    story.tell(1, 3, "client-1", "outage").tell(2, 6, "server", "outage")
    found = shares(story.written(tmp_path, end=8.0), [0, 8])
    assert found["server down"] == [2 / 8]  # client 2's until the server is out
    assert found["clients up (mean)"] == [(1 + 2) / 16]
    assert found["out"] == [(2 + 4) / (3 * 8)]


def test_what_was_cut_before_it_moved_is_not_counted(tmp_path: Path) -> None:
    story = Story(clients=1).message(0, 3, "client-1", "server", size=0, outcome="lost")
    assert shares(story.written(tmp_path, end=4.0), [0, 4]) == {}
    with pytest.raises(NotRecordedError, match="no transfer took any time"):
        plot(Results.open(tmp_path), "utilisation")


def test_curves_agree_with_a_look_at_every_instant(results: Results) -> None:
    figure = plot(results, "utilisation", protocols=["t-sync"], seed=1, bins=10)
    events = results.run("t-sync", 1).frame("events")
    sent = events[events["kind"].str.startswith("transfer") & (events["peer"] == "server")]
    edges = figure.axes[0].patches[1].get_data().edges
    looks = np.linspace(edges[0], edges[-1], 200_001)[:-1] + 1e-6
    moving = np.zeros(len(looks), bool)
    for start, end in zip(sent["start_s"], sent["end_s"], strict=True):
        moving |= (looks >= start) & (looks < end)
    drawn = dict(zip(LINKS, figure.axes[0].patches, strict=True))["server down"].get_data().values
    assert drawn == pytest.approx(100 * moving.reshape(10, -1).mean(axis=1), abs=0.05)


def test_outages_are_shaded_and_named(tmp_path: Path) -> None:
    story = Story(clients=1).message(0, 4, "client-1", "server").tell(1, 3, "client-1", "outage")
    figure = plot(story.written(tmp_path, end=4.0), "utilisation", bins=4)
    assert "parties that are out" in [text.get_text() for text in figure.legends[0].get_texts()]
    (shade,) = figure.axes[0].collections
    assert shade.get_paths()[0].vertices[:, 1].max() == pytest.approx(50)
