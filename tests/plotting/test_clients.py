"""Figures of single clients: who was waited for, and how old embeddings are, in runs written by hand."""

from pathlib import Path

import numpy as np
import pytest
from closed_curves import write_curves
from hypothesis import given, settings, strategies as st
from story import Story
from thorough import examples

from vflsim.learning.batches import Batch
from vflsim.learning.learners.staleness import Staleness
from vflsim.plotting import plot
from vflsim.plotting.clients import age_counts, ages_between
from vflsim.plotting.waits import step_waits
from vflsim.results import NotRecordedError, Results

pytestmark = pytest.mark.usefixtures("unrendered")


def waited(results: Results) -> list[set[int]]:
    found = step_waits(results.runs[0])
    return [set(found.client[found.round == k].tolist()) for k in range(len(found.start))]


def test_the_last_to_arrive_in_the_instant_of_the_step_was_waited_for(tmp_path: Path) -> None:
    story = Story(clients=3)
    story.message(0, 1, "client-1", "server").message(0, 3, "client-2", "server").message(1, 2, "client-3", "server")
    story.step(3, 4, [1, 2, 3])
    story.message(4, 5, "client-2", "server").message(4, 6, "client-1", "server").message(4, 4.5, "client-3", "server")
    story.step(6, 7, [1, 2, 3])
    results = story.written(tmp_path)
    assert waited(results) == [{2}, {1}]
    assert step_waits(results.runs[0]).last().tolist() == [2, 1]
    assert step_waits(results.runs[0]).shares([1, 2, 3]).tolist() == [0.5, 0.5, 0]


def test_clients_that_arrive_together_share_the_round(tmp_path: Path) -> None:
    story = Story(clients=3)
    for client in (1, 3):
        story.message(0, 2, f"client-{client}", "server")
    story.message(0, 1, "client-2", "server").step(2, 3, [1, 2, 3])
    results = story.written(tmp_path)
    assert waited(results) == [{1, 3}]
    assert step_waits(results.runs[0]).last().tolist() == [3]
    assert step_waits(results.runs[0]).shares([1, 2, 3]).tolist() == [0.5, 0, 0.5]


def test_what_a_step_did_not_use_was_not_waited_for(tmp_path: Path) -> None:
    # t = 1: client 2 arrives in the same instant and counts for the next step, which waits for nobody.
    story = Story(clients=2, protocol="async", kind="asynchronous")
    story.message(0, 1, "client-1", "server").message(0, 1, "client-2", "server")
    story.step(1, 2, [1]).step(2, 3, [2])
    assert waited(story.written(tmp_path)) == [{1}, set()]


def test_a_deadline_waits_for_nobody(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="deadline", kind="ignore")
    story.message(0, 1, "client-1", "server").step(5, 6, [1])
    assert waited(story.written(tmp_path)) == [set()]


def test_answers_to_a_query_are_waited_for_and_evaluations_are_not(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="async", kind="asynchronous", max_staleness=0, staleness_bounds="client_age")
    story.message(0, 1, "client-1", "server").message(2, 4, "client-2", "server", "answer").step(4, 5, [1])
    story.message(5, 6, "client-1", "server").message(5, 7, "client-1", "server", "evaluation").step(7, 8, [1])
    assert waited(story.written(tmp_path)) == [{2}, set()]


def test_steps_that_begin_in_one_instant_each_wait_for_their_own_client(tmp_path: Path) -> None:
    story = Story(clients=3, protocol="async", kind="asynchronous")
    for client in (1, 2, 3):
        story.message(0, 1, f"client-{client}", "server")
    story.step(1, 1, [1]).step(1, 1, [2]).step(1, 1, [3])
    assert waited(story.written(tmp_path)) == [{1}, {2}, {3}]


def test_an_abandoned_or_lost_message_was_not_waited_for(tmp_path: Path) -> None:
    story = Story(clients=2)
    story.message(0, 1, "client-1", "server")
    story.message(0, 2, "client-2", "server", outcome="lost").step(2, 3, [1, 2])
    assert waited(story.written(tmp_path)) == [set()]


def waited_before(results: Results) -> list[tuple[int, int, float]]:
    path = step_waits(results.runs[0]).path
    return list(zip(path.round.tolist(), path.client.tolist(), path.weight.tolist(), strict=True))


def shared(clients: int = 3) -> Story:
    """A round in which client 1 needs a share of client 2, which comes at 2 s after a queue, and answers at 5 s."""
    story = Story(clients=clients, protocol="coded", kind="fedvs")
    story.tell(0, 0.5, "client-1", "share").tell(0, 1, "client-2", "share")
    story.message(1.5, 2, "client-2", "client-1", "model_share", sent=1)
    story.tell(1, 1.7, "client-2", "upload")  # what the sender did later is not what the share waited for
    return story.tell(2, 3, "client-1", "compute.coded_embed").tell(3, 5, "client-1", "upload")


def test_peers_whose_messages_the_last_one_needed_were_waited_for_before(tmp_path: Path) -> None:
    story = shared().message(5, 6, "client-1", "server", "coded_embedding").step(6, 7, [1])
    results = story.written(tmp_path)
    assert waited(results) == [{1}]
    assert waited_before(results) == [(0, 2, 1.0)]
    seconds = step_waits(results.runs[0]).path.seconds
    assert {what: s for what, s in seconds.items() if s} == pytest.approx(
        {"share": 1, "queue": 0.5, "transfer": 0.5 + 1, "compute": 1, "upload": 2}
    )
    titles = [axes.get_title("left") for axes in plot(results, "waited").axes]
    assert titles == ["coded: the message that lets the step begin", "coded: before that (model share)"]


def test_peers_whose_messages_come_together_share_what_was_before(tmp_path: Path) -> None:
    story = shared().tell(0, 1.2, "client-3", "share").message(1.2, 2, "client-3", "client-1", "model_share")
    results = story.message(5, 6, "client-1", "server", "coded_embedding").step(6, 7, [1]).written(tmp_path)
    assert waited_before(results) == [(0, 2, 0.5), (0, 3, 0.5)]


def test_who_had_all_shares_before_its_own_was_the_last_itself(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="coded", kind="fedvs")
    story.tell(0, 1, "client-2", "share").message(1, 2, "client-2", "client-1", "model_share")
    story.tell(0, 3, "client-1", "share").tell(3, 4, "client-1", "compute.coded_embed")
    results = story.message(4, 5, "client-1", "server", "coded_embedding").step(5, 6, [1]).written(tmp_path)
    assert waited_before(results) == [(0, 1, 1.0)]


def test_the_arrival_that_made_the_server_query_was_waited_for_before(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="async", kind="asynchronous", max_staleness=0, staleness_bounds="client_age")
    story.message(0, 1, "client-1", "server").message(1, 2, "server", "client-2", "query")
    story.tell(2, 3, "client-2", "compute.embed").message(3, 4, "client-2", "server", "answer")
    results = story.step(4, 5, [1], {1, 2}).written(tmp_path)
    assert waited(results) == [{2}]
    assert waited_before(results) == [(0, 1, 1.0)]


def test_what_the_server_does_with_messages_before_its_step_is_not_a_wait_for_nobody(tmp_path: Path) -> None:
    story = shared().message(5, 6, "client-1", "server", "coded_embedding").tell(6, 8, "server", "compute.decode")
    results = story.step(8, 9, [1]).written(tmp_path)
    assert waited(results) == [{1}]
    parts = plot(results, "breakdown").numbers["rounds"].set_index("part")["seconds"]
    assert (parts["server step"], parts["sharing delay"]) == (3, 1)


def test_work_that_was_abandoned_is_not_what_a_message_waited_for(tmp_path: Path) -> None:
    story = shared()
    story.tell(0.5, 2, "client-1", "compute.coded_embed", outcome="abandoned")
    results = story.message(5, 6, "client-1", "server", "coded_embedding").step(6, 7, [1]).written(tmp_path)
    assert waited_before(results) == [(0, 2, 1.0)]


def test_toy_runs_wait_for_the_arrival_that_completes_a_step(results: Results) -> None:
    for protocol in results.protocols:
        run = results.run(protocol, 0)
        events = run.frame("events")
        steps = events[events["kind"] == "compute.server_step"]
        found = step_waits(run)
        for k, (start, used) in enumerate(zip(steps["start_s"], run.frame("rounds")["used"], strict=False)):
            sent = events[(events["kind"] == "transfer.embedding") & (events["end_s"] == start)]
            expected = [name for name in sent["party"] if int(name[7:]) in used]
            assert [f"client-{m}" for m in found.client[found.round == k]] == sorted(expected)


def test_bars_are_the_shares_and_the_grey_one_is_the_deadline(tmp_path: Path) -> None:
    story = Story(clients=2, protocol="deadline", kind="ignore")
    for k in range(4):
        at = 10 * k
        story.message(at, at + 2, "client-2", "server")
        story.step(at + (2 if k else 5), at + 10, [2])
    axes = plot(story.written(tmp_path), "waited").axes[0]
    heights = {round(bar.get_x() + bar.get_width() / 2, 6): bar.get_height() for bar in axes.patches}
    assert heights == pytest.approx({1: 0, 2: 0.75, 3.7: 0.25})
    assert axes.get_xticklabels()[-1].get_text() == "deadline"


def test_excluded_clients_are_shaded_and_few_enough_are_named(results: Results) -> None:
    panels = plot(results, "waited").axes
    assert [axes.get_title("left") for axes in panels] == ["wait", "ignore", "t-sync", "async"]
    shaded = [sum(to.get_width() == pytest.approx(1) for to in axes.patches) for axes in panels]
    assert shaded == [0, 4, 0, 0]
    assert [label.get_text() for label in panels[-1].get_xticklabels()] == [*map(str, range(1, 9)), "none"]


def test_without_events_or_messages_there_is_nothing_to_draw(tmp_path: Path) -> None:
    silent = Story(clients=1, protocol="centralised", kind="centralised").step(0, 1, [1]).written(tmp_path / "a")
    with pytest.raises(NotRecordedError, match="no message reached the server"):
        plot(silent, "waited")
    (silent.runs[0].folder / "events.parquet").unlink()
    with pytest.raises(NotRecordedError, match="events of this run were not kept"):
        plot(silent, "waited")


def test_rounds_that_are_no_server_steps_are_refused(tmp_path: Path) -> None:
    story = Story(clients=1)
    story.message(0, 1, "client-1", "server").step(1, 2, [1])
    story.events = [event for event in story.events if event[3] != "compute.server_step"]
    with pytest.raises(NotRecordedError, match="1 rounds, but 0 server steps"):
        step_waits(story.written(tmp_path).runs[0])


def test_shares_of_no_round_are_zero(tmp_path: Path) -> None:
    results = Story(clients=2).message(0, 1, "client-1", "server").written(tmp_path)
    assert np.array_equal(step_waits(results.runs[0]).shares([1, 2]), [0, 0])


def bookkept(clients: list[int], steps: list[tuple[list[int], list[int]]]) -> list[int]:
    """How often each age occurred, by the server's own table of ages; steps are (used, re-queried) clients."""
    table, ages = Staleness(clients, 1), []
    for heard, answered in steps:
        table.refresh(sorted({*heard, *answered}), Batch(0, np.zeros(1, np.int64)))
        ages += table.client_ages().tolist()
        table.step += 1
    return np.bincount(ages).tolist() if ages else []


def told(steps: list[tuple[list[int], list[int]]], clients: int, **info) -> Story:
    story = Story(clients=clients, protocol="async", kind="asynchronous", **info)
    for k, (heard, answered) in enumerate(steps):
        for client in answered:
            story.message(k, k + 0.5, f"client-{client}", "server", "answer")
        story.step(k + 0.5, k + 1, sorted(heard), {*heard, *answered})
    return story


CLIENTS = st.lists(st.integers(1, 4), unique=True)


@given(steps=st.lists(CLIENTS, max_size=25))
def test_ages_are_those_that_the_server_counts(steps) -> None:
    step = np.array([k for k, heard in enumerate(steps) for _ in heard], np.int64)
    client = np.array([m for heard in steps for m in heard], np.int64)
    counts = ages_between(step, client, [1, 2, 3, 4], len(steps))
    assert np.trim_zeros(counts, "b").tolist() == bookkept([1, 2, 3, 4], [(heard, []) for heard in steps])


@settings(max_examples=examples(15))
@given(steps=st.lists(st.tuples(CLIENTS, CLIENTS), min_size=1, max_size=10))
def test_answers_count_as_arrivals_where_staleness_is_bounded(steps, tmp_path_factory) -> None:
    story = told(steps, 4, max_staleness=3, staleness_bounds="client_age")
    counts = age_counts(story.written(tmp_path_factory.mktemp("ages")).runs[0])
    assert np.trim_zeros(counts, "b").tolist() == bookkept([1, 2, 3, 4], steps)


def test_the_histogram_is_the_shares_and_the_legend_gives_the_mean(tmp_path: Path) -> None:
    steps = [([1], []), ([1], []), ([2], []), ([1], [])]
    figure = plot(told(steps, 2).written(tmp_path), "staleness")
    # client 1: 0 0 1 0; client 2: 1 2 0 1
    (bars,) = figure.axes[0].patches
    assert bars.get_data().values == pytest.approx([4 / 8, 3 / 8, 1 / 8], abs=1e-12)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["async (mean 0.625)"]


def test_the_geometric_law_is_drawn_over_it(tmp_path: Path) -> None:
    told([([1], []), ([2], []), ([2], []), ([1], [])], 2).written(tmp_path)
    ages = np.arange(5)
    laws = {1: 1 - 0.4 ** (ages + 1), 2: 1 - 0.6 ** (ages + 1)}
    write_curves(tmp_path, [("async", "client_age", m, ages, cdf) for m, cdf in laws.items()])
    figure = plot(Results.open(tmp_path), "staleness")
    (line,) = figure.axes[0].lines
    shown = line.get_xdata()
    assert line.get_ydata() == pytest.approx((0.6 * 0.4**shown + 0.4 * 0.6**shown) / 2)
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "closed form"


def test_steps_that_use_everybody_leave_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(NotRecordedError, match="all ages are 0"):
        plot(told([([1, 2], [])], 2).written(tmp_path / "fresh"), "staleness")
    with pytest.raises(NotRecordedError):
        plot(told([], 2).written(tmp_path / "none"), "staleness")


def test_answers_count_without_events(tmp_path: Path) -> None:
    bounded = told([([1], [2]), ([1], [])], 2, max_staleness=1, staleness_bounds="client_age")
    results = bounded.written(tmp_path)
    (results.runs[0].folder / "events.parquet").unlink()
    ages = plot(results, "staleness").numbers["ages"]
    assert ages["share"].tolist() == [3 / 4, 1 / 4]
