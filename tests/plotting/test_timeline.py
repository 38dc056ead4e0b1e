"""Timelines of many clients stay legible: rows and names do not overlap, and say what they leave out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from story import Story

from vflsim.plotting import plot
from vflsim.results import Results


def parties(clients: int, folder: Path) -> Results:
    for protocol in ("wait", "deadline", "other"):
        story = Story(clients=clients, protocol=protocol)
        for m in range(1, clients + 1):
            story.tell(0, m, f"client-{m}", "compute.embed").message(m, m + 1, f"client-{m}", "server")
        results = story.step(clients + 1, clients + 2, range(1, clients + 1)).written(folder, end=clients + 2)
    return results


@pytest.mark.sampled(4)
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
