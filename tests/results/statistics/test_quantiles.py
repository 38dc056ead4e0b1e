"""Quantiles with intervals: exact for independent rounds, by batch means for dependent ones, none for few."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.signal import lfilter
from timed_runs import write_timed

from vflsim.errors import ResultsError
from vflsim.intervals import Variation, warm_up
from vflsim.results import Results
from vflsim.results.read import NotRecordedError
from vflsim.results.statistics.quantiles import (
    LEVELS,
    QuantileEstimate,
    dependent,
    order_statistics,
    quantile_estimates,
    quantile_table,
    round_quantiles,
)


def autoregressive(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    """Standard normal in its stationary state."""
    noise = np.sqrt(1 - phi**2) * rng.normal(size=n)
    noise[0] /= np.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], noise)


def estimate(values: np.ndarray, level: float, variation: Variation | None = None) -> QuantileEstimate:
    (found,) = quantile_estimates(values, [level], variation=variation)
    return found


# --- independent rounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 6, 8, 100, 1000, 123_456, 10_000_000])
@pytest.mark.parametrize("level", [*LEVELS, 0.05, 1 / 3])
def test_order_statistics_enclose_the_quantile_with_exactly_the_binomial_probability(n: int, level: float) -> None:
    law, ends = stats.binom(n, level), order_statistics(n, level)
    if ends is None:  # not even the smallest and the largest value lose so little on either side
        assert law.cdf(0) > 0.025 or law.sf(n - 1) > 0.025
        return
    low, high = ends[0] + 1, ends[1] + 1  # counted from 1: X_(low) ≤ x ≤ X_(high) iff low ≤ Bin < high
    assert law.cdf(low - 1) <= 0.025
    assert law.sf(high - 1) <= 0.025
    assert law.cdf(low) > 0.025  # neither end could be nearer
    assert law.sf(high - 2) > 0.025


def test_the_fewest_values_that_have_an_interval_are_those_of_the_formula() -> None:
    assert [n for n in range(1, 9) if order_statistics(n, 0.5)] == [6, 7, 8]  # 2^(−6) ≤ 0.025 < 2^(−5)
    assert order_statistics(367, 0.99) is None  # 0.99^367 = 0.02501
    assert order_statistics(368, 0.99) is not None
    assert order_statistics(36_887, 0.9999) is not None
    assert order_statistics(36_886, 0.9999) is None


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_intervals_of_independent_values_cover_whatever_the_distribution(level: float) -> None:
    rng = np.random.default_rng(1)
    for draw, law in ((rng.exponential, stats.expon), (lambda size: rng.pareto(0.5, size), stats.lomax(0.5))):
        found = [estimate(draw(size=1000), level) for _ in range(400)]
        given = [each for each in found if each.method == "order statistics"]
        assert len(given) > 385  # 1 % are taken for dependent
        assert np.mean([each.low <= law.ppf(level) <= each.high for each in given]) > 0.92  # ≥ 0.95 less 2.8 errors


def test_the_value_is_the_empirical_quantile() -> None:
    values = np.random.default_rng(2).permutation(1000.0 + np.arange(1000))
    assert estimate(values, 0.5).value == 1499
    assert estimate(values, 0.999).method == "not enough rounds"
    assert estimate(values, 0.99).value == 1989


def test_atoms_are_quantiles_too() -> None:
    found = estimate(np.full(100, 2.0), 0.9)
    assert (found.value, found.low, found.high, found.method) == (2, 2, 2, "order statistics")


# --- dependence -------------------------------------------------------------------------------------------------------


def test_independent_values_are_seldom_taken_for_dependent_ones_heavy_tails_included() -> None:
    rng = np.random.default_rng(3)
    for draw in (rng.normal, lambda size: rng.pareto(0.3, size), lambda size: rng.integers(0, 2, size).astype(float)):
        share = np.mean([dependent(draw(size=500)) for _ in range(1500)])
        assert 0.002 < share < 0.021  # 0.01 ± 4 standard errors; the statistic is χ² only in the limit


def test_dependence_is_found() -> None:
    rng = np.random.default_rng(4)
    assert all(dependent(autoregressive(rng, 500, 0.4)) for _ in range(50))
    assert dependent(rng.normal(size=1000) + np.where(np.arange(1000) < 100, 3, 0))  # a warm-up
    assert dependent(np.tile([1.0, 2.0, 3.0, 4.0, 9.0], 20) + rng.normal(size=100))  # a period
    assert not dependent(np.full(500, 3.0))
    assert not dependent(np.arange(39.0))  # too few to tell


@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_intervals_of_dependent_values_cover_too(phi: float) -> None:
    rng = np.random.default_rng(5)
    samples = [autoregressive(rng, 10_000, phi) for _ in range(120)]
    for level in (0.5, 0.9, 0.99):
        found = [estimate(values, level) for values in samples]
        given = [each for each in found if each.method == "batch means"]
        assert len(given) > 110
        assert (
            np.mean([each.low <= stats.norm.ppf(level) <= each.high for each in given]) > 0.88
        )  # 0.95 less 3.5 errors
    naive = [np.sort(values)[[*order_statistics(10_000, 0.5)]] for values in samples]  # type: ignore[misc]
    assert np.mean([low <= 0 <= high for low, high in naive]) < 0.85


def test_dependent_values_need_more_of_them() -> None:
    values = autoregressive(np.random.default_rng(6), 5000, 0.5)
    assert estimate(values, 0.99).method == "not enough rounds"  # 50 beyond it
    assert estimate(values, 0.9).method == "batch means"


# --- of results -------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> Results:
    rng = np.random.default_rng(7)
    warming = np.exp(0.3 * autoregressive(rng, 4000, 0.7))
    warming[:100] += 20
    runs = {
        "calm": {seed: rng.exponential(size=1500) for seed in (0, 1)},
        "restless": {0: warming},
        "short": {0: rng.exponential(size=20)},
        "briefly": {0: np.concatenate([np.full(10, 50.0), rng.exponential(size=5000)])},
    }
    return Results.open(write_timed(tmp_path, runs, restless="asynchronous"))


def test_all_rounds_of_a_protocol_count_together_without_its_warm_up(results: Results) -> None:
    frame = results.round_quantiles()
    assert frame["level"].tolist() == [*LEVELS] * 4
    calm, restless, short, briefly = (own.set_index("level") for _, own in frame.groupby("protocol", sort=False))
    lasted = [run.round_durations() for run in results.runs[:2]]
    together = np.concatenate([run[warm_up(run)[0] :] for run in lasted])
    assert (calm["rounds"] == len(together)).all()
    assert (calm["warm_up"] == 3000 - len(together)).all()
    assert (calm["runs"] == 2).all()
    assert calm.loc[0.9, "value"] == pytest.approx(np.sort(together)[int(np.ceil(0.9 * len(together))) - 1])
    assert calm.loc[0.9, "low"] < np.log(10) < calm.loc[0.9, "high"]
    assert calm["method"].tolist() == ["order statistics"] * 3 + ["not enough rounds"] * 2
    assert restless.loc[0.5, "method"] == "batch means"
    assert (restless["warm_up"] == 100).all()
    assert (restless["rounds"] == 3900).all()
    assert restless.loc[0.9, "high"] < 2
    assert short["method"].tolist() == ["order statistics"] + ["not enough rounds"] * 4
    assert (briefly["warm_up"] >= 10).all()  # though no test takes these rounds for dependent ones
    assert briefly.loc[0.999, "low"] < np.log(1000) < briefly.loc[0.999, "high"] < 50
    few = frame[frame["method"] == "not enough rounds"]
    assert few[["value", "low", "high"]].isna().all(axis=None)


def test_levels_of_ones_own(results: Results) -> None:
    assert results.round_quantiles([0.25])["level"].tolist() == [0.25] * 4
    with pytest.raises(ResultsError, match=r"1\.0 is no level"):
        round_quantiles(results, [1.0])


def test_the_table_says_interval_or_that_rounds_are_too_few(results: Results) -> None:
    table = quantile_table(results)
    assert [*table.header] == ["protocol", "rounds", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]
    calm, restless, short, _ = table.rows
    assert 2900 < int(calm[1].replace(",", "")) <= 3000
    assert calm[3].startswith("2.")
    assert calm[3].count("…") == 1
    assert calm[3].endswith(") s")
    assert calm[-1] == short[-1] == restless[-1] == "not enough rounds"
    notes = " ".join(table.notes)
    assert "by batch means: restless." in notes
    assert "restless 100" in notes
    assert table.title.endswith("after the warm-up")


def test_failed_runs_are_left_out_and_results_without_rounds_say_so(results: Results) -> None:
    page = results.runs[0].folder / "run.json"
    page.write_text(page.read_text().replace('"finished"', '"failed"').replace('"error": null', '"error": "boom"'))
    assert Results.open(results.folder).round_quantiles().iloc[0]["runs"] == 1
    for run in results.runs:
        (run.folder / "rounds.parquet").unlink()
    with pytest.raises(NotRecordedError, match="the rounds of this run were not kept"):
        results.round_quantiles()


def test_what_depends_on_itself_over_whole_batches_has_no_quantiles() -> None:
    slow = autoregressive(np.random.default_rng(8), 4000, 0.999)
    assert estimate(slow, 0.5).method == "not enough rounds"


# --- slow changes -----------------------------------------------------------------------------------------------------

CYCLE = 250
"""Rounds of a burst and of the calm before it: 50 rounds of mean 10 s, 200 of mean 1 s."""
BURSTS = Variation(cycle_s=700.0, cycle="client 1's upload delay", cycles=100)


def bursts(rng: np.random.Generator, rounds: int) -> np.ndarray:
    stays = rng.geometric(np.tile([1 / 200, 1 / 50], rounds // 100))
    slow = np.repeat(np.tile([1.0, 10.0], rounds // 100), stays)[:rounds]
    return rng.exponential(size=rounds) * slow


def test_intervals_under_bursts_cover_or_are_not_given() -> None:
    """Without the cycle .53 of the medians are covered at 4 cycles, .87 at 16; an error level of 0.1 %."""
    rng = np.random.default_rng(1)
    share = stats.norm.ppf(0.999)
    median = float(optimize.brentq(lambda x: 0.8 * np.exp(-x) + 0.2 * np.exp(-x / 10) - 0.5, 0, 10))
    hits = []
    for _ in range(100):
        assert np.isnan(estimate(bursts(rng, 4 * CYCLE), 0.5, variation=BURSTS).value)
        found = estimate(bursts(rng, 40 * CYCLE), 0.5, variation=BURSTS)
        hits += [] if np.isnan(found.value) else [found.low <= median <= found.high]
    assert len(hits) > 80
    assert np.mean(hits) > 0.95 - share * (0.95 * 0.05 / len(hits)) ** 0.5


def test_a_protocol_that_saw_too_few_cycles_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    folder = write_timed(tmp_path, {name: {0: bursts(rng, 1000)} for name in ("wait", "other")})
    page = folder / "wait" / "seed-0" / "run.json"
    page.write_text(json.dumps(json.loads(page.read_text()) | {"variation": BURSTS.model_dump()}))
    results = Results.open(folder)
    cells = {row[0]: row[2] for row in quantile_table(results).rows}
    assert cells["wait"] == "not enough rounds"
    notes = "\n".join(quantile_table(results).notes)
    said = r"^wait: [\d.]+ of 20 cycles of client 1's upload delay \(700 s each\) seen: run longer"
    assert re.search(said, notes, re.MULTILINE)
    assert "other: " not in notes
