import math
import re
import shutil
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from evaluated_runs import write_evaluations as write
from rich.console import Console
from scipy import stats
from toy_runs import toy_results

from vflsim.errors import ResultsError
from vflsim.intervals import holm, step_values, t_interval
from vflsim.results import Results, RunTables, comparison_table, summarise, write_run, write_summary
from vflsim.results.statistics import statistic_of
from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, SeedSample, describe, estimate
from vflsim.results.statistics.pairs import ratio
from vflsim.vocabulary.amounts import Amount, quantity, span, three_digits
from vflsim.vocabulary.metrics import higher_is_better

SCENARIO = """\
name: three
protocols: {slow: {kind: synchronous}, fast: {kind: asynchronous}}
stop: {time: 60, target: {test_accuracy: 0.9, for: 1 evaluation}}
"""
JUST = 1e-3


def often(*rows: tuple[float, float]) -> list[tuple[float, float]]:
    """Evaluate just before each change, too, so that costs are known."""
    before = [(time - JUST, value) for (_, value), (time, _) in pairwise(rows)]
    return [rows[0], *(row for pair in zip(before, rows[1:], strict=True) for row in pair)]


# (time, accuracy) of each evaluation, by protocol and seed; 100 bytes up a second, a round every second.
RUNS = {
    "slow": {0: often((0, 0.1), (20, 0.5), (40, 0.9)), 1: often((0, 0.1), (60, 0.8)), 2: often((0, 0.1), (50, 0.95))},
    "fast": {
        0: often((0, 0.1), (10, 0.91)),
        1: often((0, 0.1), (6, 0.9), (8, 0.7)),
        2: often((0, 0.1), (5, 0.2), (17, 0.92)),
    },
}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    for protocol, seeds in RUNS.items():
        for seed, rows in seeds.items():
            write(tmp_path, protocol, seed, rows)
    return tmp_path


def row(summary: pd.DataFrame, measure: str, protocol: str, baseline: str | None = None) -> pd.Series:
    own = summary[(summary["measure"] == measure) & (summary["protocol"] == protocol)]
    (found,) = (r for _, r in own.iterrows() if (None if pd.isna(r["baseline"]) else r["baseline"]) == baseline)
    return found


def text(results: Results) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(results))
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 1.0, 4.0, 1.0, 5.0], [0.1] * 3])
def test_the_interval_is_scipys(values: list[float]):
    found = t_interval(values)
    assert (found.mean, found.n) == (pytest.approx(np.mean(values)), len(values))
    if len(set(values)) > 1:
        expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    else:
        assert found.half_width == pytest.approx(0)


def test_one_value_has_no_interval_and_none_no_mean():
    assert math.isnan(t_interval([2.0]).low)
    assert math.isnan(t_interval([]).mean)


def test_a_step_function_holds_its_value_until_the_next_step():
    grid = np.array([-1.0, 0.0, 0.5, 1.0, 9.0])
    values = step_values(np.array([0.0, 1.0]), np.array([5.0, 7.0]), grid)
    assert np.isnan(values[0])
    assert values[1:].tolist() == [5, 5, 7, 7]


def test_costs_are_taken_at_the_first_evaluation_that_reaches_the_target(three: Path):
    summary = summarise(Results.open(three))
    for measure, values in {
        "time_to_target": [10, 6, 17],
        "rounds_to_target": [10, 6, 17],
        "bytes_to_target": [1000, 600, 1700],
        "end_test_accuracy": [0.91, 0.7, 0.92],
        "end": [10, 8, 17],
    }.items():
        found = row(summary, measure, "fast")
        there, back = (np.log, np.exp) if measure.endswith("to_target") else (np.array, np.array)
        expected = stats.ttest_1samp(there(values), 0.0).confidence_interval(0.95)
        assert found["mean"] == pytest.approx(back(np.mean(there(values))))
        most = 1 if "accuracy" in measure else math.inf
        low, high = (float(back(end)) for end in (expected.low, expected.high))
        assert (found["low"], found["high"]) == pytest.approx((low, min(high, most)), rel=5 * JUST)
        assert (found["n"], found["reached"]) == (3, 3)
        assert found["statistic"] == ("geometric mean" if measure.endswith("to_target") else "mean")


def test_a_run_that_never_gets_there_is_censored_not_left_out(three: Path):
    found = row(summarise(Results.open(three)), "time_to_target", "slow")
    assert (found["n"], found["reached"], found["horizon"]) == (3, 2, 60)
    assert math.isnan(found["mean"])
    limit = stats.ttest_1samp(np.log([40, 60, 50]), 0.0, alternative="greater").confidence_interval(0.95).low
    assert found["at_least"] == pytest.approx(np.exp(limit), rel=JUST)
    assert (found["median"], math.isnan(found["median_low"])) == (45, True)


def test_paired_differences_are_taken_within_common_seeds(three: Path):
    shutil.rmtree(three / "fast" / "seed-2")
    found = row(summarise(Results.open(three)), "end_test_accuracy", "fast", "slow")
    expected = stats.ttest_rel([0.91, 0.7], [0.9, 0.8]).confidence_interval(0.95)
    assert found["n"] == 2
    assert found["mean"] == pytest.approx(-0.045)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))


def test_a_difference_to_a_censored_run_is_bounded_on_the_side_that_is_known(three: Path):
    found = row(summarise(Results.open(three)), "time_to_target", "fast", "slow")
    assert math.isnan(found["mean"])
    assert math.isnan(found["at_least"])
    gaps = [10 - 40, 6 - 60, 17 - 50]
    limit = stats.ttest_1samp(gaps, 0.0, alternative="less").confidence_interval(0.95).high
    assert found["at_most"] == pytest.approx(limit, rel=JUST)
    assert found["reached"] == 2


def test_the_table_shows_a_censored_cost_as_greater_than_the_horizon(three: Path):
    shown = text(Results.open(three))
    slow, fast = (
        next(line for line in shown.splitlines() if line.strip().startswith(name)) for name in ("slow", "fast")
    )
    assert "2 of 3" in slow
    assert "2 of 3: 45 s, > 60 s" in slow
    assert "10 (3 … 37) s" in fast
    ratios = stats.ttest_1samp(np.log([40 / 10, 60 / 6, 50 / 17]), 0.0).confidence_interval(0.9)
    assert np.exp(ratios) == pytest.approx([1.675, 14.33], rel=1e-3)
    assert re.search(r"> 1\.67 … 14\.4 ×$", fast.strip())  # ends with the one-sided limit, rounded outwards
    assert "one-sided 95 % limits" in shown
    assert "geometric means of costs over seeds" in shown.splitlines()[0]


NOISY = {
    "slow": {0: [(t, 0.85 + 0.05 * (t in (10, 20, 32))) for t in range(0, 61, 2)]},  # passes 0.9, and never holds it
    "fast": {0: [(t, 0.91 - 0.5 * (t < 20) - 0.1 * (t == 24)) for t in range(0, 61, 2)]},  # from 26 s on it does
}


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    (tmp_path / "scenario.yaml").write_text(
        "name: noisy\nprotocols: {slow: {}, fast: {}}\ntarget: {test_accuracy: 0.9}\nstop: {time: 60}\n"
    )
    for protocol, seeds in NOISY.items():
        write(tmp_path, protocol, 0, seeds[0], stop_reason="time")
    return tmp_path


def test_a_passage_that_is_not_held_is_no_arrival_and_the_table_says_what_held_means(noisy: Path):
    results = Results.open(noisy)
    summary = summarise(results)
    assert set(summary["target"].dropna()) == {"test_accuracy ≥ 0.9 for 5 evaluations"}
    slow, fast = (row(summary, "time_to_target", name) for name in ("slow", "fast"))
    assert (slow["reached"], slow["horizon"], fast["reached"], fast["mean"]) == (0, 60, 1, 26)
    assert [row(summary, f"{what}_to_target", "fast")["mean"] for what in ("rounds", "bytes")] == [26, 2600]
    said = "Target: test_accuracy ≥ 0.9 for 5 evaluations (what a target without `for` means); reached where the first"
    assert said in text(results)
    first = summarise(results, {"test_accuracy": 0.9, "for": "1 evaluation"})
    assert [row(first, "time_to_target", name)["mean"] for name in ("slow", "fast")] == [10, 20]


def test_a_stretch_still_open_at_the_end_bounds_the_cost_from_where_it_began(noisy: Path):
    found = row(summarise(Results.open(noisy), {"test_accuracy": 0.9, "for": "40 s"}), "time_to_target", "fast")
    assert (found["reached"], found["horizon"]) == (0, 24)  # the last evaluation before the stretch


def test_the_plateau_is_the_mean_over_the_last_tenth_of_the_evaluations(noisy: Path):
    rows = [(t, t / 100) for t in range(21)]
    write(noisy, "slow", 0, [*rows, (21, math.nan)], stop_reason="time")
    write(noisy, "fast", 0, rows, stop_reason="target")
    summary = summarise(Results.open(noisy))
    assert row(summary, "plateau_test_accuracy", "slow")["mean"] == pytest.approx((0.18 + 0.19 + 0.2) / 3)
    assert row(summary, "end_test_accuracy", "slow")["mean"] == row(summary, "end_test_accuracy", "fast")["mean"] == 0.2
    assert "fast" not in set(summary.loc[summary["measure"] == "plateau_test_accuracy", "protocol"])
    shown = text(Results.open(noisy))
    assert "Final accuracy: mean over the last tenth of a run's evaluations" in shown
    assert "a run that a target ended has none" in shown


def test_the_table_says_what_ended_the_runs(three: Path):
    for seed, reason in enumerate(("target", "time", "target")):
        write(three, "slow", seed, RUNS["slow"][seed], stop_reason=reason)
    write(three, "fast", 1, RUNS["fast"][1], status="failed", stop_reason=None, error="boom")
    three.joinpath("scenario.yaml").write_text("protocols: {slow: {}, fast: {}}\n")
    shown = text(Results.open(three))
    assert "2 target, 1 time" in shown
    assert "1 failed" in shown


def test_a_diverged_run_is_one_that_never_reaches_the_target(three: Path):
    write(
        three, "slow", 0, [(0, 0.1), (8, 0.2)], status="diverged", stop_reason=None, error="server: loss is nan\nmore"
    )
    results = Results.open(three)
    summary = summarise(results)
    found = row(summary, "time_to_target", "slow")
    assert (found["n"], found["reached"], found["horizon"]) == (3, 1, 8)
    assert (found["failed"], found["diverged"]) == (0, 1)
    assert row(summary, "end_test_accuracy", "slow")["n"] == 2
    assert row(summary, "time_to_target", "fast", "slow")["n"] == 3
    shown = text(results)
    assert "1 of 3 (1 diverged)" in shown
    assert "> 8 s" in shown
    assert "Diverged (target not reached); left out of all other means: slow, seed 0: server: loss is nan" in shown


def test_a_run_that_held_its_target_before_it_diverged_has_reached_it(noisy: Path):
    write(noisy, "fast", 0, NOISY["fast"][0], status="diverged", stop_reason=None, error="nan")
    assert row(summarise(Results.open(noisy)), "time_to_target", "fast")["mean"] == 26
    # An open stretch can never become complete: the run's end is the bound.
    longer = summarise(Results.open(noisy), {"test_accuracy": 0.9, "for": "40 s"})
    assert row(longer, "time_to_target", "fast")["horizon"] == 60


def test_when_all_runs_diverged_the_table_counts_them_and_does_not_claim_that_nothing_was_evaluated(three: Path):
    for protocol, seeds in RUNS.items():
        for seed in seeds:
            write(three, protocol, seed, [(0, 0.1), (4, 0.2)], status="diverged", stop_reason=None, error="nan")
    results = Results.open(three)
    shown = text(results)
    assert shown.count("0 of 3 (3 diverged)") == 2
    assert "> 4 s" in shown
    assert "not evaluated" not in shown
    write_summary(results)


def test_failed_runs_are_left_out_and_said(three: Path):
    write(three, "slow", 1, RUNS["slow"][1], status="failed", error="RunError: client-1: boom\nmore")
    results = Results.open(three)
    found = row(summarise(results), "time_to_target", "slow")
    assert (found["failed"], found["n"], found["mean"]) == (1, 2, pytest.approx(math.sqrt(40 * 50)))
    assert row(summarise(results), "end", "fast", "slow")["n"] == 2
    assert "2 of 2 (1 failed)" in text(results)
    assert "slow, seed 1: RunError: client-1: boom" in text(results)


def test_when_all_runs_failed_the_table_still_says_so(three: Path):
    for protocol, seeds in RUNS.items():
        for seed in seeds:
            write(three, protocol, seed, [(0, 0.1)], status="failed", error="boom")
    results = Results.open(three)
    assert summarise(results).empty
    assert text(results).count("boom") == 6
    assert "No run finished: nothing is known about the target test_accuracy ≥ 0.9 for 1 evaluation." in text(results)
    assert "not evaluated" not in text(results)
    write_summary(results)


def test_other_targets_can_be_asked_for(three: Path):
    results = Results.open(three)
    found = row(summarise(results, {"test_accuracy": 0.5, "for": "1 evaluation"}), "time_to_target", "slow")
    assert found["mean"] == pytest.approx((20 * 60 * 50) ** (1 / 3))
    with pytest.raises(ResultsError, match="'test_auc' was not evaluated"):
        summarise(results, {"test_auc": 0.5})
    with pytest.raises(ResultsError, match="no target: there is no metric 'accuracy'"):
        summarise(results, {"accuracy": 0.5})


def test_targets_may_be_formulas_of_the_scenarios_constants(three: Path):
    formula = SCENARIO.replace("test_accuracy: 0.9", "test_accuracy: a - 1/N").replace(
        "stop:", "constants: {a: 1, b: 2*a}\npartition: {clients: 5*b}\nstop:"
    )
    three.joinpath("scenario.yaml").write_text(formula)
    assert row(summarise(Results.open(three)), "time_to_target", "fast")["mean"] == pytest.approx(
        (10 * 6 * 17) ** (1 / 3)
    )


def test_losses_reach_their_target_from_above(three: Path):
    assert [higher_is_better(f"test_{name}") for name in ("accuracy", "auc", "r2", "loss", "rmse")] == [1, 1, 1, 0, 0]
    scenario = three / "scenario.yaml"
    scenario.write_text(SCENARIO.replace("test_accuracy: 0.9", "train_loss: 0.2"))
    results = Results.open(three)
    assert row(summarise(results), "time_to_target", "slow")["mean"] == pytest.approx((40 * 60 * 50) ** (1 / 3))
    assert "Target: train_loss ≤ 0.2 for 1 evaluation" in text(results)


def test_every_protocol_is_held_to_the_targets_of_all(three: Path):
    three.joinpath("scenario.yaml").write_text(
        "protocols: {slow: {stop: {target: {test_accuracy: 0.5}}}, fast: {}}\nstop: {target: {test_accuracy: 0.9}}\n"
    )
    summary = summarise(Results.open(three))
    assert list(summary["target"].dropna().unique()) == [
        "test_accuracy ≥ 0.9 for 5 evaluations",
        "test_accuracy ≥ 0.5 for 5 evaluations",
    ]
    three.joinpath("scenario.yaml").write_text("protocols: {slow: {}}\nstop: {target: {test_accuracy: high}}\n")
    with pytest.raises(ResultsError, match="a target cannot be read: the symbol 'high'"):
        summarise(Results.open(three))


def test_one_seed_has_no_interval_and_no_plus_minus(three: Path):
    for protocol in RUNS:
        shutil.rmtree(three / protocol / "seed-1")
        shutil.rmtree(three / protocol / "seed-2")
    shown = text(Results.open(three))
    assert "40 s" in shown
    assert "±" not in shown


def test_timing_only_results_have_a_table_too(tmp_path: Path):
    folder = toy_results(tmp_path / "toy", seeds=2, horizon=20)
    for run in Results.open(folder).runs:
        tables = run.tables()
        bare = RunTables(tables.metrics.drop_columns(["test_accuracy", "test_loss"]), tables.rounds, tables.events)
        write_run(run.folder, bare, {}, run.info)
    results = Results.open(folder)
    assert results.evaluated == ()
    shown = text(results)
    assert "mean round" in shown
    assert "Target test_accuracy ≥ 0.9 for 1 evaluation was not evaluated" in shown


def test_summary_files_hold_the_summary_and_are_the_same_each_time(three: Path):
    results = Results.open(three)
    paths = write_summary(results)
    assert [path.name for path in paths] == ["summary.parquet", "summary.md"]
    before = [path.read_bytes() for path in paths]
    stored = pd.read_parquet(paths[0])
    assert stored["mean"].tolist() == pytest.approx(summarise(results)["mean"].tolist(), nan_ok=True)
    page = paths[1].read_text()
    assert "| slow | 2 of 3 |" in page
    assert "fast − slow" in page
    assert [path.read_bytes() for path in write_summary(Results.open(three))] == before


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (quantity(12.3456, "s", 0.42), "12.3 ± 0.4 s"),
        (quantity(12.3456, "s", 0.1234), "12.35 ± 0.12 s"),
        (quantity(0.0123, "s"), "12.3 ms"),
        (quantity(5_600_000, "B"), "5.6 MB"),
        (quantity(123456, "rounds"), "123456"),
        (quantity(0, "B"), "0 B"),
        (quantity(-3.0, "s"), "−3 s"),
        (quantity(math.nan, "s"), "—"),
        (quantity(18.0, "s", 0.0), "18 ± 0 s"),
        (span(-5.5, 0.2, "s"), "−5.5 … 0.2 s"),
    ],
)
def test_numbers_are_shown_with_unit_and_sensible_digits(shown: Amount, expected: str) -> None:
    assert str(shown) == expected


@pytest.mark.parametrize(
    ("values", "unit", "share", "statistic", "shown"),
    [
        ([1.0, 4.0, 16.0], "s", False, GEOMETRIC, "4 (0.13 … 125) s"),  # an end keeps a digit of its own
        ([1.0, 4.0, 16.0], "s", False, MEAN, "7 ± 20 s"),  # the column decides which mean, not the row
        ([5.0, 5.1, 5.2], "s", False, GEOMETRIC, "5.1 ± 0.3 s"),
        ([5.0, 6.0, 7.0], "s", False, MEAN, "6 ± 2 s"),
        ([5.0], "s", False, GEOMETRIC, "5 s"),
        ([0.91, 0.95], "", True, MEAN, "0.930 ± 0.255"),
        ([0.9441, 0.9442], "", True, MEAN, "0.944 ± 0.001"),
    ],
)
def test_small_numbers_of_seeds_read_well(
    values: list[float], unit: str, share: bool, statistic: str, shown: str
) -> None:
    found = estimate(SeedSample.exact(dict(enumerate(values))), statistic)
    assert str(describe(found, unit, share)) == shown


@pytest.mark.parametrize(
    ("reached", "missed", "shown"),
    [
        ([9.0, 10.0, 11.0, 12.0], [600.0], "4 of 5: 10.5 s, > 600 s"),
        ([9.0], [600.0, 500.0], "1 of 3: 9 s, > 500 s"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [60.0], "6 of 7: 4 (1 … 6) s, > 60 s"),
        ([], [60.0, 50.0], "> 50 s"),
    ],
)
def test_a_censored_cost_shows_what_is_known(reached: list[float], missed: list[float], shown: str) -> None:
    censored = np.array([False] * len(reached) + [True] * len(missed))
    sample = SeedSample((*range(len(censored)),), np.array(reached + missed), censored)
    assert str(describe(estimate(sample, GEOMETRIC), "s")) == shown


def test_a_protocol_that_starts_at_the_target_has_a_cost_of_zero(three: Path) -> None:
    summary = summarise(Results.open(three), {"test_accuracy": 0.1, "for": "1 evaluation"})
    found = row(summary, "time_to_target", "fast")
    assert (found["mean"], found["low"], found["high"]) == (0, 0, 0)


def test_intervals_of_shares_end_at_0_and_1_and_those_of_losses_at_0(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: near\nprotocols: {slow: {}}\nstop: {time: 60}\n")
    for seed, end in enumerate([0.999, 0.9]):
        write(tmp_path, "slow", seed, [(0, 0.1), (30, end)], stop_reason="time")
    summary = summarise(Results.open(tmp_path))
    share, loss = (row(summary, f"end_{name}", "slow") for name in ("test_accuracy", "train_loss"))
    whole = stats.ttest_1samp([0.999, 0.9], 0.0).confidence_interval(0.95)
    assert whole.high > 1
    assert (share["low"], share["high"]) == (pytest.approx(whole.low), 1)
    assert loss["low"] == 0 < loss["high"]
    assert re.search(r"0\.9\d\d \(0\.3\d\d … 1\.000\)", text(Results.open(tmp_path)))


def measured(times: dict[str, list[float]], missed: tuple[tuple[str, int], ...] = ()) -> pd.DataFrame:
    rows = [
        (name, seed, value, value, (name, seed) in missed)
        for name, own in times.items()
        for seed, value in enumerate(own)
    ]
    return pd.DataFrame(rows, columns=["protocol", "seed", "value", "lower", "censored"])


@pytest.mark.parametrize(("late", "bound", "side"), [("own", "most", "less"), ("base", "least", "greater")])
def test_the_bound_of_a_ratio_is_a_one_sided_limit(late: str, bound: str, side: str) -> None:
    times = {"own": [10.0, 12.0, 9.0, 60.0], "base": [30.0, 45.0, 20.0, 80.0]}
    found = ratio(measured(times, ((late, 3),)), "own", "base")
    logs = np.log(np.array(times["base"]) / np.array(times["own"]))
    limits = stats.ttest_1samp(logs, 0.0, alternative=side).confidence_interval(0.95)
    assert found is not None
    assert found.bound == bound
    assert found.mean == pytest.approx(np.exp(limits.high if bound == "most" else limits.low))


def test_the_digits_of_a_bound_keep_it_a_bound() -> None:
    assert (three_digits(7.6499, "least"), three_digits(7.6401, "most")) == ("7.64", "7.65")


def test_seeds_without_a_ratio_are_counted() -> None:
    found = ratio(measured({"own": [0.0, 2.0, 2.0], "base": [8.0, 8.0, 8.0]}), "own", "base")
    assert str(found) == "4 × (2 of 3)"


def test_of_equal_protocols_few_studies_call_one_different() -> None:
    # Holm keeps the error level at 5 %; of 400 studies 6.8 % or more would have a probability of 5 % at that level.
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        values = rng.normal(size=(10, 5))
        chances = [t_interval(one - other).p for one, other in combinations(values, 2)]
        wrong += bool((holm(np.array(chances)) < 0.05).any())
    assert wrong / 400 < 0.068


def test_holms_correction_is_the_textbooks() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_geometric_column_keeps_protocols_that_cost_nothing_and_equal_costs() -> None:
    """The reference sends no bytes: its mean is 0, and the others' stay geometric."""
    assert statistic_of("bytes_to_target", [np.array([1.0, 2.0]), np.zeros(2)]) == "geometric mean"
    assert statistic_of("bytes_to_target", [np.array([1.0, 0.0]), np.ones(2)]) == "mean"
    for value in (0.0, 0.03):
        found = estimate(SeedSample.exact(dict.fromkeys(range(5), value)), "geometric mean")
        assert (found.mean, found.low, found.high) == (value, value, value)
