"""A draw is a function of (seed, party, purpose, index), whoever asks, in whatever order."""

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from vflsim.streams import BLOCK, Uniforms, stream_key
from vflsim.timing.delays import Constant, Exponential, LogNormal, Uniform
from vflsim.timing.sampler import Sampler, draws_of_alike, words_of

DELAYS = [Exponential(mean=0.1), Uniform(low=1, high=2), LogNormal(median=1, sigma=0.3), Constant(value=0.5)]


@pytest.mark.parametrize("delay", DELAYS)
def test_draws_do_not_depend_on_the_order_of_asking(delay):
    indices = list(range(5 * BLOCK))
    in_order = Sampler(delay, 0, 1, "upload")
    draws = {k: in_order.draw(k) for k in indices}
    shuffled = Sampler(delay, 0, 1, "upload")
    random.Random(0).shuffle(indices)
    assert {k: shuffled.draw(k) for k in indices} == draws
    assert Sampler(delay, 0, 1, "upload").draw(4 * BLOCK + 3) == draws[4 * BLOCK + 3]


@pytest.mark.parametrize("delay", DELAYS)
def test_draws_are_the_inverse_cdf_of_the_streams_uniforms(delay):
    sampler, uniforms = Sampler(delay, 3, 2, "upload"), Uniforms(3, 2, "upload")
    for number in (0, 1, 7):
        draws = [sampler.draw(number * BLOCK + k) for k in range(BLOCK)]
        assert draws == delay.quantile(uniforms.block(number)).tolist()
        assert all(type(draw) is float for draw in draws)


def test_a_better_uniform_is_a_shorter_delay_under_every_law():
    ranks = [
        np.argsort([Sampler(delay, 0, 1, "upload").draw(k) for k in range(BLOCK)]).tolist() for delay in DELAYS[:3]
    ]
    assert ranks[0] == ranks[1] == ranks[2]


def test_seeds_parties_and_purposes_have_their_own_draws():
    delay = Exponential(mean=1)
    streams = [(0, 1, "upload"), (1, 1, "upload"), (0, 2, "upload"), (0, 1, "compute.embed")]
    assert len({Sampler(delay, *stream).draw(0) for stream in streams}) == len(streams)


def test_draws_stay_what_they_are_across_versions():
    u = (np.random.Philox(key=stream_key(0, 1, "upload")).random_raw() >> 11) * 2.0**-53
    assert Sampler(Uniform(low=0, high=1), 0, 1, "upload").draw(0) == u
    assert Sampler(Exponential(mean=0.1), 0, 1, "upload").draw(0) == pytest.approx(0.057535432634610195, rel=1e-15)


# --- philox -----------------------------------------------------------------------------------------------------------


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
