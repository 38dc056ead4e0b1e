"""Protocols of a sweep in pairs over points and seeds, and within budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from evaluated_runs import Curve, write_evaluations
from scipy import stats

from vflsim.errors import ResultsError
from vflsim.results.statistics.pairs import Ratio
from vflsim.results.sweeps import ShownMeasure
from vflsim.results.sweeps.comparison import comparison_tables, key_heads, pairs_of
from vflsim.results.sweeps.table import SweepResults
from vflsim.results.tables.ranking import budget_table, budgets_from
from vflsim.tables.formats import latex

TARGET = "test_accuracy ≥ 0.9 for 1 evaluation"
TIME = ShownMeasure("time_to_target", TARGET, f"time to {TARGET}")
KEYS = ("protocols.fast.t", "timing.clients.link.up")


def reached(seconds: float, end: float = 60) -> Curve:
    """An accuracy that is 0.9 from some time on, evaluated every second before; never, if that is after the end."""
    before = [(float(at), 0.1) for at in range(int(min(seconds, end)))]
    return [*before, (seconds - 1e-6, 0.1), (seconds, 0.9), (end, 0.9)] if seconds < end else [*before, (end, 0.1)]


Times = Mapping[tuple[object, ...], Mapping[str, Sequence[float]]]


def swept(folder: Path, times: Times, keys: Sequence[str] = KEYS, budget: str = "") -> SweepResults:
    """A sweep with the seconds that each protocol's seeds took to the target, by point."""
    entries = []
    for place, (values, protocols) in enumerate(times.items()):
        said = {"name": "s", "protocols": {name: {"kind": "synchronous"} for name in protocols}}
        said |= {"target": {"test_accuracy": 0.9, "for": "1 evaluation"}} | (
            {"budget": {"time": budget}} if budget else {}
        )
        (here := folder / f"p{place}").mkdir()
        (here / "scenario.yaml").write_text(json.dumps(said))
        for name, seconds in protocols.items():
            for seed, each in enumerate(seconds):
                columns = {"round": np.arange(len(curve := reached(each)))}
                write_evaluations(here, name, seed, curve, 100, columns, stop_reason="time")
        entries.append({"values": values, "folder": f"p{place}", "finished": True})
    page = {"scenario": "s", "keys": keys, "timing_only": False, "points": entries}
    (folder / "sweep.json").write_text(json.dumps(page))
    return SweepResults.open(folder)


GRID: Times = {
    (1, "5 Mbps"): {"wait": [40, 44, 30], "fast": [10, 12, 8]},
    (1, "50 Mbps"): {"wait": [20, 21, 16], "fast": [9, 7, 8]},
    (2, "5 Mbps"): {"wait": [40, 44, 30], "fast": [39, 46, 30]},
    (2, "50 Mbps"): {"wait": [20, 21, 16], "fast": [5, 6, 4]},
}


def logs(times: Times) -> np.ndarray:
    """log(wait ÷ fast), (points, seeds)."""
    return np.log(np.array([each["wait"] for each in times.values()])) - np.log(
        np.array([each["fast"] for each in times.values()])
    )


def test_a_pair_is_the_mean_over_points_within_seeds_with_the_interval_over_seeds(tmp_path: Path) -> None:
    (pair,) = pairs_of(swept(tmp_path, GRID), TIME, "wait")
    by_seed = logs(GRID).mean(axis=0)
    low, high = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
    assert isinstance(pair.overall, Ratio)
    assert (pair.overall.mean, pair.overall.low, pair.overall.high) == pytest.approx(
        np.exp([by_seed.mean(), low, high]), rel=1e-6
    )
    assert pair.overall.n == 3  # seeds, not points times seeds
    assert [each.mean for each in pair.by_point.values()] == pytest.approx(np.exp(logs(GRID).mean(axis=1)), rel=1e-6)


def test_the_table_says_where_the_pair_differs_least_and_most_and_at_how_many_points(tmp_path: Path) -> None:
    sweep = swept(tmp_path, GRID)
    table = comparison_tables(sweep)[0]
    assert table.title == f"s: time to {TARGET}, paired over 4 points and their seeds"
    ((name, _, _, least, _, most, *counts),) = table.rows
    assert (name, least, most) == ("fast", "t = 2, up = 5 Mbps", "t = 2, up = 50 Mbps")
    assert counts == ["3", "0", "1"]  # less, more, not apart
    assert [each.title.partition(":")[2].split()[0] for each in comparison_tables(sweep)] == ["time", "bytes"]
    (own,) = comparison_tables(sweep, "end_test_accuracy")
    assert own.rows[0][1].startswith("0.000")
    assert comparison_tables(sweep, "p99") == []
    assert "by pairs" in comparison_tables(sweep, pairing=True)[0].header


def test_another_baseline_turns_the_ratio_round_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    sweep = swept(tmp_path, GRID)
    (one,), (other,) = (pairs_of(sweep, TIME, name) for name in ("wait", "fast"))
    assert other.protocol == "wait"
    assert other.overall.mean == pytest.approx(1 / one.overall.mean, rel=1e-6)
    with pytest.raises(ResultsError, match="no protocol 'nonsense'") as caught:
        comparison_tables(sweep, baseline="nonsense")
    assert caught.value.allowed == "wait, fast"


def test_a_run_that_misses_the_target_at_one_point_leaves_a_bound(tmp_path: Path) -> None:
    late = {**GRID, (2, "5 Mbps"): {"wait": [40, 44, 30], "fast": [99, 46, 30]}}
    (pair,) = pairs_of(swept(tmp_path, late), TIME, "wait")
    assert isinstance(pair.overall, Ratio)
    assert pair.overall.bound == "most"
    bounded = {**late, (2, "5 Mbps"): {"wait": [40, 44, 30], "fast": [60, 46, 30]}}  # it had run 60 s
    by_seed = logs(bounded).mean(axis=0)
    _, high = stats.ttest_1samp(by_seed, 0).confidence_interval(0.9)
    assert pair.overall.mean == pytest.approx(np.exp(high), rel=1e-6)


def test_only_points_and_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    fewer = {**GRID, (1, "5 Mbps"): {"wait": [40, 44], "fast": [10, 12, 8]}, (2, "5 Mbps"): {"wait": [40, 44, 30]}}
    (pair,) = pairs_of(swept(tmp_path, fewer), TIME, "wait")
    assert [*pair.by_point] == [0, 1, 3]
    every = logs({point: GRID[point] for point in [*GRID][:2] + [*GRID][3:]})
    by_seed = [every[:, 0].mean(), every[:, 1].mean(), every[1:, 2].mean()]
    assert pair.overall.mean == pytest.approx(np.exp(np.mean(by_seed)), rel=1e-6)


def test_budgets_rank_protocols_at_every_point_and_over_all_points(tmp_path: Path) -> None:
    sweep = swept(tmp_path, GRID, budget="9.5 s")
    at_points, overall = (t for t in sweep.tables() if "within" in t.title)
    assert [*at_points.header] == ["t (choice)", "bandwidth (world)", "wait", "fast"]
    levels = {
        name: [[0.9 if seconds <= 9.5 else 0.1 for seconds in each[name]] for each in GRID.values()]
        for name in ("wait", "fast")
    }
    by_seed = {name: np.mean(each, axis=0) for name, each in levels.items()}
    first, second = overall.rows
    assert (first[0], second[0]) == ("fast", "wait")
    assert first[1].startswith(f"{by_seed['fast'].mean():.3f}")
    (budget,) = budgets_from(["9.5 s"], "test")
    single = budget_table(sweep.results[1], budget)
    assert [each[:2] for each in single.rows] == [
        (name, at_points.rows[1][2 + place]) for place, name in ((1, "fast"), (0, "wait"))
    ]
    assert len([t for t in sweep.tables(budgets=["5 s", "2 kB"]) if "within" in t.title]) == 4


def test_choices_and_the_world_are_told_apart_where_there_are_both(tmp_path: Path) -> None:
    assert key_heads(swept(tmp_path, GRID)) == ["t (choice)", "bandwidth (world)"]
    (tmp_path / "one").mkdir()
    one = {(1,): GRID[1, "5 Mbps"], (2,): GRID[2, "5 Mbps"]}
    assert key_heads(swept(tmp_path / "one", one, KEYS[:1])) == ["t"]


def test_tables_are_written_for_latex(tmp_path: Path) -> None:
    text = latex(swept(tmp_path, GRID).tables(budgets=["9.5 s"]))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") >= 6
    assert "paired over 4 points and their seeds" in text
    assert "t (choice) & bandwidth (world) & " in text
