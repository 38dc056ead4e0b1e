"""The words of many streams at once are numpy's, stream by stream."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from vflsim.streams import BLOCK
from vflsim.timing.delays import Exponential, LogNormal, Uniform
from vflsim.timing.sampler import Sampler, draws_of_alike, words_of

KEY = st.integers(0, 2**128 - 1)


@given(st.lists(KEY, min_size=1, max_size=5), st.integers(0, 300), st.integers(1, 70))
def test_words_of_many_streams_are_those_of_each(keys: list[int], first: int, count: int) -> None:
    halves = np.array([[key % 2**64, key >> 64] for key in keys], np.uint64)
    one_by_one = [np.random.Philox(key=key).random_raw(first + count)[first:] for key in keys]
    assert words_of(halves, first, count).tolist() == np.array(one_by_one).tolist()


def test_more_streams_than_are_computed_together() -> None:
    halves = np.random.default_rng(0).integers(0, 2**64, (5000, 2), np.uint64)
    words = words_of(halves, 0, 9)
    for place in (0, 1365, 1366, 4999):
        key = int(halves[place, 0]) + (int(halves[place, 1]) << 64)
        assert words[place].tolist() == np.random.Philox(key=key).random_raw(9).tolist()


@pytest.mark.parametrize("law", [Exponential(mean=0.1), Uniform(low=1, high=2), LogNormal(median=1, sigma=0.3)])
@pytest.mark.parametrize(("first", "count"), [(0, 8), (56, 8), (3, 1), (2 * BLOCK, 16)])
def test_a_few_draws_of_many_clients_are_those_of_each(law: Exponential, first: int, count: int) -> None:
    many = [Sampler(law, 4, party, "upload") for party in range(1, 200)]
    drawn = draws_of_alike(many, first, count)
    assert drawn.tolist() == [[sampler.draw(first + k) for k in range(count)] for sampler in many]
