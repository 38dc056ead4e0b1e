"""Every kind of delay against its own distribution: many samples, quantiles, moments, formulas, blocks."""

import math
from functools import cache

import numpy as np
import pytest
import sympy
from pydantic import TypeAdapter
from scipy import stats
from thorough import is_thorough

from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.delays import (
    DELAYS,
    AnyDelay,
    Constant,
    Empirical,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    MarkovModulated,
    Maximum,
    Mixture,
    NoClosedFormError,
    Normal,
    Pareto,
    ShiftedExponential,
    State,
    Sum,
    Uniform,
    Weibull,
)
from vflsim.timing.sampler import Sampler

LEVEL = 1e-4  # of every statistical test here; the seeds are fixed
SAMPLES = (1_000_000 if is_thorough() else 100_000) // BLOCK * BLOCK
OBSERVED = [0.5, 0.1, 0.2, 0.2, 0.35, 0.7, 0.2, 1.5]

SLOW = HyperExponential(probabilities=(0.9, 0.1), means=(0.1, 2))
CASES = {
    Constant: lambda: [Constant(value=0.25)],
    Exponential: lambda: [Exponential(mean=0.1)],
    ShiftedExponential: lambda: [ShiftedExponential(shift=0.5, mean=2)],
    Uniform: lambda: [Uniform(low=0.5, high=2)],
    Normal: lambda: [Normal(mean=1, sd=0.8)],
    LogNormal: lambda: [LogNormal(median=0.2, sigma=0.7)],
    Gamma: lambda: [Gamma(shape=0.4, mean=3), Gamma(shape=2.25, scale=0.1)],
    Weibull: lambda: [Weibull(shape=0.7, mean=2)],
    Pareto: lambda: [Pareto(shape=1.5, minimum=0.1), Pareto(shape=5, mean=2)],
    HyperExponential: lambda: [SLOW],
    Mixture: lambda: [
        Mixture(weights=(9, 1), parts=(0.1, 2.0)),
        Mixture(weights=(3, 0, 1), parts=(Exponential(mean=1), Constant(value=7), Uniform(low=2, high=3))),
        Mixture(weights=(1, 1), parts=(Constant(value=0.5), Exponential(mean=1))),
    ],
    Sum: lambda: [
        Sum(parts=(0.1, Exponential(mean=1), Exponential(mean=2))),
        Sum(parts=(Exponential(mean=1), Exponential(mean=1), Exponential(mean=1))),
        Sum(parts=(SLOW, Uniform(low=0, high=1), Constant(value=0.2))),
        Sum(parts=(Gamma(shape=0.6, mean=1), LogNormal(median=0.3, sigma=0.5))),
        Sum(parts=(Mixture(weights=(1, 3), parts=(0.1, 0.3)), Mixture(weights=(1, 1), parts=(0.0, 1.0)))),
    ],
    Maximum: lambda: [
        Maximum(parts=(Exponential(mean=1), Exponential(mean=2), Uniform(low=0, high=3))),
        Maximum(parts=(Constant(value=1), Exponential(mean=1))),
        Maximum(parts=(Pareto(shape=2.5, minimum=0.5), Sum(parts=(0.5, Exponential(mean=1))))),
    ],
    Empirical: lambda: [
        Empirical(file=observations("delays.csv")),
        Empirical(file=observations("delays.csv"), interpolation="linear"),
    ],
    MarkovModulated: lambda: [
        MarkovModulated(
            states=(State(sojourn=10, delay=Exponential(mean=0.1)), State(sojourn=2, delay=Uniform(low=1, high=2)))
        ),
        MarkovModulated(
            states=tuple(State(sojourn=s, delay=d) for s, d in ((1, 0.5), (2, SLOW), (3, Exponential(mean=1)))),
            transitions=((0, 0.5, 0.5), (1, 0, 0), (0.25, 0.75, 0)),
        ),
    ],
}
FOLDER = {}


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory):
    FOLDER["path"] = tmp_path_factory.mktemp("observed")
    (FOLDER["path"] / "delays.csv").write_text("delay\n" + "\n".join(map(repr, OBSERVED)) + "\n")


def observations(name):
    return str(FOLDER["path"] / name)


@cache
def cases(kind):
    return CASES[kind]()


COUNTS = {Mixture: 3, Sum: 5, Maximum: 3, Gamma: 2, Pareto: 2, Empirical: 2, MarkovModulated: 2}
NAMES = [(kind, place) for kind in DELAYS for place in range(COUNTS.get(kind, 1))]
IDS = [f"{kind.__name__}-{place}" for kind, place in NAMES]
every_delay = pytest.mark.parametrize(("kind", "place"), NAMES, ids=IDS)


@cache
def uniforms(count):
    return Uniforms(11, 3, "laws").blocks(0, SAMPLES // BLOCK, count)


@cache
def samples(kind, place):
    delay = cases(kind)[place]
    if not delay.in_time:
        return np.sort(delay.sample(uniforms(delay.uniforms)))
    sampler = Sampler(delay, 11, 3, "upload")  # thinned: states 60 s apart have nothing to do with one another
    return np.sort([sampler.draw(k, 60.0 * k) for k in range(10_000)])


def test_the_maximum_of_a_delay_that_is_cut_off_at_zero_has_a_mean():
    """Just above the cut, rounding must not make its cdf negative."""
    delay = Normal(mean=0.25, sd=0.3)
    assert np.all(delay.cdf(np.geomspace(1e-18, 1e-10, 1000)) >= 0)
    assert Maximum(parts=(delay,)).expectation() == pytest.approx(delay.expectation(), rel=1e-5)


def test_every_kind_has_its_cases():
    assert set(CASES) == set(DELAYS)
    for kind in DELAYS:
        assert len(cases(kind)) == COUNTS.get(kind, 1)


@pytest.mark.sampled(18)
@every_delay
def test_samples_follow_the_cdf_jumps_included(kind, place):
    delay, drawn = cases(kind)[place], samples(kind, place)
    x, counts = np.unique(drawn, return_counts=True)
    upto = np.cumsum(counts) / len(drawn)
    atoms, masses = delay.atoms()
    jump = np.zeros(len(x))
    here = np.flatnonzero(np.isin(x, atoms))
    jump[here] = masses[np.searchsorted(atoms, x[here])]
    at = delay.cdf(x)
    distance = max(np.abs(upto - at).max(), np.abs(upto - counts / len(drawn) - (at - jump)).max())
    # Kolmogorov's law is exact for continuous distributions and conservative for those with jumps.
    assert stats.kstwo.sf(distance, len(drawn)) > LEVEL
    assert drawn[0] >= 0
    assert math.isfinite(drawn[-1])
    assert delay.support[0] <= drawn[0]
    assert drawn[-1] <= delay.support[1]


@pytest.mark.sampled(9)
@every_delay
def test_moments_are_those_of_the_samples_and_of_the_quantiles(kind, place):
    delay, drawn = cases(kind)[place], samples(kind, place)
    mean, variance = delay.expectation(), delay.variance()
    if math.isfinite(variance):
        z = stats.norm.isf(LEVEL / 2)
        assert abs(drawn.mean() - mean) <= z * math.sqrt(variance / len(drawn)) + 1e-12 * mean
        fourth = np.mean((drawn - mean) ** 4)
        bound = z * math.sqrt(max(fourth - variance**2, 0) / len(drawn))
        assert abs(np.mean((drawn - mean) ** 2) - variance) <= 1.5 * bound + 1e-12
    levels = (np.arange(50_000) + 0.5) / 50_000
    middle = delay.quantile(levels)
    inner = middle[250:-250].mean()
    assert inner == pytest.approx(drawn[len(drawn) // 200 : -(len(drawn) // 200)].mean(), rel=0.02)


@every_delay
def test_a_quantile_is_the_least_delay_whose_cdf_reaches_the_level(kind, place):
    delay = cases(kind)[place]
    tails = [1e-12, 1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9]
    q = np.concatenate([tails, np.linspace(0.01, 0.99, 99), delay.cdf(delay.atoms()[0][:50])])
    q = q[q < 1]
    x = delay.quantile(q)
    slack = 1e-11  # of a closed form rounded, or of a quadrature
    assert np.all(delay.cdf(x) >= q - slack)
    below = x * (1 - 1e-9) - 1e-300
    assert np.all((delay.cdf(below) < q + slack) | (below < delay.support[0]))
    at_jump = np.isin(x, delay.atoms()[0])
    assert np.all(delay.cdf(np.nextafter(x[at_jump], -1)) < q[at_jump] + 1e-15)
    np.testing.assert_array_equal(delay.quantile([0.0, 1.0]), delay.support)
    assert np.all(np.diff(delay.quantile(np.linspace(0, 1, 1001))[:-1]) >= 0)


@every_delay
def test_survival_is_the_complement_and_the_density_its_slope(kind, place):
    delay = cases(kind)[place]
    x = np.unique(delay.quantile(np.linspace(0.003, 0.997, 41)))
    np.testing.assert_allclose(delay.survival(x), 1 - delay.cdf(x), atol=1e-12)
    breaks = delay.breaks
    smooth = [point for point in x if not len(breaks) or np.abs(breaks - point).min() > 1e-3 * point]
    h = 1e-5 * np.array(smooth)
    slope = (delay.cdf(smooth + h) - delay.cdf(smooth - h)) / (2 * h)
    np.testing.assert_allclose(delay.density(smooth), slope, rtol=5e-3, atol=1e-5)
    assert np.all(delay.cdf([-1.0, -1e-9]) == 0)
    assert np.all(delay.survival([-1.0, -1e-9]) == 1)
    assert np.all(delay.density([-1.0]) == 0)


@pytest.mark.sampled(18)
@every_delay
def test_the_formula_equals_the_numbers(kind, place):
    delay, x = cases(kind)[place], sympy.Symbol("x", real=True)
    if (kind, place) == (Sum, 3):
        with pytest.raises(NoClosedFormError, match="a gamma part has no closed form"):
            delay.sympy(x)
        return
    form = delay.sympy(x)
    low, high = delay.quantile([0.0, 0.98])
    points = [round(float(point), 4) for point in (*np.linspace(low, high, 6)[1:], *delay.breaks[:4], high * 3)]
    for point in points:
        value = float(form.subs(x, sympy.Rational(repr(point))))
        assert value == pytest.approx(float(delay.cdf(point)), abs=1e-5 if kind is Sum else 1e-9)


@pytest.mark.sampled(18)
@every_delay
def test_blocks_have_the_very_bits_of_draws(kind, place):
    delay = cases(kind)[place]
    sampler = Sampler(delay, 5, 2, "upload")
    if delay.in_time:
        with pytest.raises(ValueError, match="depend on the instants"):
            sampler.blocks(0, 1)
        return
    many = sampler.blocks(3, 300)
    apart = np.concatenate([Sampler(delay, 5, 2, "upload").blocks(3 + k, 1) for k in range(300)])
    np.testing.assert_array_equal(many, apart)
    for index in (0, 1, 63, 64, 1000, 19_199):
        assert sampler.draw(3 * BLOCK + index) == many[index]
    assert type(sampler.draw(5)) is float


@pytest.mark.sampled(18)
@every_delay
def test_delays_are_written_and_read_back(kind, place):
    delay, adapter = cases(kind)[place], TypeAdapter(AnyDelay)
    assert adapter.validate_python(adapter.dump_python(delay)) == delay
    assert adapter.validate_json(adapter.dump_json(delay)) == delay
    assert hash(adapter.validate_json(adapter.dump_json(delay))) == hash(delay)
