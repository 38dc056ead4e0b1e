"""Costs to a target lie between two evaluations: the intervals hold the truth, and tables do not hide them."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from thorough import examples
from tiny_worlds import metrics, raw, run
from toy_runs import toy_results

import vflsim
from vflsim import open_results
from vflsim.reporting.answer import answer
from vflsim.results import Results, comparison_table, summarise
from vflsim.results.run_set import RunSet
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.costs import passage
from vflsim.results.statistics.estimates import (
    GEOMETRIC,
    SeedSample,
    binomial_error,
    describe,
    estimate,
    independent,
    paired,
    sampling_note,
)
from vflsim.results.statistics.pairs import Ratio, ratio
from vflsim.results.sweeps.answers import select_best
from vflsim.results.tables import write_summary
from vflsim.scenario.sections import Evaluate
from vflsim.vocabulary.targets import Held, Target

ONCE = Target("test_loss", 1.0, Held(1, "evaluations"))


def between(*runs: tuple[float, float]) -> SeedSample:
    lower, upper = np.array(runs, dtype=float).T
    return SeedSample((*range(len(runs)),), upper, np.zeros(len(runs), dtype=bool), lower)


def measured(**sides: SeedSample) -> pd.DataFrame:
    return pd.concat([
        pd.DataFrame({"seed": own.seeds, "value": own.values, "lower": own.lower, "censored": own.censored})
        .assign(protocol=name) for name, own in sides.items()
    ])  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> pd.DataFrame:
    """A run evaluated after every change: rounds and updates at some times, and a loss that falls."""
    gaps = draw(st.lists(st.floats(0.01, 3.0), min_size=2, max_size=40))
    steps = draw(st.lists(st.booleans(), min_size=len(gaps), max_size=len(gaps)))
    loss = np.linspace(2.0, 0.0, len(gaps) + 1)
    time, rounds = np.cumsum([0.0, *gaps]), np.cumsum([0, *map(int, steps)])
    updates = np.arange(len(time)) - rounds
    return pd.DataFrame(
        {"time_s": time, "round": rounds, "updates": updates, "bytes": 7 * rounds + updates, "test_loss": loss}
    )


def seldom(every: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """The rows of the same run, evaluated at the first multiple of some seconds after a change, and at its end."""
    at = np.minimum(np.ceil(every["time_s"] / seconds) * seconds, every["time_s"].iloc[-1])
    return every.assign(time_s=at).drop_duplicates("time_s", keep="last")


@settings(max_examples=examples(200))
@given(histories(), st.floats(0.05, 20.0), st.booleans())
def test_every_interval_holds_the_truth(every: pd.DataFrame, seconds: float, said: bool) -> None:
    truth = passage(every, ONCE).row
    evaluate = Evaluate.model_validate({"every": f"{seconds!r} s"}) if said else None
    found = passage(seldom(every, seconds), ONCE, evaluate=evaluate)
    for column in ("time_s", "round", "bytes"):
        slack = 1e-9 * (1 + truth[column])
        assert found.before[column] - slack <= truth[column] <= found.row[column] + slack
    if said:
        assert found.row["time_s"] - found.before["time_s"] <= seconds * (1 + 1e-9)


@settings(max_examples=examples(100))
@given(histories(), st.integers(1, 6))
def test_after_every_so_many_rounds_too_and_after_each_it_is_exact(every: pd.DataFrame, amount: int) -> None:
    steps = every[every["round"].diff().fillna(1) > 0]
    truth = passage(steps, ONCE)
    rows = steps[(steps["round"] % amount == 0) | (steps["round"] == steps["round"].max())]
    found = passage(rows, ONCE, evaluate=Evaluate.model_validate({"every": f"{amount} rounds"}))
    if not truth.reached:
        return
    for column in ("time_s", "round", "bytes"):
        assert found.before[column] <= truth.row[column] <= found.row[column]
        if amount == 1:
            assert found.before[column] == found.row[column] == truth.row[column]


def test_the_grid_is_that_of_the_protocol_and_a_live_run_has_none() -> None:
    said: dict[str, Any] = {"evaluate": {"every": "2 * T"}, "constants": {"T": 3}}
    said["protocols"] = {"a": {}, "b": {"evaluate": {"every": "4 rounds"}}}
    a, b, live = (
        cast(Any, SimpleNamespace(info=SimpleNamespace(path=path, protocol=name)))
        for name, path in (("a", "event"), ("b", "event"), ("b", "live"))
    )
    runs = RunSet(Path(), said, ())
    assert [str(grid and (grid.every.amount, grid.every.unit)) for grid in map(runs.evaluation, (a, b))] == [
        "(6.0, 'seconds')",
        "(4.0, 'rounds')",
    ]
    assert runs.evaluation(live) is None
    assert RunSet(Path(), {"evaluate": {"every": "often"}, "protocols": {}}, ()).evaluation(a) is None


def test_while_evaluation_takes_time_the_row_before_is_all_that_is_known() -> None:
    rows = pd.DataFrame({"time_s": [0.0, 2.5, 8.5], "round": [0, 1, 2], "updates": 0, "test_loss": [2, 2, 0]})
    for costs_time, lower in ((True, 2.5), (False, 8.0)):
        evaluate = Evaluate.model_validate({"every": "1 s", "costs_time": costs_time})
        assert passage(rows, ONCE, evaluate=evaluate).before["time_s"] == lower


def test_a_stretch_counts_from_the_evaluation_before_it_and_an_open_one_bounds_from_there() -> None:
    rows = pd.DataFrame({"time_s": np.arange(6.0), "round": range(6), "updates": 0, "bytes": 0})
    rows["test_loss"] = [2, 0.9, 2, 0.9, 0.9, 0.9]
    held = passage(rows, Target("test_loss", 1.0, Held(3, "evaluations")))
    assert (held.reached, held.before["time_s"], held.row["time_s"]) == (True, 2, 3)
    still = passage(rows, Target("test_loss", 1.0, Held(4, "evaluations")))
    assert (still.reached, still.before["time_s"]) == (False, 2)
    never = passage(rows, Target("test_loss", 0.5, Held(4, "evaluations")))
    assert (never.reached, never.before["time_s"]) == (False, 5)
    at_once = passage(rows, Target("test_loss", 3.0))
    assert (at_once.before["time_s"], at_once.row["time_s"]) == (0, 0)


def test_an_interval_over_seeds_covers_the_mean_wherever_the_costs_lie() -> None:
    found = estimate(between((4, 5), (5, 6), (7, 8)), GEOMETRIC)
    low = stats.ttest_1samp(np.log([4, 5, 7]), 0).confidence_interval(0.95).low
    high = stats.ttest_1samp(np.log([5, 6, 8]), 0).confidence_interval(0.95).high
    assert (found.low, found.high) == pytest.approx((np.exp(low), np.exp(high)))
    assert (found.least, found.most) == pytest.approx((140 ** (1 / 3), 240 ** (1 / 3)))


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        (between((0, 5), (0, 5), (0, 5)), "0 … 5 s"),
        (between((0, 5)), "0 … 5 s"),
        (between((4.9, 5)), "5 s"),
        (between((4.9, 5), (4.9, 5)), "5.00 (4.90 … 5.00) s"),
        (between((5, 5), (5, 5)), "5 s"),  # after every round: the same in all runs
        (between((0, 0), (0, 0)), "0 s"),
        (SeedSample((0, 1), np.array([5.0, 60.0]), np.array([False, True]), np.array([0.0, 60.0])),
         "1 of 2: 0 … 5 s, > 60 s"),
    ],
)  # fmt: skip
def test_no_cost_between_evaluations_looks_measured(sample: SeedSample, shown: str) -> None:
    assert str(describe(estimate(sample, GEOMETRIC), "s")) == shown


@pytest.mark.parametrize(
    ("own", "other", "shown"),
    [
        (between((0, 5), (0, 5)), between((0, 5), (0, 5)), "undetermined"),
        (between((0, 5), (0, 5)), between((10, 15), (10, 15)), "> 2 ×"),
        (between((10, 15), (10, 15)), between((0, 5), (0, 5)), "< 0.5 ×"),
        (between((5, 10)), between((10, 20)), "1 … 4 ×"),
        (between((9.9, 10)), between((9.9, 10)), "0.99 … 1.02 ×"),  # one seed: no tie
        (between((9.9, 10)), between((19.9, 20)), "2 ×"),
    ],
)
def test_a_speed_up_has_the_bounds_that_follow_from_the_ends(own: SeedSample, other: SeedSample, shown: str) -> None:
    assert str(ratio(measured(own=own, other=other), "own", "other")) == shown


def test_the_interval_of_a_speed_up_holds_every_ratio_of_times_within_the_ends() -> None:
    rng = np.random.default_rng(1)
    lower = [rng.uniform(5, 9, 4), rng.uniform(20, 40, 4)]
    own, other = (between(*zip(each, 1.08 * each, strict=True)) for each in lower)
    found = ratio(measured(own=own, other=other), "own", "other")
    assert isinstance(found, Ratio)
    for _ in range(50):
        times = [each * rng.uniform(1, 1.08, 4) for each in lower]
        assert found.low <= np.exp(np.log(times[1] / times[0]).mean()) <= found.high


def test_a_censored_side_joins_with_the_ends_of_the_other() -> None:
    late = SeedSample((0, 1), np.array([60.0, 60.0]), np.array([True, True]), np.array([60.0, 60.0]))
    found = ratio(measured(own=between((5, 10), (5, 10)), other=late), "own", "other")
    assert str(found) == "> 6 ×"
    found = ratio(measured(own=late, other=between((5, 10), (5, 10))), "own", "other")
    assert str(found) == "< 0.167 ×"
    gap = paired(between((5, 10), (5, 10)), late)
    assert (gap.at_most, math.isnan(gap.at_least)) == (-50, True)


@pytest.mark.parametrize("difference", [paired, independent])
def test_a_difference_has_the_bounds_that_follow_from_the_ends_and_claims_no_order_within_them(difference: Any) -> None:
    tie = difference(between((0, 5), (0, 5), (0, 5)), between((0, 5), (0, 5), (0, 5)), GEOMETRIC)
    assert (tie.least, tie.most, tie.p) == (-5, 5, 1)
    assert str(describe(tie, "s")) == "−5 … 5 s"
    near = difference(between((5, 10), (5, 10), (5, 10)), between((0, 5), (0, 5), (0, 5)), GEOMETRIC)
    assert (near.least, near.most) == (0, 10)
    assert near.p == 1  # they may be equal
    apart = difference(between((10, 15), (10, 15)), between((0, 5), (0, 5)), GEOMETRIC)
    assert apart.p < 0.05


def test_no_value_is_behind_the_best_within_the_ends() -> None:
    samples = {"best": between((0, 5), (0, 5)), "near": between((5, 10), (5, 10)), "far": between((10, 15), (10, 15))}
    assert select_best(samples, GEOMETRIC).close == ("near",)


PROTOCOLS = {"wait": {"kind": "synchronous"}, "t2": {"kind": "t_synchronous", "t": 2}}


def world(every: str, stop: str = "80 rounds") -> dict[str, Any]:
    """Two protocols, the second much quicker, whose loss falls round by round, evaluated now and then."""
    said = raw(
        PROTOCOLS,
        training__batch="all",
        stop={"rounds": 80} if stop == "80 rounds" else {"time": stop},
        evaluate={"every": every},
        target={"test_loss": 2.27, "for": "1 evaluation"},
    )
    return {**said, "seeds": [0, 1]}


@cache
def ran(name: str, every: str) -> pd.DataFrame:
    return metrics(run(vflsim.load(world(every)), name, seed=1)).assign(
        bytes=lambda m: m["bytes_up"] + m["bytes_down"] + m["bytes_peer"]
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("every", ["7 rounds", "0.03 s", "0.2 s", "20 updates"])
def test_a_coarser_grid_has_the_truth_of_every_round_in_its_intervals(every: str, name: str) -> None:
    target = Target("test_loss", 2.27, Held(1, "evaluations"))
    exact = passage(ran(name, "1 rounds"), target, evaluate=Evaluate.model_validate({"every": "1 rounds"}))
    found = passage(ran(name, every), target, evaluate=Evaluate.model_validate({"every": every}))
    assert exact.reached
    assert 0 < exact.row["round"] < 80
    for column in ("time_s", "round", "bytes"):
        assert exact.before[column] == exact.row[column]
        assert found.before[column] <= exact.row[column] <= found.row[column]
    assert found.before["time_s"] < found.row["time_s"]


def said(results: Results) -> str:
    table = comparison_table(results)
    return "\n".join([*(" | ".join(row) for row in [table.header, *table.rows]), *table.notes])


def test_targets_met_at_the_first_evaluation_are_no_measured_tie_and_the_proposed_grid_tells_them_apart(
    tmp_path: Path,
) -> None:
    seldom = vflsim.run(vflsim.load(world("2 s", "2.2 s")), tmp_path / "seldom")
    text = said(seldom)
    assert "± 0" not in text.split("Means over seeds")[0]
    assert [row[-1] for row in comparison_table(seldom).rows] == ["—", "undetermined"]
    proposed = re.search(r"`evaluate: {every: ([^}]*)}` for wait, t2", text)
    assert proposed is not None
    assert "Evaluated too seldom to tell costs to test_loss ≤ 2.27" in (seldom.folder / "summary.md").read_text()
    headline = answer(seldom, summarise(seldom), {}).headline
    assert "do not tell them apart" in headline
    assert proposed[1] == "1 rounds"
    often = vflsim.run(vflsim.load(world(proposed[1])), tmp_path / "often")
    again = said(often)
    assert "Evaluated too seldom" not in again
    assert "undetermined" not in again
    apart = ratio(outcomes(often).query("measure == 'time_to_target'"), "t2", "wait")
    assert apart is not None
    assert apart.mean > 1.2


@pytest.mark.parametrize(("accuracy", "rows", "error"), [(0.5, 100, 0.05), (0.9, 359, 0.01583), (1.0, 10, 0.0)])
def test_the_binomial_error_is_that_of_a_share(accuracy: float, rows: int, error: float) -> None:
    assert binomial_error(accuracy, rows) == pytest.approx(error, rel=1e-3)


def with_rows(folder: Path, rows: int) -> Path:
    """Toy results whose runs say how many rows they were scored on."""
    for page in toy_results(folder).rglob("run.json"):
        said = json.loads(page.read_text())
        page.write_text(json.dumps(said | {"rows": {"train": 4 * rows, "test": rows}}))
    return folder


def test_the_table_says_that_the_interval_leaves_out_the_test_rows(tmp_path: Path) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = [note for note in comparison_table(results).notes if "sampling error" in note]
    assert note.startswith(
        "± leaves out the sampling error of the 400 test rows: all seeds share one split (of the acc"
    )
    write_summary(results)
    assert f"- {note}\n" in (tmp_path / "toy" / "summary.md").read_text()


def test_the_errors_are_those_of_the_means_shown(tmp_path: Path) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = sampling_note(results, "test_accuracy", [0.9, 0.5, math.nan])
    assert note.endswith("(of the accuracies shown, a binomial standard error of 0.015 to 0.025).")
    (note,) = sampling_note(results, "test_accuracy", [0.9, 0.1])
    assert note.endswith("a binomial standard error of 0.015).")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", ["test_rmse", "test_loss"])
def test_of_other_metrics_only_the_fact_is_said(tmp_path: Path, metric: str) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = sampling_note(results, metric, [0.5])
    assert note == "± leaves out the sampling error of the 400 test rows: all seeds share one split."


@pytest.mark.slow
def test_without_the_number_of_rows_there_is_no_size(tmp_path: Path) -> None:
    results = open_results(toy_results(tmp_path / "toy"))
    (note,) = sampling_note(results, "test_accuracy", [0.5])
    assert note == "± leaves out the sampling error of the test rows: all seeds share one split."
    assert list(sampling_note(results, "train_loss", [0.5])) == []
