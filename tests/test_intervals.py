"""Means within one run: where the warm-up ends, and how often batch means tell the truth."""

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from vflsim.intervals import BATCHES, batch_means, neighbours, ranks, steady_mean, t_interval, warm_up


def autoregressive(rng: np.random.Generator, n: int, phi: float, mean: float = 10.0) -> np.ndarray:
    """x_k − mean = φ (x_{k−1} − mean) + ε, from its stationary state; ε standard normal."""
    noise = rng.normal(size=n)
    noise[0] /= np.sqrt(1 - phi**2)
    return mean + lfilter([1.0], [1.0, -phi], noise)


def mser_5(values: np.ndarray) -> int:
    """The definition, one cut after the other."""
    means = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    m = len(means)
    errors = [((means[d:] - means[d:].mean()) ** 2).sum() / (m - d) ** 2 for d in range(m // 2 + 1)]
    return 5 * int(np.argmin(errors))


# --- warm-up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_where_the_definition_has_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(40, 300)
    values = rng.exponential(size=n) + 3 * np.exp(-np.arange(n) / 30)
    assert warm_up(values)[0] == mser_5(stats.rankdata(values))


@pytest.mark.parametrize(("height", "length"), [(5.0, 50), (-5.0, 50), (5.0, 200), (-20.0, 5)])
def test_a_transient_is_cut_off_where_it_ends(height: float, length: int) -> None:
    values = np.random.default_rng(1).normal(size=1000)
    values[:length] += height
    assert warm_up(values) == (length, True)


def test_a_sequence_that_drifts_to_its_end_is_not_settled() -> None:
    drifting = np.random.default_rng(2).normal(size=500) + 0.05 * np.arange(500)
    found = steady_mean(drifting)
    assert not found.settled
    assert not found.sound


def test_a_transient_does_not_move_the_mean() -> None:
    rng = np.random.default_rng(3)
    found = [steady_mean(rng.exponential(size=1000) + 3 * np.exp(-np.arange(1000) / 20)) for _ in range(300)]
    plain = 1 + 3 * 20.5 / 1000  # what the mean over all of them would tend to
    mean = t_interval([each.mean for each in found], 0.999)
    assert mean.low < 1.012
    assert mean.high < plain - 0.03
    assert np.mean([each.low <= 1 <= each.high for each in found]) > 0.91  # 0.95 less 3 standard errors


def test_the_largest_values_of_a_heavy_tail_are_no_warm_up() -> None:
    rng = np.random.default_rng(4)
    samples = [1 + rng.pareto(2.5, size=1000) for _ in range(300)]
    assert np.mean([warm_up(values)[0] for values in samples]) < 20
    assert np.mean([mser_5(values) for values in samples]) > 60  # as it would be without ranks
    covered = [found.low <= 2.5 / 1.5 <= found.high for found in map(steady_mean, samples)]
    assert np.mean(covered) > 0.89  # the variance is infinite but for a little: t-intervals themselves cover 0.93


@pytest.mark.parametrize("values", [[2.0] * 100, 0.1 + 1e-13 * np.random.default_rng(5).normal(size=100), [0.0] * 50])
def test_a_constant_and_its_rounding_errors_are_known_exactly(values: list[float]) -> None:
    found = steady_mean(np.array(values))
    assert (found.warm_up, found.batches) == (len(values) % BATCHES, BATCHES)
    assert found.low == found.mean == found.high == pytest.approx(values[0])
    assert np.isnan(found.lag1)
    assert found.sound


def test_ranks_are_scipys() -> None:
    values = np.random.default_rng(6).integers(0, 9, size=100).astype(float)
    assert ranks(values).tolist() == (stats.rankdata(values) - 1).tolist()


# --- batch means ------------------------------------------------------------------------------------------------------


def test_forty_batches_of_one_length_with_the_rest_cut_off_in_front() -> None:
    values = np.arange(4 * BATCHES + 3, dtype=float) * (-1) ** np.arange(4 * BATCHES + 3)
    means, _, correlated = batch_means(values)
    assert not correlated
    assert means == pytest.approx([values[3 + 4 * k : 7 + 4 * k].mean() for k in range(BATCHES)])


def test_correlated_batches_are_joined_to_half_as_many() -> None:
    values = autoregressive(np.random.default_rng(7), 800, 0.97)
    assert neighbours(values.reshape(BATCHES, 20).mean(axis=1))[1]
    means, lag1, correlated = batch_means(values)
    assert means == pytest.approx(values.reshape(20, 40).mean(axis=1))
    assert (lag1, correlated) == neighbours(means)


def test_batches_that_stay_correlated_are_said_to_be() -> None:
    found = steady_mean(autoregressive(np.random.default_rng(8), 200, 0.98))
    assert found.batches == 20
    assert found.correlated
    assert not found.sound
    assert found.lag1 > 0.3


def test_cycles_that_fit_into_a_batch_are_not_correlated_by_rounding() -> None:
    means, lag1, correlated = batch_means(np.diff(np.cumsum([0.008, 0.04] * 2 * BATCHES, dtype=float), prepend=0.0))
    assert np.isnan(lag1)
    assert not correlated
    assert set(means) == {means[0]}


@pytest.mark.parametrize("n", [0, 1, BATCHES - 1])
def test_fewer_values_than_batches_have_no_interval(n: int) -> None:
    found = steady_mean(np.arange(n, dtype=float))
    assert (found.n, found.warm_up, found.batches) == (n, 0, 0)
    assert np.isnan([found.low, found.high, found.lag1]).all()
    assert found.mean == pytest.approx((n - 1) / 2) if n else np.isnan(found.mean)
    assert not found.sound


def test_von_neumanns_ratio_has_the_stated_mean_variance_and_level() -> None:
    rng, k = np.random.default_rng(9), 40
    found = [neighbours(rng.normal(size=k)) for _ in range(20_000)]
    ratios = np.array([ratio for ratio, _ in found])
    assert ratios.mean() == pytest.approx(0, abs=4 * ratios.std() / np.sqrt(len(ratios)))
    assert ratios.var() == pytest.approx((k - 2) / (k**2 - 1), rel=0.05)
    assert np.mean([correlated for _, correlated in found]) == pytest.approx(0.05, abs=0.0065)  # 4 standard errors


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("phi", "n"), [(0.0, 400), (0.5, 2000), (0.8, 4000), (-0.5, 2000)])
def test_batch_means_cover_the_mean_of_an_autoregressive_process(phi: float, n: int) -> None:
    rng, repeats = np.random.default_rng(10), 500
    found = [steady_mean(autoregressive(rng, n, phi)) for _ in range(repeats)]
    covered = np.mean([each.low <= 10 <= each.high for each in found])
    assert 0.91 < covered < 0.98  # 0.945 ± 3.4 standard errors of 500 repeats
    # The variance of the mean is σ² / (n (1 − φ)²); batch means must find it, however little independent values say.
    half = stats.t.ppf(0.975, 39) / ((1 - phi) * np.sqrt(n))
    assert np.mean([each.half_width for each in found]) == pytest.approx(half, rel=0.06)


def test_the_confidence_is_the_one_asked_for() -> None:
    values = np.random.default_rng(11).exponential(size=1000)
    half, more = steady_mean(values, 0.5), steady_mean(values, 0.99)
    assert more.half_width / half.half_width == pytest.approx(stats.t.ppf(0.995, 39) / stats.t.ppf(0.75, 39))
