"""Utilisation of links, worked out by hand and by looking at every instant."""

from pathlib import Path

import numpy as np
import pytest
from story import Story

from vflsim.plotting import plot
from vflsim.plotting.timeline import LINKS, utilisation
from vflsim.results import NotRecordedError, Results
from vflsim.results.events import activities


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
