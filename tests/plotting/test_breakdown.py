"""Where time goes, in runs that can be worked out on paper."""

from pathlib import Path

import numpy as np
import pytest
from story import Story

from vflsim.plotting import plot
from vflsim.plotting.breakdown import BARRIER, COLORS, SERVER_STEP, TO_DEADLINE, WAITING
from vflsim.plotting.style import Picture
from vflsim.results import NotRecordedError, Results

pytestmark = pytest.mark.usefixtures("unrendered")


def bars(figure: Picture, side: int) -> list[dict[str, float]]:
    """Shares by part of every row of the left (0: rounds) or right (1: clients) panel."""
    stages = 1 if side else 2  # before and after a barrier
    widths = np.array([bar.get_width() for bar in figure.axes[side].patches]).reshape(-1, stages, len(COLORS))
    return [dict(zip(COLORS, row.sum(axis=0).tolist(), strict=True)) for row in widths]


def two_clients() -> Story:
    """One round of 10 s: client 2 computes 1 s, delays 3 s, queues 1 s, sends 2 s; the step takes 2 s, after 1 s idle.

    Client 1 sends early; its gradient, and client 2's, come when the round is over.
    """
    story = Story(clients=2)
    story.tell(0, 1, "client-1", "compute.embed").message(1, 2, "client-1", "server")
    story.tell(1, 2, "client-2", "compute.embed").tell(2, 5, "client-2", "upload", "server")
    story.tell(5, 6, "client-2", "latency.client-2→server", "server").message(6.5, 8, "client-2", "server", sent=5)
    return story.step(8, 10, [1, 2])


def test_the_critical_path_is_that_of_the_client_waited_for(tmp_path: Path) -> None:
    results = two_clients().written(tmp_path, end=10.0)
    (path,) = bars(plot(results, "breakdown"), 0)
    expected = {"client computes": 0.1, "upload delay": 0.3, "latency": 0.1, "transfer": 0.15, "queue of a link": 0.05}
    assert path == pytest.approx(dict.fromkeys(COLORS, 0.0) | expected | {SERVER_STEP: 0.2, WAITING: 0.1})


def test_the_average_clients_time_is_over_the_whole_run(tmp_path: Path) -> None:
    story = two_clients().message(10, 12, "server", "client-1", "gradient")
    (average,) = bars(plot(story.written(tmp_path, end=20.0), "breakdown"), 1)
    expected = {"client computes": 2 / 40, "upload delay": 3 / 40, "latency": 1 / 40, "transfer": (1 + 1.5 + 2) / 40}
    expected |= {"queue of a link": 0.5 / 40, WAITING: 1 - 11 / 40}
    assert average == pytest.approx(dict.fromkeys(COLORS, 0.0) | expected)


def test_at_one_time_an_outage_goes_before_what_it_interrupts(tmp_path: Path) -> None:
    story = Story(clients=1)
    story.message(0, 4, "client-1", "server").tell(1, 3, "client-1", "outage").step(4, 5, [1])
    (path,) = bars(plot(story.written(tmp_path), "breakdown"), 0)
    assert path == pytest.approx(dict.fromkeys(COLORS, 0.0) | {"out": 0.4, "transfer": 0.4, SERVER_STEP: 0.2})


def test_work_begun_before_the_round_counts_from_its_start(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="async", kind="asynchronous")
    story.message(0, 1, "client-1", "server").step(1, 2, [1])
    story.tell(0, 5, "client-2", "upload", "server").message(5, 6, "client-2", "server").step(6, 7, [2])
    (path,) = bars(plot(story.written(tmp_path), "breakdown"), 0)
    # round 1: 1 s transfer, 1 s step; round 2 from 2 s on: 3 s delay, 1 s transfer, 1 s step
    expected = {"upload delay": 3 / 7, "transfer": 2 / 7, SERVER_STEP: 2 / 7}
    assert path == pytest.approx(dict.fromkeys(COLORS, 0.0) | expected)


def test_a_step_that_no_message_started_waited_for_a_deadline(tmp_path: Path) -> None:
    story = Story(clients=1, protocol="deadline", kind="ignore")
    story.message(0, 1, "client-1", "server").step(4, 5, [1])
    (path,) = bars(plot(story.written(tmp_path), "breakdown"), 0)
    assert path == pytest.approx(dict.fromkeys(COLORS, 0.0) | {TO_DEADLINE: 0.8, SERVER_STEP: 0.2})


def shared() -> Story:
    """Client 2 shares for 2 s and sends for 1 s; then client 1 computes for 1 s, uploads for 4 s, sends for 1 s."""
    story = Story(clients=2)
    story.tell(0, 2, "client-2", "share").message(2, 3, "client-2", "client-1", "model_share")
    story.tell(3, 4, "client-1", "compute.embed").tell(4, 8, "client-1", "upload").message(8, 9, "client-1", "server")
    return story.step(9, 10, [1])


def test_what_comes_before_a_barrier_is_hatched_and_the_waiting_client_waits_at_it(tmp_path: Path) -> None:
    figure = plot(shared().written(tmp_path, end=10.0), "breakdown")
    path, clients = (figure.numbers[name].set_index("part") for name in ("rounds", "clients"))
    expected = {"sharing delay": 2.0, "transfer": 1.0}
    assert path["before"].to_dict() == pytest.approx(dict.fromkeys(COLORS, 0.0) | expected)
    expected |= {"transfer": 2.0, "client computes": 1.0, "upload delay": 4.0, SERVER_STEP: 1.0}
    assert path["seconds"].to_dict() == pytest.approx(dict.fromkeys(COLORS, 0.0) | expected)
    hatched = sum(bar.get_width() for bar in figure.axes[0].patches if bar.get_hatch())
    assert hatched == pytest.approx(0.3)
    assert clients["share"][BARRIER] == pytest.approx(3 / 20)
    assert clients["share"][WAITING] == pytest.approx((1 + 7) / 20)
    assert "before the barrier (model share)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_bar_is_whole_and_rows_name_the_mean_round(results: Results) -> None:
    figure = plot(results, "breakdown")
    for side in (0, 1):
        for row in bars(figure, side):
            assert sum(row.values()) == pytest.approx(1)
            assert all(share >= 0 for share in row.values())
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    for name, label in zip(results.protocols, names, strict=True):
        rounds = results.rounds[results.rounds["protocol"] == name]
        assert label == f"{name}\n{(rounds['end_s'] - rounds['start_s']).mean():.3g} s"


def test_toy_clients_upload_for_as_long_as_their_events_say(results: Results) -> None:
    figure = plot(results, "breakdown")
    for name, row in zip(results.protocols, bars(figure, 1), strict=True):
        shares = []
        for run in (run for run in results.runs if run.protocol == name):
            events, end = run.frame("events"), run.frame("metrics")["time_s"].iloc[-1]
            uploads = events[events["kind"] == "upload"]
            shares.append((uploads["end_s"] - uploads["start_s"]).sum() / end / len(run.info.participants))
        assert row["upload delay"] == pytest.approx(np.mean(shares))


def test_without_rounds_that_take_time_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(NotRecordedError, match="took any time"):
        plot(Story(clients=1).written(tmp_path / "none"), "breakdown")
    instant = Story(clients=1).message(0, 0, "client-1", "server").step(0, 0, [1])
    with pytest.raises(NotRecordedError, match="took any time"):
        plot(instant.written(tmp_path / "instant"), "breakdown")
