"""Which protocol is best within a budget: values by hand, and an oracle of plain pandas and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import Ended
from evaluated_runs import Curve, write_evaluations
from scipy import stats

from vflsim import compare
from vflsim.errors import ResultsError
from vflsim.results import NotRecordedError, Results
from vflsim.results.statistics.costs import standing
from vflsim.tables.formats import written
from vflsim.vocabulary.amounts import Amount
from vflsim.vocabulary.budgets import Budget

SCENARIO = """\
name: three
constants: {slow: 2}
protocols: {slow: {kind: synchronous}, fast: {kind: asynchronous}, even: {kind: t_synchronous, t: 2}}
stop: {time: 60}
evaluate: {every: 10 s}
seeds: [0, 1, 2]
"""
# Accuracies every 10 s. Within 30 s, fast is best (0.8, 0.82, 0.84), though it is worse before and afterwards.
CURVES = {
    "slow": [[0.1, 0.2, 0.3, 0.40, 0.9], [0.1, 0.2, 0.3, 0.42, 0.9], [0.1, 0.2, 0.3, 0.44, 0.9]],
    "fast": [[0.1, 0.9, 0.7, 0.80, 0.1], [0.1, 0.9, 0.7, 0.82, 0.1], [0.1, 0.9, 0.7, 0.84, 0.1]],
    "even": [[0.1, 0.2, 0.3, 0.70, 0.5], [0.1, 0.2, 0.3, 0.90, 0.5], [0.1, 0.2, 0.3, 0.80, 0.5]],
}


def curve(values: list[float]) -> Curve:
    return [(10.0 * place, value) for place, value in enumerate(values)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    folder = tmp_path / "three"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    for protocol, seeds in CURVES.items():
        for seed, values in enumerate(seeds):
            write_evaluations(folder, protocol, seed, curve(values), stop_reason="time")
    return folder


def column(results: Results, head: str, **within: Any) -> dict[str, Any]:
    table = results.within(**within)
    place = [*table.header].index(head)
    return {str(row[0]): row[place] for row in table.cells}


def test_the_last_value_within_the_budget_ranks_and_not_the_best_one(three: Path) -> None:
    table = Results.open(three).within(time=30)
    assert table.title == "three: test accuracy within 30 s"
    assert [*table.header] == ["protocol", "test accuracy", "vs fast", "told apart", "runs", "evaluated at"]
    assert [row[0] for row in table.cells] == ["fast", "even", "slow"]
    half = stats.t.ppf(0.975, 2) * 0.02 / math.sqrt(3)
    fast, _, slow = (row[1] for row in table.cells)
    assert isinstance(fast, Amount)
    assert fast.value == pytest.approx(0.82)
    assert fast.half == pytest.approx(half)
    assert isinstance(slow, Amount)
    assert slow.value == pytest.approx(0.42)
    assert slow.half == pytest.approx(half)
    assert [row[3:5] for row in table.cells] == [("best", "3 of 3"), ("no", "3 of 3"), ("yes", "3 of 3")]
    assert [str(row[5]) for row in table.cells] == ["30 s"] * 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("budget", [{"time": 25}, {"bytes": 2500}, {"rounds": 25}, {"energy": 50}], ids=str)
def test_values_intervals_and_verdicts_are_those_of_pandas_and_scipy(three: Path, budget: dict[str, float]) -> None:
    rng = np.random.default_rng(7)
    for protocol, mean in (("slow", 0.4), ("fast", 0.8), ("even", 0.79)):
        for seed in range(3):
            steps = np.sort(rng.uniform(2, 40, 12))
            rows = [(0.0, 0.1), *zip(steps, mean + rng.normal(0, 0.05, 12), strict=True)]
            joules = {"energy_j": [2 * time for time, _ in rows]}
            write_evaluations(three, protocol, seed, rows, columns=joules, stop_reason="time")
    (cost, amount), results = next(iter(budget.items())), Results.open(three)
    table = results.within(**budget)  # type: ignore[arg-type]  # one of four keywords
    metrics = results.metrics
    spent = {
        "time": metrics["time_s"],
        "rounds": metrics["round"],
        "bytes": metrics["bytes_up"] + metrics["bytes_down"] + metrics["bytes_peer"],
        "energy": metrics["energy_j"],
    }[cost]
    by_run = metrics[spent <= amount].groupby(["protocol", "seed"], observed=True)["test_accuracy"].last()
    values = by_run.unstack("seed")
    order = values.mean(axis=1).sort_values(ascending=False).index.tolist()
    assert [row[0] for row in table.cells] == order
    pairs = [(one, other) for place, one in enumerate(order) for other in order[place + 1 :]]
    p = {pair: stats.ttest_rel(values.loc[pair[0]], values.loc[pair[1]]).pvalue for pair in pairs}
    smallest = sorted(p.values())
    corrected = np.minimum(1, np.maximum.accumulate([(3 - k) * each for k, each in enumerate(smallest)]))
    for place, name in enumerate(order):
        low, high = stats.t.interval(0.95, 2, values.loc[name].mean(), stats.sem(values.loc[name]))
        value = table.cells[place][1]
        assert isinstance(value, Amount)
        assert value.value == pytest.approx(values.loc[name].mean())
        assert value.ends == pytest.approx((max(low, 0), min(high, 1)))
        if place:
            difference, gap = table.cells[place][2], values.loc[name] - values.loc[order[0]]
            assert isinstance(difference, Amount)
            assert difference.value == pytest.approx(gap.mean())
            assert difference.ends == pytest.approx(stats.t.interval(0.95, 2, gap.mean(), stats.sem(gap)))
            told = corrected[smallest.index(p[order[0], name])] < 0.05
            assert table.cells[place][3] == ("yes" if told else "no")


def test_bytes_of_both_directions_and_of_peers_count(three: Path) -> None:
    for seed in range(3):
        rows = curve([0.1, 0.2, 0.3])
        more = {"bytes_down": [0, 10, 20], "bytes_peer": [0, 5, 10]}
        write_evaluations(three, "slow", seed, rows, 0, more, stop_reason="time")
    results = Results.open(three)
    values = [column(results, "test accuracy", bytes=limit)["slow"].value for limit in (15, 29, "0.03 kB")]
    assert values == pytest.approx([0.2, 0.2, 0.3])


def test_the_lowest_value_is_best_where_lower_is_better(three: Path) -> None:
    for protocol, losses in (("slow", (2, 1.5)), ("fast", (2, 0.5)), ("even", (2, 1))):
        for seed in range(3):
            noise = seed / 100
            columns = {"test_loss": [losses[0], losses[1] + noise]}
            write_evaluations(three, protocol, seed, curve([0.1, 0.2]), columns=columns, stop_reason="time")
    results = Results.open(three)
    assert [*column(results, "test loss", metric="test_loss", time=10)] == ["fast", "even", "slow"]
    assert [*column(results, "told apart", metric="test_loss", time=10).values()] == ["best", "yes", "yes"]


def test_a_run_that_had_ended_keeps_its_last_value_and_is_counted(three: Path) -> None:
    write_evaluations(three, "fast", 1, curve([0.1, 0.9]), stop_reason="target")
    results = Results.open(three)
    assert column(results, "ended before", time=30) == {"fast": 1, "even": 0, "slow": 0}
    assert column(results, "test accuracy", time=30)["fast"].value == pytest.approx((0.8 + 0.9 + 0.84) / 3)
    assert any(note.startswith("Ended before:") for note in results.within(time=30).notes)
    assert column(results, "ended before", time=60) == {"fast": 3, "even": 3, "slow": 3}
    end = results.estimates().query("measure == 'end_test_accuracy' and baseline.isna()").set_index("protocol")["mean"]
    values = column(results, "test accuracy", time=60)
    assert {name: each.value for name, each in values.items()} == pytest.approx({**end})


def test_a_protocol_with_a_run_that_has_no_value_is_last_and_said_to_be(three: Path) -> None:
    (three / "scenario.yaml").write_text(SCENARIO.replace("10 s", "40 rounds"))
    write_evaluations(three, "fast", 2, [(0, 0.1), (40, 0.9)], stop_reason="time")
    table = Results.open(three).within(time=30)
    assert [row[0] for row in table.cells] == ["even", "slow", "fast"]
    assert table.cells[-1][1:5] == ("—", "—", "no value", "2 of 3")
    assert "Last, since not every run has a value within 30 s: fast." in table.notes
    nothing = Results.open(three).within(time=5)
    assert [row[1] for row in nothing.cells] == ["—"] * 3


def test_models_that_had_certainly_not_changed_have_the_value_of_the_start(three: Path) -> None:
    """Every 10 s: an evaluation at 40 s says that no model changed until 30 s."""
    frame = pd.DataFrame({"time_s": [0.0, 40.0], "round": [0, 1], "updates": [0, 0], "test_accuracy": [0.1, 0.8]})
    evaluate = Results.open(three).evaluation(Results.open(three).runs[0])
    still, unknown = (standing(frame, "test_accuracy", Budget("time", end), evaluate=evaluate) for end in (30.0, 31.0))
    assert (still.value, still.until) == (0.1, 30)
    assert math.isnan(unknown.value)


def test_protocols_whose_value_may_be_out_of_date_are_named(three: Path) -> None:
    for seed in range(3):
        write_evaluations(three, "slow", seed, [(0, 0.1), (10, 0.3), (50, 0.4)], stop_reason="time")
        write_evaluations(three, "fast", seed, [(0, 0.1), (28, 0.3), (50, 0.4)], stop_reason="time")
    (three / "scenario.yaml").write_text(SCENARIO.replace("10 s", "5 rounds"))
    notes = Results.open(three).within(time=30).notes
    assert [note.partition(". ")[0] for note in notes if "seldom" in note] == ["Evaluated too seldom to tell: slow"]


def test_diverged_runs_count_until_they_diverge_and_failed_ones_do_not(three: Path) -> None:
    write_evaluations(three, "fast", 0, curve(CURVES["fast"][0]), status="diverged", stop_reason=None, error="nan")
    write_evaluations(three, "even", 0, curve([0.1, 0.2]), status="diverged", stop_reason=None, error="nan")
    write_evaluations(three, "slow", 0, curve(CURVES["slow"][0]), status="failed", stop_reason=None, error="boom")
    results = Results.open(three)
    assert column(results, "runs", time=30) == {
        "fast": "3 of 3 (1 diverged)", "slow": "2 of 3 (1 failed)", "even": "2 of 3 (1 diverged)",
    }  # fmt: skip
    assert column(results, "told apart", time=30)["even"] == "no value"
    assert column(results, "test accuracy", time=30)["slow"].value == pytest.approx(0.43)


def test_a_table_of_failed_runs_alone_has_no_value(three: Path) -> None:
    for run in Results.open(three).runs:
        lost = {"status": "failed", "error": "boom", "stop_reason": None}
        write_evaluations(three, run.protocol, run.seed, [(0, 0.1)], **lost)
    cells = Results.open(three).within(time=30).cells
    assert [row[:5] for row in cells] == [
        (name, "—", "—", "no value", "0 of 3 (3 failed)") for name in ("slow", "fast", "even")
    ]


def test_one_seed_does_not_tell_protocols_apart(three: Path) -> None:
    for run in Results.open(three).runs:
        if run.seed:
            lost = {"status": "failed", "error": "boom", "stop_reason": None}
            write_evaluations(three, run.protocol, run.seed, [(0, 0.1)], **lost)
    table = Results.open(three).within(time=30)
    assert [row[3] for row in table.cells] == ["best", "unknown", "unknown"]
    assert "One seed does not tell protocols apart." in table.notes


def test_references_do_not_compete(three: Path) -> None:
    for seed in range(3):
        write_evaluations(three, "fast", seed, curve(CURVES["fast"][seed]), stop_reason="time", reference=True)
    results = Results.open(three)
    assert column(results, "told apart", time=30) == {"even": "best", "slow": "yes", "fast": "reference"}


def test_studies_compared_together_rank_all_their_protocols(three: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "scenario.yaml").write_text(SCENARIO.replace("name: three", "name: other\nbudget: {time: 30}"))
    for seed in range(3):
        write_evaluations(other, "fast", seed, curve([0.1, 0.2, 0.3, 0.95 + seed / 100]), stop_reason="time")
    joint = compare([Results.open(three), Results.open(other)])
    assert [*column(joint, "told apart", time=30)] == ["fast (other)", "fast (three)", "even", "slow"]
    assert joint.budgets == ()
    assert Results.open(other).budgets == (Budget("time", 30),)


def test_the_command_line_the_scenario_and_python_give_the_same_tables(
    three: Path, vflsim: Callable[..., Ended]
) -> None:
    results = Results.open(three)
    wanted = [results.summary(), results.within(time="0.5 min"), results.within(bytes=2000)]
    shown = vflsim("compare", three, "--budget", "30 s", "--budget", "2 kB", "--csv").out
    assert shown == written(wanted, "csv")
    (three / "scenario.yaml").write_text(SCENARIO + "budget: {time: 15*slow s, bytes: 2 kB}\n")
    assert vflsim("compare", three, "--csv").out == shown
    other = vflsim("compare", three, "--budget", "20 rounds").out
    assert "test accuracy within 20 rounds" in other
    assert "within 30 s" not in other


@pytest.mark.parametrize(
    ("budget", "named", "allowed"),
    [
        ("10", "'10' is no budget", "10 min, 200 rounds, 20 MB or 500 J"),
        ("5 kg", "'5 kg' is no budget", "10 min, 200 rounds, 20 MB or 500 J"),
        ("-5 s", "'-5 s' = -5 is out of range", "a number above 0"),
        ("1.5 rounds", "1.5 is out of range", "a whole number at least 1"),
        ("3 J", "no party says what it draws", "another budget"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused_with_what_is_allowed(
    three: Path, vflsim: Callable[..., Ended], budget: str, named: str, allowed: str
) -> None:
    ended = vflsim("compare", three, "--budget", budget)
    assert ended.status
    assert named in ended.err
    assert allowed in ended.err


def test_python_refuses_no_budget_several_and_metrics_that_were_not_evaluated(three: Path) -> None:
    results = Results.open(three)
    with pytest.raises(ResultsError, match="a budget of nothing"):
        results.within()
    with pytest.raises(ResultsError, match="2 budgets at once"):
        results.within(time=3, bytes=4)
    with pytest.raises(ResultsError, match="'test_auc' was not evaluated"):
        results.within("test_auc", time=3)
    with pytest.raises(NotRecordedError, match="draws"):
        results.within(energy=3)
