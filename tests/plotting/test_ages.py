"""Client ages counted from rounds, against the server's own bookkeeping, and the histogram drawn of them."""

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
from vflsim.results import NotRecordedError, Results


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
