"""Features dealt by importance and by correlation, against closed forms, naive sums and exhaustive search."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pages import ROOT
from pydantic import ValidationError
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from thorough import examples

from vflsim.errors import DataError
from vflsim.learning.data.drawn_partition import (
    _climbed,
    _Split,
    by_correlation,
    by_importance,
    multi_way_correlation,
    rank_correlation,
)
from vflsim.learning.data.partition import Partition, cut
from vflsim.learning.data.raw import View


def naive_icor(correlation: np.ndarray, parts: list[np.ndarray]) -> float:
    """VertiBench, Eq. 4 and 5, word by word."""

    def mcor(one: np.ndarray, other: np.ndarray) -> float:
        values = np.linalg.svd(correlation[one][:, other])[1]
        mean = values.mean()
        return float(np.sqrt(((values - mean) ** 2).sum() / (len(values) - 1)) / np.sqrt(len(values)))

    gaps = [
        np.mean([mcor(one, other) - mcor(one, one) for j, other in enumerate(parts) if j != i])
        for i, one in enumerate(parts)
    ]
    return float(np.mean(gaps))


def columns(kinds: int, alike: int, rows: int = 400) -> np.ndarray:
    """Columns of several kinds, correlated within each: kind 0, 0, …, 1, 1, …"""
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(rows, kinds)), alike, axis=1) + 0.5 * rng.normal(size=(rows, kinds * alike))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 10.0])
def test_shares_of_features_vary_as_a_dirichlet_distribution_says(alpha: float) -> None:
    """The variance of a share is (M − 1) / (M² (M α + 1)); 400 draws, three standard errors (0.3 %)."""
    features, parts = 4_000, 4
    shares = np.array(
        [
            [len(part) / features for part in by_importance(features, parts, alpha, np.random.default_rng(seed))]
            for seed in range(400)
        ]
    )
    squares = ((shares - 1 / parts) ** 2).mean(axis=1)
    wanted = (parts - 1) / (parts**2 * (parts * alpha + 1))
    sampling = 1 / 4 * 3 / 4 / features  # of the features, given the shares
    assert abs(squares.mean() - wanted) < 3 * squares.std(ddof=1) / np.sqrt(len(squares)) + sampling


@given(st.integers(1, 12), st.integers(0, 20), st.floats(1e-3, 1e3), st.integers(0, 2**32))
@settings(max_examples=examples(50))
def test_every_feature_goes_to_one_party_and_every_party_has_one(
    parts: int, more: int, alpha: float, seed: int
) -> None:
    found = by_importance(parts + more, parts, alpha, np.random.default_rng(seed))
    assert sorted(np.concatenate(found)) == list(range(parts + more))
    assert all(len(part) for part in found)


def test_rank_correlation_is_spearmans() -> None:
    values = columns(3, 2)
    values[:, 1] = np.round(values[:, 1])  # ties
    np.testing.assert_allclose(rank_correlation(values), spearmanr(values).statistic, atol=1e-12)


def test_missing_values_count_as_the_median_and_constants_correlate_with_nothing() -> None:
    values = columns(2, 2)
    filled = values.copy()
    values[::7, 0] = np.nan
    filled[::7, 0] = np.nanmedian(values[:, 0])
    np.testing.assert_allclose(rank_correlation(values), rank_correlation(filled))
    filled[:, 3] = 1.0
    assert not rank_correlation(filled)[3].any()


def test_mcor_is_0_for_independent_and_1_for_identical_features() -> None:
    assert multi_way_correlation(np.eye(5)) == pytest.approx(0)
    assert multi_way_correlation(np.ones((5, 5))) == pytest.approx(1)
    assert multi_way_correlation(np.ones((1, 4))) == pytest.approx(1)


def test_the_ends_of_beta_are_the_best_of_all_splits() -> None:
    """Six features among three parties: 90 splits, all tried."""
    correlation = rank_correlation(columns(3, 2))
    splits = [
        [np.array(each) for each in (order[:2], order[2:4], order[4:])]
        for order in itertools.permutations(range(6))
        if order[0] < order[1] and order[2] < order[3] and order[4] < order[5]
    ]
    icors = [naive_icor(correlation, parts) for parts in splits]
    for beta, best in ((0.0, min(icors)), (1.0, max(icors))):
        found = by_correlation(correlation, [2, 2, 2], beta, np.random.default_rng(0))
        assert naive_icor(correlation, found) == pytest.approx(best, abs=1e-12)


def test_beta_leads_from_parties_apart_to_parties_mixed_in_equal_steps() -> None:
    correlation = rank_correlation(columns(4, 5))
    betas = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [by_correlation(correlation, [7, 7, 6], beta, np.random.default_rng(1)) for beta in betas]
    icors = np.array([naive_icor(correlation, each) for each in parts])
    wanted = icors[0] + np.array(betas) * (icors[-1] - icors[0])
    np.testing.assert_allclose(icors, wanted, atol=0.03 * (icors[-1] - icors[0]))  # of 20 features
    assert all([len(part) for part in each] == [7, 7, 6] for each in parts)
    assert all(sorted(np.concatenate(each)) == list(range(20)) for each in parts)


TABLE = View("columns", columns(3, 4), tuple("abcdefghijkl"))


@pytest.mark.parametrize("drawn", [{"by": "importance", "alpha": 0.5}, {"by": "correlation", "beta": 0.4}])
def test_one_seed_gives_one_partition_whose_parties_hold_the_columns_they_name(drawn: dict[str, Any]) -> None:
    first, again = (cut(Partition(clients=3, active=True, **drawn), [TABLE]) for _ in range(2))
    other = cut(Partition(clients=3, active=True, seed=1, **drawn), [TABLE])
    assert [view.names for view in first] == [view.names for view in again] != [view.names for view in other]
    for view in first:
        np.testing.assert_array_equal(view.values, TABLE.values[:, [TABLE.names.index(name) for name in view.names]])
    assert sorted(name for view in first for name in view.names) == sorted(TABLE.names)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"by": "importance", "clients": 2}, "by: importance needs alpha"),
        ({"by": "correlation", "clients": 2}, "by: correlation needs beta"),
        ({"by": "columns", "clients": 2, "alpha": 1}, "alpha belongs to by: importance"),
        ({"by": "importance", "clients": 2, "alpha": 1, "beta": 0}, "beta belongs to by: correlation"),
        ({"by": "columns", "clients": 2, "seed": 1}, "seed belongs to by: importance or by: correlation"),
        ({"by": "importance", "alpha": 1}, "by: importance needs clients"),
        ({"by": "correlation", "clients": 2, "beta": 1.5}, "1.5"),
    ],
)
def test_keys_of_drawn_partitions_belong_to_them(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Partition(**said)


def test_categories_are_refused_for_correlations() -> None:
    table = View("t", TABLE.values, TABLE.names, categories=((), ("x", "y"), *((),) * 10))
    with pytest.raises(DataError, match="'b' is a category"):
        cut(Partition(clients=2, by="correlation", beta=0.5), [table])


def test_more_parties_than_features_are_refused() -> None:
    with pytest.raises(DataError, match="13 clients cannot share 12 columns"):
        cut(Partition(clients=13, by="importance", alpha=1), [TABLE])


def test_the_page_has_the_shares_and_correlations_of_digits() -> None:
    page = (ROOT / "docs" / "own-data.md").read_text()
    digits = load_digits().data
    alphas = (0.1, 1, 10, 100)
    largest = [
        np.mean([max(map(len, by_importance(64, 6, alpha, np.random.default_rng(seed)))) for seed in range(1000)]) / 64
        for alpha in alphas
    ]
    assert " | ".join(f"{share:.0%}".replace("%", " %") for share in largest) in page
    correlation, sizes = rank_correlation(digits), [11, 11, 11, 11, 10, 10]
    for beta in (0.0, 1.0):
        found = naive_icor(correlation, by_correlation(correlation, sizes, beta, np.random.default_rng(0)))
        assert f" {found:.3f} |".replace("-", "−") in page


def test_swaps_that_change_rounding_alone_are_not_kept() -> None:
    """Processors round products differently: parties must not follow from that."""
    noise = np.random.default_rng(1).normal(scale=1e-14, size=(12, 12))
    dealt = [np.arange(party, 12, 3) for party in range(3)]
    found = _climbed(_Split(np.ones((12, 12)) + noise + noise.T, dealt), np.random.default_rng(0), lambda icor: icor)
    assert [part.tolist() for part in found.parts] == [part.tolist() for part in dealt]
