"""Markov-modulated delays: the path of states lives in time, the draws are keyed by their index."""

import numpy as np
import pytest
from scipy import stats

from vflsim.errors import RunError
from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.delays import Constant, Exponential, HyperExponential, MarkovModulated, State, Uniform, modulated
from vflsim.timing.sampler import Sampler


@pytest.fixture
def bursts():
    return MarkovModulated(
        states=(State(sojourn=10, delay=Constant(value=1)), State(sojourn=2, delay=Constant(value=5)))
    )


def test_activities_of_one_role_share_a_path_and_roles_do_not(bursts):
    times = np.linspace(0, 500, 2000)
    embed, step, upload = (
        [sampler.draw(k, time) for k, time in enumerate(times)]
        for sampler in (
            Sampler(bursts, 3, 1, purpose) for purpose in ("compute.embed", "compute.client_step", "upload")
        )
    )
    assert embed == step
    assert embed != upload
    assert set(embed) == {1.0, 5.0}


def test_draw_k_is_uniform_k_through_the_law_of_the_state():
    slow, fast = Exponential(mean=9), Uniform(low=0, high=1)
    delay = MarkovModulated(states=(State(sojourn=3, delay=fast), State(sojourn=3, delay=slow)))
    sampler, path = Sampler(delay, 0, 4, "upload"), delay.regimes(0, 4, "upload")
    uniforms = Uniforms(0, 4, "upload").blocks(0, 4)
    draws = {"fast": fast.sample(uniforms), "slow": slow.sample(uniforms)}
    for k in (0, 5, 64, 200, 3, 130):
        for now in (0.0, 2.5, 40.0, 7.0):
            state, law = path.law(now)
            assert sampler.draw(k, now) == draws["fast" if law is fast or law == fast else "slow"][k]
            assert law == (fast, slow)[state]


def test_the_path_is_a_function_of_time_in_whatever_order_it_is_asked(bursts):
    times = np.random.default_rng(0).uniform(0, 1000, 300)
    forward = {time: bursts.regimes(0, 1, "upload").law(time)[0] for time in times}
    path = bursts.regimes(0, 1, "upload")
    assert [path.law(time)[0] for time in times] == list(forward.values())


def test_states_last_as_long_as_they_should_and_begin_stationary():
    delay = MarkovModulated(
        states=tuple(State(sojourn=s, delay=Constant(value=s)) for s in (1, 2, 4)),
        transitions=((0, 1, 0), (0.5, 0, 0.5), (1, 0, 0)),
    )
    # Visits solve v = v P: (2, 2, 1) / 5; time in proportion to visits times sojourns: 2, 4, 4.
    np.testing.assert_allclose(delay.shares, [0.2, 0.4, 0.4], rtol=1e-12)
    for now in (0.0, 1.0, 30.0):
        states = [delay.regimes(seed, 1, "upload").law(now)[0] for seed in range(4000)]
        assert stats.chisquare(np.bincount(states), 4000 * delay.shares).pvalue > 0.001
    path, changes, states = delay.regimes(0, 2, "upload"), [], []
    for time in np.arange(0, 4000, 0.01):
        state, _ = path.law(time)
        if not states or state != states[-1]:
            changes.append(time)
            states.append(state)
    lengths, kinds = np.diff(changes)[1:], np.array(states)[1:-1]
    for kind, mean in enumerate((1, 2, 4)):
        own = lengths[kinds == kind]
        assert abs(own.mean() - mean) < 4 * mean / np.sqrt(len(own)) + 0.01
    after_second = np.array(states)[1:][np.array(states)[:-1] == 1]
    assert abs((after_second == 0).mean() - 0.5) < 2 / np.sqrt(len(after_second))


def test_states_may_consume_several_uniforms():
    law = HyperExponential(probabilities=(0.5, 0.5), means=(1, 10))
    delay = MarkovModulated(states=(State(sojourn=1, delay=law), State(sojourn=1, delay=Exponential(mean=2))))
    assert delay.uniforms == 2
    sampler = Sampler(delay, 0, 1, "upload")
    pairs = Uniforms(0, 1, "upload").block(0, 2)
    expected = law.sample(pairs), Exponential(mean=2).sample(np.ascontiguousarray(pairs[:, 0]))
    path = delay.regimes(0, 1, "upload")
    assert [sampler.draw(k, float(k)) for k in range(BLOCK)] == [
        expected[path.law(float(k))[0]][k] for k in range(BLOCK)
    ]


def test_a_chain_far_too_fast_for_the_run_is_an_error(monkeypatch, bursts):
    monkeypatch.setattr(modulated, "MAX_CHANGES", 1000)
    with pytest.raises(RunError, match=r"1,000 times.*"):
        bursts.regimes(0, 1, "upload").law(1e6)
