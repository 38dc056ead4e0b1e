"""Every delay that scipy has too, against scipy, its own samples and its sympy form."""

import math
from typing import get_args

import numpy as np
import pytest
import sympy
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.delays import (
    DELAYS,
    AnyDelay,
    Constant,
    DelayKind,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
)
from vflsim.timing.delays.base import Delay

LEVEL = 0.001  # of every statistical test here; the seeds are fixed
BLOCKS = 300


class Point:
    """A single value, as scipy would spell it."""

    def __init__(self, value):
        self.value = value

    def cdf(self, x):
        return (np.asarray(x) >= self.value).astype(float)

    def ppf(self, q):
        return np.full_like(q, self.value)

    def mean(self):
        return self.value

    def var(self):
        return 0.0

    def support(self):
        return self.value, self.value


WITNESSES = {
    Constant: [(Constant(value=0.25), Point(0.25)), (Constant(value=0), Point(0.0))],
    Exponential: [
        (Exponential(mean=0.1), stats.expon(scale=0.1)),
        (Exponential(mean=1e-9), stats.expon(scale=1e-9)),
        (Exponential(mean=6), stats.expon(scale=6)),
    ],
    ShiftedExponential: [
        (ShiftedExponential(shift=0.5, mean=2), stats.expon(loc=0.5, scale=2)),
        (ShiftedExponential(shift=0, mean=0.01), stats.expon(scale=0.01)),
    ],
    Uniform: [(Uniform(low=0, high=1), stats.uniform()), (Uniform(low=2.5, high=2.75), stats.uniform(2.5, 0.25))],
    LogNormal: [
        (LogNormal(median=0.2, sigma=0.5), stats.lognorm(0.5, scale=0.2)),
        (LogNormal(mean=3, sigma=1.25), stats.lognorm(1.25, scale=3 * math.exp(-(1.25**2) / 2))),
        (LogNormal(median=1, sigma=1e-6), stats.lognorm(1e-6)),
    ],
    Normal: [
        (Normal(mean=2, sd=1), stats.truncnorm(-2, math.inf, loc=2)),
        (Normal(mean=0, sd=0.3), stats.halfnorm(scale=0.3)),
        (Normal(mean=8, sd=0.5), stats.truncnorm(-16, math.inf, loc=8, scale=0.5)),
    ],
    Gamma: [
        (Gamma(shape=0.3, scale=2), stats.gamma(0.3, scale=2)),
        (Gamma(shape=7.5, mean=0.3), stats.gamma(7.5, scale=0.04)),
        (Gamma(shape=40.25, mean=1), stats.gamma(40.25, scale=1 / 40.25)),
    ],
    Weibull: [
        (Weibull(shape=0.5, scale=0.2), stats.weibull_min(0.5, scale=0.2)),
        (Weibull(shape=3, mean=2), stats.weibull_min(3, scale=2 / math.gamma(4 / 3))),
    ],
    Pareto: [
        (Pareto(shape=2.5, minimum=0.2), stats.pareto(2.5, scale=0.2)),
        (Pareto(shape=1.5, mean=3), stats.pareto(1.5, scale=1)),
    ],
}
PAIRS = [pytest.param(delay, witness, id=f"{delay!r}") for own in WITNESSES.values() for delay, witness in own]
every_delay = pytest.mark.parametrize(("delay", "witness"), PAIRS)


def grid(delay, witness):
    low, high = delay.support
    inner = witness.ppf(np.array([0.001, 0.1, 0.25, 0.5, 0.9, 0.999]))
    edges = [x for x in (low, high) if math.isfinite(x)]
    return np.array([-1.0, 0.0, *edges, low - 0.01, *inner, inner.max() * 2 + 1])


def test_the_table_and_the_field_list_the_same_kinds():
    assert get_args(DelayKind) == DELAYS
    kinds = [kind.model_fields["kind"].default for kind in DELAYS]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("kind", DELAYS)
def test_kinds_are_final(kind):
    assert issubclass(kind, Delay)
    assert kind.__final__


@every_delay
def test_moments_and_support(delay, witness):
    assert delay.expectation() == pytest.approx(witness.mean(), rel=1e-12)
    assert delay.variance() == pytest.approx(witness.var(), rel=1e-9)
    assert delay.support == pytest.approx(witness.support())


@every_delay
def test_cdf(delay, witness):
    x = grid(delay, witness)
    np.testing.assert_allclose(delay.cdf(x), witness.cdf(x), rtol=1e-9, atol=1e-12)
    assert delay.cdf(delay.expectation()).shape == ()


@every_delay
def test_survival_keeps_its_digits_in_the_tail(delay, witness):
    if isinstance(delay, Constant):
        return
    x = witness.isf(np.array([0.9, 0.1, 1e-9, 1e-30]))
    np.testing.assert_allclose(delay.survival(x), witness.sf(x), rtol=1e-9)


@every_delay
def test_the_density_is_that_of_the_law(delay, witness):
    if isinstance(delay, Constant):
        assert np.all(delay.density([0.0, 0.25, 1.0]) == 0)
        return
    x = np.append(witness.ppf([0.01, 0.3, 0.9]), -1.0)
    np.testing.assert_allclose(delay.density(x), witness.pdf(x), rtol=1e-9)


@every_delay
def test_quantiles(delay, witness):
    q = np.array([0.0, 1e-12, 0.01, 0.5, 0.99, 1 - 1e-12, 1.0])
    tiny = 1e-15 * delay.expectation()  # beside a cut in the middle of the law, levels are known to 1e-16 only
    rough = 1e-5 if isinstance(delay, Normal) else 1e-9  # scipy's own truncnorm.ppf has lost digits at 1 − 1e-12
    np.testing.assert_allclose(delay.quantile(q), witness.ppf(q), rtol=rough, atol=tiny)
    if isinstance(delay, Normal):
        np.testing.assert_allclose(witness.sf(delay.quantile(1 - 1e-12)), 1 - (1 - 1e-12), rtol=1e-9)
    np.testing.assert_allclose(delay.quantile([0.0, 1.0]), delay.support)


@every_delay
@pytest.mark.parametrize("level", [-0.1, 1.1, math.nan])
def test_quantiles_outside_of_0_to_1_are_refused(delay, witness, level):
    with pytest.raises(ValueError, match="levels from 0 to 1"):
        delay.quantile([0.5, level])


@every_delay
def test_samples_follow_the_law(delay, witness):
    uniforms = Uniforms(20, 1, "upload")
    samples = np.concatenate([delay.sample(uniforms.block(b)) for b in range(BLOCKS)])
    if isinstance(delay, Constant):
        assert np.all(samples == delay.value)
        return
    assert stats.kstest(samples, witness.cdf).pvalue > LEVEL
    if math.isinf(delay.variance()):
        return
    error = math.sqrt(delay.variance() / len(samples))
    assert abs(samples.mean() - delay.expectation()) < stats.norm.isf(LEVEL / 2) * error


@every_delay
def test_samples_are_finite_not_negative_and_grow_with_the_uniform(delay, witness):
    u = np.sort(np.concatenate([[0.0, 2.0**-53, 1 - 2.0**-53], *(Uniforms(0, 1, "u").block(b) for b in range(20))]))
    samples = delay.sample(u)
    assert np.all(np.isfinite(samples))
    assert np.all(samples >= 0)
    assert np.all(np.diff(samples) >= 0)


@every_delay
def test_a_sample_does_not_depend_on_its_place_in_the_block(delay, witness):
    u = Uniforms(4, 2, "upload").block(0)
    for shift in (1, 7, BLOCK // 2):
        np.testing.assert_array_equal(delay.sample(np.roll(u, shift)), np.roll(delay.sample(u), shift))


@every_delay
def test_the_sympy_form_is_the_cdf(delay, witness):
    x = sympy.Symbol("x", real=True)
    form = delay.sympy(x)
    assert form.free_symbols == {x} or isinstance(delay, Constant)
    for point, expected in zip(grid(delay, witness), delay.cdf(grid(delay, witness)), strict=True):
        # cdf takes the floats, sympy the exact decimals: they may differ by the rounding at a jump only
        exact = form.subs(x, sympy.Rational(repr(float(point))))
        assert float(exact) == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


def test_sympy_forms_can_be_integrated_to_the_mean():
    x = sympy.Symbol("x", positive=True)
    survival = 1 - Exponential(mean=0.1).sympy(x)
    assert sympy.integrate(survival, (x, 0, sympy.oo)) == sympy.Rational(1, 10)


BURSTS = {
    "kind": "markov_modulated",
    "states": [{"sojourn": "10 s", "delay": "5 ms"}, {"sojourn": "1 s", "delay": {"kind": "exponential", "mean": 1}}],
}
WIDE = {"kind": "sum", "parts": [1] * 64}
NESTED = 1
for _ in range(7):
    NESTED = {"kind": "sum", "parts": [NESTED]}


def test_a_plain_quantity_is_a_constant_delay():
    adapter = TypeAdapter(AnyDelay)
    assert adapter.validate_python("5 ms") == adapter.validate_python(0.005) == Constant(value=0.005)
    assert adapter.validate_python("i ms", context={"symbols": {"i": 2}}) == Constant(value=0.002)


@pytest.mark.parametrize("delay", [param.values[0] for param in PAIRS])
def test_a_delay_survives_being_written_and_read(delay):
    adapter = TypeAdapter(AnyDelay)
    assert adapter.validate_python(adapter.dump_python(delay)) == delay
    assert adapter.validate_json(adapter.dump_json(delay)) == delay


def test_parameters_may_be_formulas():
    long = TypeAdapter(AnyDelay).validate_python(
        {"kind": "exponential", "mean": "2 + 4*i/N"}, context={"symbols": {"i": 2, "N": 8}}
    )
    assert long == Exponential(mean=3)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (-0.001, "out of range"),
        ("-5 ms", "out of range"),
        ("5 MB", "unit 'MB'"),
        (math.nan, "out of range"),
        (math.inf, "out of range"),
        (True, "valid dictionary"),
        (None, "valid dictionary"),
        ([1], "valid dictionary"),
        ({}, "discriminator 'kind'"),
        ({"kind": "gaussian"}, "'gaussian'.*'constant', 'exponential'"),
        ({"kind": "constant"}, "Field required"),
        ({"kind": "constant", "value": -1}, "out of range"),
        ({"kind": "constant", "value": 1, "mean": 1}, "Extra inputs"),
        ({"kind": "exponential", "mean": 0}, "above 0"),
        ({"kind": "exponential", "mean": -1}, "above 0"),
        ({"kind": "exponential", "mean": math.nan}, "out of range"),
        ({"kind": "exponential", "mean": 1e308}, "a delay of inf s could come out"),
        ({"kind": "shifted_exponential", "shift": -1, "mean": 1}, "at least 0"),
        ({"kind": "shifted_exponential", "shift": 1, "mean": 0}, "above 0"),
        ({"kind": "uniform", "low": 2, "high": 1}, "low = 2 is not below high = 1"),
        ({"kind": "uniform", "low": 1, "high": 1}, "low < high"),
        ({"kind": "uniform", "low": -1, "high": 1}, "at least 0"),
        ({"kind": "lognormal", "sigma": 1}, "neither 'median' nor 'mean'"),
        ({"kind": "lognormal", "sigma": 1, "median": 1, "mean": 1}, "both 'median' and 'mean'"),
        ({"kind": "lognormal", "sigma": 0, "median": 1}, "above 0"),
        ({"kind": "lognormal", "sigma": 100, "median": 1}, "a delay of inf s could come out"),
        ({"kind": "lognormal", "sigma": 40, "median": 1}, "a mean of inf s"),
        ({"kind": "normal", "mean": -1, "sd": 1}, "at least 0"),
        ({"kind": "normal", "mean": 1, "sd": 0}, "above 0"),
        ({"kind": "gamma", "shape": 1}, "neither 'mean' nor 'scale'"),
        ({"kind": "gamma", "shape": 1, "mean": 1, "scale": 1}, "both 'mean' and 'scale'"),
        ({"kind": "gamma", "shape": 0, "mean": 1}, "above 0"),
        ({"kind": "weibull", "shape": 0.001, "scale": 1}, "a delay of inf s"),
        ({"kind": "weibull", "shape": 0.001, "mean": 1}, "too small for a mean"),
        ({"kind": "pareto", "shape": 1, "minimum": 1}, "mean of inf s.*above 1"),
        ({"kind": "pareto", "shape": 2, "minimum": 0}, "above 0"),
        ({"kind": "pareto", "shape": 2}, "neither 'minimum' nor 'mean'"),
        ({"kind": "hyper_exponential", "probabilities": [0.5, 0.4], "means": [1, 2]}, "sum to 0.9.*a sum of 1"),
        ({"kind": "hyper_exponential", "probabilities": [1], "means": [1, 2]}, "1 probabilities for 2 means"),
        ({"kind": "hyper_exponential", "probabilities": [], "means": []}, "at least 1"),
        ({"kind": "hyper_exponential", "probabilities": [1.5, -0.5], "means": [1, 2]}, "at most 1"),
        ({"kind": "mixture", "weights": [1], "parts": [1, 2]}, "1 weights for 2 parts"),
        ({"kind": "mixture", "weights": [0, 0], "parts": [1, 2]}, "weights sum to 0"),
        ({"kind": "mixture", "weights": [1, -1], "parts": [1, 2]}, "at least 0"),
        ({"kind": "sum", "parts": []}, "at least 1"),
        ({"kind": "sum", "parts": [1e308, 1e308]}, "a delay of inf s"),
        ({"kind": "sum", "parts": [{"kind": "exponential", "mean": -1}]}, "above 0"),
        ({"kind": "maximum", "parts": [1, {"kind": "gaussian"}]}, "'gaussian'"),
        (NESTED, "nested 7 levels deep"),
        ({"kind": "sum", "parts": [{"kind": "sum", "parts": [WIDE] * 5}]}, "consume 320 uniforms"),
        ({"kind": "sum", "parts": [BURSTS]}, "depends on time and cannot be part of another"),
        ({"kind": "mixture", "weights": [1, 1], "parts": [1, BURSTS]}, "depends on time"),
        (BURSTS | {"states": [{"sojourn": 1, "delay": BURSTS}] * 2}, "bursts within bursts"),
        (BURSTS | {"states": [{"sojourn": 1, "delay": 1}]}, "at least 2"),
        (BURSTS | {"states": [{"sojourn": 0, "delay": 1}] * 2}, "above 0"),
        (BURSTS | {"transitions": [[0, 1]]}, "2 rows of 2"),
        (BURSTS | {"transitions": [[0.5, 0.5], [1, 0]]}, "followed by itself"),
        (BURSTS | {"transitions": [[0, 0.9], [1, 0]]}, "sums to 0.9"),
        (
            BURSTS | {"states": BURSTS["states"] * 2, "transitions": [[0, 1, 0, 0], [1, 0, 0, 0]] * 2},
            "followed by itself|never left",
        ),
        ({"kind": "empirical", "file": "/nowhere/delays.csv"}, "No such file.*a file"),
    ],
)
def test_delays_that_could_come_out_impossible_are_refused(bad, says):
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(AnyDelay).validate_python(bad)


def test_a_variance_beyond_the_floats_is_infinite():
    assert LogNormal(median=1e-100, sigma=30).variance() == math.inf
    assert Exponential(mean=1e200).variance() == math.inf
