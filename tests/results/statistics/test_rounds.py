"""The round in progress when a run stops by time: how it counts, and whether the mean's interval then covers."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.signal import lfilter
from scipy.stats import f_oneway, rankdata
from timed_runs import write_timed

from vflsim.intervals import Variation, narrower, steady_mean, t_interval
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.bs_vfl import BsVfl
from vflsim.protocols.pubsub_vfl import PubSubVfl
from vflsim.results import Results, summarise, write_summary
from vflsim.results.statistics.rounds import (
    Rounds,
    dependence,
    doubts,
    lasting,
    means,
    outlasting,
    paired_rounds,
    pooled_mean,
    with_open,
)
from vflsim.results.tables import comparison_table, pairing

NONE = np.empty(0)


def stopped(durations: np.ndarray, time: float) -> Rounds:
    ends = durations.cumsum()
    done = int(np.searchsorted(ends, time, side="right"))
    return Rounds(durations[:done], time - (ends[done - 1] if done else 0.0))


def test_an_open_round_lasts_as_long_as_those_that_outlasted_its_age() -> None:
    assert lasting(np.array([1.0, 2.0, 4.0, 9.0]), np.array([3.0])) == pytest.approx([6.5])


def test_open_rounds_that_are_older_count_among_those_that_outlasted_it() -> None:
    found = lasting(np.array([1.0, 2.0, 4.0]), np.array([1.5, 3.0]))
    assert found == pytest.approx([(2 + 4 + 4) / 3, 4.0])


def test_one_that_has_outlasted_all_counts_with_its_age() -> None:
    assert lasting(np.array([1.0, 2.0]), np.array([5.0])) == pytest.approx([5.0])


def test_the_mean_is_the_area_under_the_estimate_of_kaplan_and_meier() -> None:
    rng = np.random.default_rng(1)
    complete, ages = np.sort(rng.exponential(size=50)), rng.exponential(size=8)
    ages = np.minimum(ages, complete[-1] * 0.9)
    left = outlasting(complete, ages)
    area = float((np.diff(complete, prepend=0.0) * left[:-1]).sum())
    assert pooled_mean(complete, ages) == pytest.approx(area)


def test_constant_rounds_keep_their_duration() -> None:
    runs = [stopped(np.full(20, 1.5), time) for time in (10.0, 11.3)]
    assert means(runs) == pytest.approx([1.5, 1.5])
    assert with_open(runs[0]) == pytest.approx(np.full(7, 1.5))


def test_constant_rounds_after_a_shorter_first_one_are_not_doubted() -> None:
    runs = [stopped(np.concatenate([[1.2], np.full(200, 1.5)]), time) for time in (100.0, 133.3)]
    assert doubts(runs) == ""


def test_without_open_rounds_every_run_has_its_own_mean() -> None:
    runs = [Rounds(np.array([1.0, 2.0]), np.nan), Rounds(np.array([5.0]), np.nan)]
    assert means(runs).tolist() == [1.5, 5.0]
    assert outlasting(np.array([1.0, 2.0]), NONE).tolist() == [1.0, 0.5, 0.0]
    assert with_open(runs[0]) is runs[0].complete


def rare(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.where(rng.random(size) < 0.01, 100.0, 1.0) / 1.99


LAWS = {
    "exponential": (lambda rng, size: rng.exponential(size=size), 30.0),
    "log-normal 1.5": (lambda rng, size: np.exp(1.5 * rng.standard_normal(size) - 1.125), 100.0),
    "Pareto 2.2": (lambda rng, size: (1 - rng.random(size)) ** (-1 / 2.2) * 1.2 / 2.2, 100.0),
    "one in a hundred lasts 100 times as long": (rare, 100.0),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_interval_over_runs_that_stop_by_time_covers_or_a_note_doubts_it(law: str) -> None:
    """At least .93 of the studies cover or are doubted; here less three standard errors of a share of 250 (.048)."""
    draw, time = LAWS[law]
    rng, right = np.random.default_rng(7), []
    for _ in range(250):
        runs = [stopped(draw(rng, int(6 * time) + 60), time) for _ in range(10)]
        found = t_interval(means(runs))
        right.append(found.low <= 1 <= found.high or bool(doubts(runs)))
    assert np.mean(right) > 0.88


def test_exponential_rounds_are_covered_and_rarely_doubted() -> None:
    """Coverage .94 in 1,500 studies, here less three standard errors of a share of 250; before .91."""
    rng, covered, doubted = np.random.default_rng(11), [], []
    for _ in range(250):
        runs = [stopped(rng.exponential(size=100), 30.0) for _ in range(10)]
        found = t_interval(means(runs))
        covered.append(found.low <= 1 <= found.high)
        doubted.append(bool(doubts(runs)))
    assert np.mean(covered) > 0.89
    assert np.mean(doubted) < 0.2


def test_fewer_rounds_than_the_law_needs_are_doubted_whatever_they_look_like() -> None:
    runs = [stopped(np.ones(100), 50.5) for _ in range(10)]
    assert doubts(runs) == ""
    known = Variation(rounds=2500, skewed="client 1's upload delay")
    assert "500 of 2,500 rounds, which client 1's upload delay needs" in doubts(runs, known)
    assert "no variance" in doubts(runs, Variation(heavy="a delay"))


def autoregressive(rng: np.random.Generator, size: int, phi: float) -> np.ndarray:
    noise = rng.standard_normal(size) * 0.5 * np.sqrt(1 - phi**2)
    noise[0] /= np.sqrt(1 - phi**2)
    return np.exp(lfilter([1.0], [1.0, -phi], noise) - 0.125)


@pytest.mark.parametrize(("phi", "time", "least", "most"), [(0.9, 30.0, 0.9, 1.0), (0.0, 30.0, 0.0, 0.06)])
def test_rounds_that_depend_on_each_other_as_long_as_a_run_are_doubted(
    phi: float, time: float, least: float, most: float
) -> None:
    """Coverage there is .87 of .95; independent rounds are doubted in 1 % of studies, here of 100."""
    rng, doubted = np.random.default_rng(12), []
    for _ in range(100):
        runs = [stopped(autoregressive(rng, 300, phi), time) for _ in range(10)]
        doubted.append("depend on each other" in doubts(runs))
    assert least <= np.mean(doubted) <= most


@pytest.mark.parametrize(("phi", "least", "most"), [(0.9, 0.85, 1.0), (0.0, 0.0, 0.06)])
def test_few_complete_rounds_that_depend_on_each_other_are_doubted_too(phi: float, least: float, most: float) -> None:
    """Of 1,000 studies with five runs of 30 rounds 95 % are doubted, of independent ones 1 %; here of 100."""
    rng, doubted = np.random.default_rng(13), []
    for _ in range(100):
        runs = [Rounds(autoregressive(rng, 30, phi), np.nan) for _ in range(5)]
        doubted.append("depend on each other" in doubts(runs))
    assert least <= np.mean(doubted) <= most


def test_the_ratio_of_dependence_is_that_of_an_analysis_of_variance_of_ranks() -> None:
    runs = [autoregressive(np.random.default_rng(seed), 20 + seed, 0.9) for seed in range(6)]
    ranked = np.split(rankdata(np.concatenate(runs)), np.cumsum([len(run) for run in runs])[:-1])
    assert dependence(runs) == pytest.approx(f_oneway(*ranked).statistic)
    assert dependence([np.full(5, 1.0), np.full(5, 2.0)]) == 5.0
    assert dependence([np.ones(5), np.ones(5)]) == dependence(runs[:1]) == 1.0


def test_long_rounds_that_no_run_completed_are_doubted() -> None:
    rng = np.random.default_rng(8)
    doubted = [doubts([stopped(rare(rng, 200), 50.0) for _ in range(10)]) for _ in range(50)]
    assert sum("had outlasted all complete ones" in each for each in doubted) >= 48


@pytest.mark.parametrize(("rare", "doubted"), [(100.0, True), (0.01, False)])
def test_only_rare_long_rounds_are_too_few_for_their_skewness(rare: float, doubted: bool) -> None:
    durations = np.where(np.arange(60) % 20 == 7, rare, 1.0)
    runs = [Rounds(durations, 0.5), Rounds(durations[::-1], 0.5)]
    assert ("few for so skewed durations" in doubts(runs)) is doubted


def pairs(rng: np.random.Generator, n: int, rho: float, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Normal pairs with the correlation rho, standard deviations 1 and ``spread``."""
    one, other = rng.normal(size=(2, n))
    return one, spread * (rho * one + math.sqrt(1 - rho**2) * other)


def row(summary: pd.DataFrame, measure: str, protocol: str, baseline: str | None) -> pd.Series:
    own = summary[(summary["measure"] == measure) & (summary["protocol"] == protocol)]
    own = own[own["baseline"].isna() if baseline is None else own["baseline"] == baseline]
    (found,) = (r for _, r in own.iterrows())
    return found


# --- over seeds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_the_factor_is_welchs_interval_over_the_paired_one(n: int) -> None:
    one, two = pairs(np.random.default_rng(n), n, 0.6, 3.0)
    paired = stats.ttest_rel(one, two).confidence_interval(0.9)
    welch = stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.9)
    assert narrower(one, two, 0.9) == pytest.approx((welch.high - welch.low) / (paired.high - paired.low))


@pytest.mark.parametrize(("rho", "spread"), [(0.9, 1.0), (0.5, 2.0), (0.0, 1.0), (-0.8, 1.0), (0.99, 0.5)])
def test_of_many_correlated_normal_pairs_the_factor_is_the_closed_form(rho: float, spread: float) -> None:
    one, two = pairs(np.random.default_rng(1), 50_000, rho, spread)
    expected = math.sqrt((1 + spread**2) / (1 + spread**2 - 2 * rho * spread))
    assert narrower(one, two) == pytest.approx(expected, rel=0.02)
    assert narrower(two, one) == pytest.approx(narrower(one, two))


def test_negative_correlation_makes_the_interval_wider_and_few_independent_pairs_too() -> None:
    one = np.array([1.0, 2.0, 3.0, 4.0])
    assert narrower(one, -one) < 0.75
    few = [narrower(*pairs(np.random.default_rng(seed), 3, 0.0)) for seed in range(200)]
    assert np.median(few) < 0.8


def test_where_differences_do_not_vary_the_factor_is_infinite_and_where_nothing_does_unknown() -> None:
    one = np.array([0.1, 0.2, 0.4])
    assert narrower(one, one + 0.7) == math.inf
    assert math.isnan(narrower(one[:1], one[:1]))
    assert math.isnan(narrower(np.full(3, 0.1), np.full(3, 0.1 + 1e-17)))


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (2.345, "2.3 × narrower"),
        (0.5, "2.0 × wider"),
        (1.02, "as wide as unpaired"),
        (0.98, "as wide as unpaired"),
        (371.0, "371 × narrower"),
        (math.inf, ""),
        (math.nan, ""),
    ],
)
def test_the_factor_in_words(factor: float, said: str) -> None:
    assert pairing(factor) == said


def seeds(shift: float, own: float, common: np.random.Generator, noise: np.random.Generator, n: int = 6) -> dict:
    """Runs whose mean rounds share a part between protocols: ``common`` is drawn alike for each."""
    return {
        seed: np.full(10, 5 + shift + common.normal()) + own * noise.normal() + 0.01 * noise.normal(size=10)
        for seed in range(n)
    }


@pytest.fixture
def replicated(tmp_path: Path) -> Results:
    common, noise = (lambda: np.random.default_rng(2)), np.random.default_rng(3)
    runs = {"a": seeds(0, 0.1, common(), noise), "b": seeds(1, 0.1, common(), noise)}
    return Results.open(write_timed(tmp_path, runs, b="asynchronous"))


def test_the_summary_has_the_factor_of_every_pair_and_of_nothing_else(replicated: Results) -> None:
    summary = summarise(replicated)
    means: dict[str, list[float]] = {"a": [], "b": []}
    for run in replicated.runs:
        means[run.protocol].append(run.frame("rounds").eval("end_s - start_s").mean())
    found = row(summary, "round_duration", "b", "a")
    assert found["narrower"] == pytest.approx(narrower(np.array(means["b"]), np.array(means["a"])))
    assert found["narrower"] > 4
    assert summary.loc[summary["baseline"].isna(), "narrower"].isna().all()
    assert np.isnan(row(summary, "rounds", "b", "a")["narrower"])  # 10 in every run
    write_summary(replicated)
    stored = pd.read_parquet(replicated.folder / "summary.parquet")
    assert stored["narrower"].tolist() == pytest.approx(summary["narrower"].tolist(), nan_ok=True)


def test_tables_show_the_factor_beside_the_difference_on_request(replicated: Results) -> None:
    assert "×" not in "".join(comparison_table(replicated).rows[1])
    shown = comparison_table(replicated, pairing=True)
    factor = pairing(row(summarise(replicated), "round_duration", "b", "a")["narrower"])
    assert shown.header[-1] == "mean round vs a"
    assert shown.rows[1][-1].endswith(f" s ({factor})")
    assert any("two independent sets of runs" in note for note in shown.notes)
    write_summary(replicated)
    page = (replicated.folder / "summary.md").read_text()
    assert f"| {factor} |" in page


# --- within a run -----------------------------------------------------------------------------------------------------


def rounds(rng: np.random.Generator, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Two protocols' rounds that share the slowest client's delays in part."""
    common = rng.exponential(size=n)
    return 1 + common + 0.2 * rng.exponential(size=n), 2 + common + 0.2 * rng.exponential(size=n)


def test_pairing_round_by_round_finds_the_correlation_the_difference_and_its_worth() -> None:
    one, two = rounds(np.random.default_rng(4), 20_000)
    found = paired_rounds(one, two)
    assert found.sound
    assert found.correlation == pytest.approx(1 / 1.04, abs=0.01)  # variances: 1 in common, 0.04 of one's own
    assert found.low < -1 < found.high
    # Between 40 batches the factor √(1.04 / 0.04) is known to about a tenth.
    assert found.narrower == pytest.approx(math.sqrt(1.04 / 0.04), rel=0.3)


def test_the_interval_of_a_difference_within_a_run_covers_it() -> None:
    rng = np.random.default_rng(5)
    found = [paired_rounds(*rounds(rng, 500)) for _ in range(400)]
    assert 0.91 < np.mean([each.low <= -1 <= each.high for each in found]) < 0.985


def test_only_rounds_that_both_have_and_neither_is_warming_up_in_are_paired() -> None:
    one, two = rounds(np.random.default_rng(6), 1003)
    one[:100] += 30
    found = paired_rounds(one, two[:703])
    assert (found.rounds, found.warm_up) == (600, 103)
    assert -1.1 < found.mean < -0.9


def test_too_few_rounds_have_no_pairing() -> None:
    found = paired_rounds(np.arange(39.0), np.arange(50.0))
    assert np.isnan([found.correlation, found.mean, found.low, found.high, found.narrower]).all()
    assert not found.sound


def test_rounds_correspond_for_the_kinds_whose_clients_work_on_one_batch_together() -> None:
    kinds = {kind for kind in PROTOCOLS if kind.traits.shared_batches and not kind.traits.reference}
    assert {kind for kind in PROTOCOLS if kind.traits.rounds_correspond} == kinds - {BsVfl, PubSubVfl}  # embed ahead


@pytest.fixture
def single(tmp_path: Path) -> Results:
    one, two = rounds(np.random.default_rng(7))
    three = np.random.default_rng(8).exponential(size=2000)
    runs = {"wait": {0: one}, "ignore": {0: two}, "async": {0: three}, "few": {0: three[:30]}}
    return Results.open(write_timed(tmp_path, runs, ignore="ignore", **{"async": "asynchronous"}))


def test_of_a_single_run_the_mean_round_has_the_interval_from_within(single: Results) -> None:
    frame = single.rounds
    lasted = frame.assign(s=frame["end_s"] - frame["start_s"]).groupby("protocol", observed=True)["s"]
    expected = {name: steady_mean(values.to_numpy()) for name, values in lasted}
    table = single.steady_rounds().set_index("protocol")
    summary = summarise(single)
    for name in ("wait", "ignore", "async"):
        found = row(summary, "steady_round_duration", name, None)
        want = (expected[name].mean, expected[name].low, expected[name].high)
        assert (found["mean"], found["low"], found["high"]) == pytest.approx(want)
        assert table.loc[name, ["mean", "low", "high"]].tolist() == pytest.approx(list(want))
        assert table.loc[name, "n"] + table.loc[name, "warm_up"] == 2000
    assert np.isnan(row(summary, "steady_round_duration", "few", None)["low"])
    assert np.isnan(row(summary, "round_duration", "wait", None)["low"])


def test_of_single_runs_differences_have_an_interval_only_where_rounds_correspond(single: Results) -> None:
    summary = summarise(single)
    found = row(summary, "steady_round_duration", "ignore", "wait")
    assert 0.9 < found["low"] < 1 < found["high"] < 1.1
    assert found["narrower"] > 3
    (pair,) = (each for _, each in single.round_pairs().query("narrower.notna()").iterrows())
    assert (pair["protocol"], pair["baseline"], pair["seed"]) == ("ignore", "wait", 0)
    assert pair[["mean", "low", "high", "narrower"]].tolist() == pytest.approx(
        found[["mean", "low", "high", "narrower"]].tolist()
    )
    other = row(summary, "steady_round_duration", "async", "wait")
    assert other["mean"] < 0
    assert np.isnan(other[["low", "high", "narrower"]].astype(float)).all()


def test_tables_of_single_runs_show_the_interval_and_say_where_there_is_none(single: Results) -> None:
    shown = comparison_table(single, pairing=True)
    column = shown.header.index("mean round")
    cells = {each[0]: (each[column], each[-1]) for each in shown.rows}
    assert cells["wait"][0].startswith("2.2")
    assert "±" in cells["wait"][0]
    assert "× narrower" in cells["ignore"][1]
    assert "±" not in cells["few"][0] + cells["async"][1]
    assert "Mean round: of a single run after its warm-up, ± 95 % by batch means." in shown.notes
    assert any(note.startswith("few: no interval") for note in shown.notes)
    write_summary(single)
    page = (single.folder / "summary.md").read_text()
    assert "| few | 1 | 0 |" in page
    assert "| ignore − wait | 1 | 0.9" in page


def test_results_without_rounds_have_empty_tables(replicated: Results) -> None:
    for run in replicated.runs:
        (run.folder / "rounds.parquet").unlink()
    assert replicated.steady_rounds().empty
    assert replicated.round_pairs().empty
    assert list(replicated.round_pairs())[:3] == ["protocol", "baseline", "seed"]
    write_summary(replicated)
    assert "Rounds within" not in (replicated.folder / "summary.md").read_text()


def test_pairs_are_of_runs_with_one_seed(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    runs = {"a": {seed: rng.exponential(size=50) for seed in (0, 1)}, "b": {1: rng.exponential(size=50)}}
    found = Results.open(write_timed(tmp_path, runs)).round_pairs()
    assert found[["protocol", "baseline", "seed"]].to_numpy().tolist() == [["b", "a", 1]]


def test_an_interval_that_is_not_sound_is_kept_out_of_summaries(tmp_path: Path) -> None:
    drifting = np.random.default_rng(10).exponential(size=500) + 0.05 * np.arange(500)
    results = Results.open(write_timed(tmp_path, {"drifting": {0: drifting}}))
    (found,) = results.steady_rounds().to_dict("records")
    assert not found["settled"]
    assert found["low"] < found["high"]
    assert np.isnan(row(summarise(results), "steady_round_duration", "drifting", None)["low"])
