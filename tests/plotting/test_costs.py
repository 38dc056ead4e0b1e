"""Ratios of times, paired over seeds."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from story import Story

from vflsim.errors import ResultsError
from vflsim.plotting import plot
from vflsim.results import NotRecordedError, Results
from vflsim.results.statistics.pairs import Ratio, ratio

pytestmark = pytest.mark.usefixtures("unrendered")


def measured(**values: dict[int, float]) -> pd.DataFrame:
    """Rows as ``outcomes`` gives them; a negative value is a censored one."""
    rows = [
        {"protocol": name, "seed": seed, "value": abs(value), "lower": abs(value), "censored": value < 0}
        for name, own in values.items()
        for seed, value in own.items()
    ]
    return pd.DataFrame(rows)


def test_a_ratio_is_paired_and_has_the_t_interval_of_its_logarithm() -> None:
    slow, fast = {0: 10.0, 1: 30.0, 2: 20.0, 7: 5.0}, {2: 5.0, 0: 2.0, 1: 3.0, 9: 1.0}
    found = ratio(measured(slow=slow, fast=fast), "fast", "slow")
    logs = np.log([5, 10, 4])
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((200 ** (1 / 3), math.exp(low), math.exp(high)))
    assert (found.n, found.bound) == (3, "exact")


@pytest.mark.parametrize(
    ("slow", "fast", "bound"), [(10, -2, "most"), (-10, 2, "least"), (-10, -2, "none"), (10, 2, "exact")]
)
def test_what_never_got_there_leaves_a_bound(slow: float, fast: float, bound: str) -> None:
    found = ratio(measured(slow={0: slow}, fast={0: fast}), "fast", "slow")
    assert found is not None
    assert found.mean == pytest.approx(5)
    assert found.bound == bound


@pytest.mark.parametrize(("sign", "side", "text"), [(-1, 1, "<"), (1, 0, ">")], ids=["most", "least"])
def test_a_bound_over_several_seeds_is_a_one_sided_limit(sign: int, side: int, text: str) -> None:
    """Ratios of at most (at least) 5, 10 and 4: their mean, 5.85, is no bound of the mean."""
    slow = {seed: -sign * value for seed, value in enumerate((10.0, 30.0, 20.0))}
    fast = {seed: sign * value for seed, value in enumerate((2.0, 3.0, 5.0))}
    found = ratio(measured(slow=slow, fast=fast), "fast", "slow")
    logs = np.log([5, 10, 4])
    limit = math.exp(stats.t.interval(0.9, 2, logs.mean(), stats.sem(logs))[side])  # 5 % beyond it, on one side
    assert found is not None
    assert found.mean == pytest.approx(limit)
    assert math.isnan(found.low)
    ends = stats.t.interval(0.9, 2, logs.mean(), stats.sem(logs))
    assert found.of_bounds == pytest.approx([*map(math.exp, ends)])
    assert str(found).startswith(f"{text} ")
    assert {"<": "13.1 ×", ">": "> 2.61"}[text] in str(found)  # rounded outwards


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Ratio(13.24, 9.08, 19.33, 5), "13.2 (9.08 … 19.3) ×"),
        (Ratio(12345.0, math.nan, math.nan, 1), "12,300 ×"),
        (Ratio(0.5, math.nan, math.nan, 1, "most"), "< 0.5 ×"),
        (Ratio(0.5, math.nan, math.nan, 1, "least"), "> 0.5 ×"),
        (Ratio(7.8123, math.nan, math.nan, 3, "most"), "< 7.82 ×"),
        (Ratio(7.8193, math.nan, math.nan, 3, "least"), "> 7.81 ×"),
        (Ratio(12341.0, math.nan, math.nan, 3, "most"), "< 12,400 ×"),
        (Ratio(7.8123, math.nan, math.nan, 3, "most", 3, (4.618, 7.8123)), "< 4.61 … 7.82 ×"),
        (Ratio(4.618, math.nan, math.nan, 3, "least", 4, (4.618, 7.8123)), "> 4.61 … 7.82 × (3 of 4)"),
        (Ratio(2.0, 1.5, 2.7, 4, common=5), "2 (1.5 … 2.7) × (4 of 5)"),
        (Ratio(0.5, math.nan, math.nan, 3, "none"), "undetermined"),
    ],
)
def test_a_ratio_reads_as_text(found: Ratio, text: str) -> None:
    assert str(found) == text


def test_without_common_seeds_or_with_times_of_zero_there_is_no_ratio() -> None:
    assert ratio(measured(slow={0: 1.0}, fast={1: 1.0}), "fast", "slow") is None
    assert ratio(measured(slow={0: 1.0}, fast={0: 0.0}), "fast", "slow") is None


def rounds(folder: Path, protocol: str, kind: str, lasts: list[float]) -> Results:
    for seed, each in enumerate(lasts):
        results = Story(clients=1, protocol=protocol, kind=kind).step(0, each, [1]).written(folder, seed)
    return results


def test_points_are_the_geometric_means(tmp_path: Path) -> None:
    rounds(tmp_path, "quick", "asynchronous", [1, 2])
    results = rounds(tmp_path, "all", "synchronous", [4, 18])
    axes = plot(results, "speedup").axes[0]
    points = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    assert [line.get_xdata()[0] for line in points] == pytest.approx([6])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["quick"]
    assert [text.get_text() for text in axes.texts if "×" in text.get_text()] == ["6×"]
    turned = plot(results, "speedup", baseline="quick").axes[0]
    assert [text.get_text() for text in turned.texts if "×" in text.get_text()] == ["0.167×"]


def test_a_target_not_reached_is_an_arrow(results: Results) -> None:
    # Of the toy, "wait" and "ignore" never reach the target within 40 s; the others do.
    right = plot(results, "speedup").axes[1]
    assert right.get_xlabel() == "time to test accuracy ≥ 0.9: times faster"
    said = [text.get_text() for text in right.texts if text.get_text()]
    assert said[0] == "?"
    assert all(text.startswith("> ") for text in said[1:])


def test_without_a_protocol_that_waits_for_all_one_has_to_be_named(tmp_path: Path) -> None:
    rounds(tmp_path, "a", "asynchronous", [1])
    with pytest.raises(NotRecordedError, match="no protocol waits for all"):
        plot(Results.open(tmp_path), "speedup")
    results = rounds(tmp_path, "b", "asynchronous", [2])
    assert plot(results, "speedup", baseline="b").axes
    with pytest.raises(ResultsError, match="no protocol 'c'"):
        plot(results, "speedup", baseline="c")
