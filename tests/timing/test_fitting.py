"""Fits find the parameters that gave the observations, and agree with scipy's own."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from thorough import is_thorough

from vflsim.streams import Uniforms
from vflsim.timing.delays import (
    DELAYS,
    Constant,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    Normal,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
)
from vflsim.timing.measured import fitting
from vflsim.timing.measured.fitting import (
    FAMILIES,
    fit_all,
    fitted,
    ks_p_value,
    log_likelihood,
    quantiles,
    ranked,
    rounded,
)

TRUE = [
    Exponential(mean=0.3),
    ShiftedExponential(shift=0.5, mean=0.1),
    Uniform(low=1, high=1.5),
    Normal(mean=1, sd=0.8),
    LogNormal(median=0.02, sigma=0.9),
    Gamma(shape=3, scale=0.1),
    Weibull(shape=0.6, scale=2),
    Pareto(shape=2.5, minimum=0.1),
    HyperExponential(probabilities=(0.9, 0.1), means=(0.1, 2.0)),
]


def observations(delay, blocks=1563):
    return np.sort(delay.sample(Uniforms(2, 1, "fit").blocks(0, blocks, delay.uniforms)))


def without_p_values(observed):
    """As ``fit_all``, whose p-values take most of its time: each comes from 199 fits."""
    return ranked([fitted(kind, family, observed) for kind, family in FAMILIES.items()])


def fit_of(kind, observed):
    return fitted(kind, FAMILIES[kind], observed)


@pytest.mark.parametrize("delay", [TRUE[0], TRUE[8]], ids=lambda delay: delay.kind)
def test_all_fits_are_those_of_the_families_ranked_with_p_values(delay, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLES", 199 if is_thorough() else 19)
    observed = observations(delay, 3)
    for fit, other in zip(fit_all(observed), without_p_values(observed), strict=True):
        assert replace(fit, ks_p_value=0.0, ks_statistic=0.0) == replace(other, ks_p_value=0.0, ks_statistic=0.0)
        np.testing.assert_array_equal(fit.ks_statistic, other.ks_statistic)  # NaN where nothing fits
        if fit.delay is None:
            assert math.isnan(fit.ks_p_value)
        else:
            method = FAMILIES[fit.kind].method
            np.testing.assert_array_equal(
                fit.ks_p_value, ks_p_value(fit.delay, method, fit.ks_statistic, len(observed))
            )


@pytest.mark.slow
@pytest.mark.parametrize("delay", TRUE, ids=lambda delay: delay.kind)
def test_the_family_and_the_parameters_are_recovered(delay):
    observed = observations(delay, 1563 if is_thorough() else 400)
    fits = without_p_values(observed)
    best = fits[0]
    assert best.kind == delay.kind
    said, found = delay.model_dump(exclude={"kind"}), best.delay.model_dump(exclude={"kind"})
    for key, value in said.items():
        if value is not None:
            np.testing.assert_allclose(np.sort(np.atleast_1d(found[key])), np.sort(np.atleast_1d(value)), rtol=0.03)
    assert ks_p_value(best.delay, FAMILIES[best.kind].method, best.ks_statistic, len(observed)) > 0.01
    others = [fit.aic for fit in fits if fit.kind != "exponential"]
    assert others == sorted(others)


@pytest.mark.parametrize(
    ("kind", "law", "fixed"),
    [
        ("exponential", stats.expon, {"floc": 0}),
        ("shifted_exponential", stats.expon, {}),
        ("uniform", stats.uniform, {}),
        ("lognormal", stats.lognorm, {"floc": 0}),
        ("gamma", stats.gamma, {"floc": 0}),
        ("weibull", stats.weibull_min, {"floc": 0}),
    ],
)
def test_likelihoods_are_scipys(kind, law, fixed):
    observed = observations(Gamma(shape=2.5, scale=0.2), 30)
    fit = fit_of(kind, observed)
    theirs = law(*law.fit(observed, **fixed))
    assert fit.log_likelihood == pytest.approx(theirs.logpdf(observed).sum(), rel=1e-6)
    assert fit.log_likelihood >= theirs.logpdf(observed).sum() - 1e-6 * len(observed)
    mine = stats.kstest(observed, fit.delay.cdf)
    assert fit.ks_statistic == pytest.approx(mine.statistic, rel=1e-9)
    assert fit.aic == 2 * fit.parameters - 2 * fit.log_likelihood


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [50, 500, 5000])
def test_exponential_data_give_an_exponential_delay(count):
    """Of 200 data sets 10 at most have another law: with a share of 2 % more have one with probability 0.003."""
    drawn = Uniforms(5, 1, "fit").blocks(0, -(-200 * count // 64), 1)[: 200 * count].reshape(200, count)
    data = np.sort(Exponential(mean=0.3).sample(drawn.ravel()).reshape(200, count))
    rivals = [kind for kind in FAMILIES if kind not in ("normal", "hyper_exponential")]
    wrong = sum(ranked([fitted(kind, FAMILIES[kind], each) for kind in rivals])[0].kind != rivals[0] for each in data)
    assert wrong <= 10


@pytest.mark.parametrize("true", [TRUE[1], TRUE[5], TRUE[6], ShiftedExponential(shift=0.1, mean=1)], ids=str)
def test_another_law_is_found_in_few_observations(true):
    assert without_p_values(observations(true, 3))[0].kind != "exponential"


@pytest.mark.slow
@pytest.mark.parametrize("true", [TRUE[0], TRUE[1], TRUE[4], TRUE[5], TRUE[7]], ids=lambda delay: delay.kind)
def test_p_values_of_fitted_laws_are_uniform(true):
    """They share the 199 simulated distances: a two-sample test at level 0.001."""
    # All share the code, whose errors many fits of the quickest kind would show.
    many = 300 if is_thorough() else {"exponential": 200, "gamma": 40}.get(true.kind, 60)
    drawn = Uniforms(6, 1, "fit").blocks(0, many // 2, true.uniforms)
    data = np.sort(np.asarray(true.sample(drawn)).reshape(many, -1))
    method = FAMILIES[true.kind].method
    fits = [(fitted(true.kind, FAMILIES[true.kind], each), len(each)) for each in data]
    p_values = [ks_p_value(fit.delay, method, fit.ks_statistic, count) for fit, count in fits]
    assert stats.kstest(p_values, "uniform").statistic < 1.95 * math.sqrt(1 / many + 1 / 199)


def test_a_truncated_normal_fits_no_worse_than_scipys():
    observed = observations(Normal(mean=0.5, sd=1), 100)

    def loss(parameters):
        mean, sd = parameters
        return -stats.truncnorm(-mean / sd, math.inf, loc=mean, scale=sd).logpdf(observed).sum()

    fit = fit_of("normal", observed)
    rivals = [loss((m, s)) for m in np.linspace(0, 1.2, 25) for s in np.linspace(0.7, 1.4, 25)]
    assert -fit.log_likelihood <= min(rivals) + 1e-6


def test_families_that_cannot_fit_say_why():
    fits = {fit.kind: fit for fit in without_p_values(np.array([0.0, 1.0, 2.0, 2.5]))}
    for kind in ("lognormal", "gamma", "weibull", "pareto"):
        assert fits[kind].delay is None
        assert "1 observations are 0" in fits[kind].why_not
        assert fits[kind].aic == math.inf
    assert "constant" in fit_all([2.0, 2.0])[0].why_not
    heavy = {fit.kind: fit for fit in without_p_values(np.array([1.0, 1e3, 1e6, 1e9]))}
    assert "mean of inf" in heavy["pareto"].why_not


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_what_cannot_be_fitted_is_refused(bad):
    with pytest.raises(ValueError, match="allowed"):
        fit_all(bad)


def test_every_family_that_is_fitted_is_a_kind_of_delay():
    kinds = {kind.model_fields["kind"].default for kind in DELAYS}
    assert set(FAMILIES) <= kinds
    assert Constant.model_fields["kind"].default not in FAMILIES


@pytest.mark.parametrize("true", TRUE, ids=lambda law: law.kind)
def test_rounding_a_fit_keeps_its_likelihood(true):
    observed = observations(true, 30)
    fit = fit_of(true.kind, observed)
    short = rounded(fit.delay, observed)
    assert abs(log_likelihood(short, observed) - fit.log_likelihood) < 0.01
    said = short.model_dump(exclude_none=True)
    numbers = [n for v in said.values() if not isinstance(v, str) for n in (v if isinstance(v, tuple) else [v])]
    assert all(float(f"{number:.7g}") == number for number in numbers)


def test_many_zeros_are_no_hyper_exponential_and_no_warning() -> None:
    observed = np.sort(np.concatenate([np.zeros(20), [1e-9], np.linspace(0.5, 1.5, 7)]))
    fit = fitted("hyper_exponential", FAMILIES["hyper_exponential"], observed)
    assert fit.delay is None or fit.delay.expectation() > 0


def test_quantiles_show_where_a_law_misses() -> None:
    body = LogNormal(median=0.05, sigma=0.3).sample(Uniforms(2, 1, "fit").blocks(0, 30, 1))
    rows = quantiles(LogNormal(median=0.05, sigma=0.3), np.sort(np.where(np.arange(len(body)) % 80, body, 11.0)))
    worst = max(rows, key=lambda row: row.errors)
    assert (worst.part, worst.observed) == ("tail", 11.0)
    assert worst.law < 0.2
    assert [row.level for row in rows if row.errors > 4] == [0.99]
    few = quantiles(Exponential(mean=1), np.linspace(0.1, 2, 20))
    assert [row.level for row in few] == [0.05, 0.25, 0.5, 0.75, 0.95]


def test_a_family_that_fits_too_few_of_its_samples_has_no_p_value() -> None:
    def method(sample: np.ndarray) -> Exponential:
        if sample[0] > 0.001:  # that of some samples
            raise ValueError("this family cannot fit")
        return Exponential(mean=float(sample.mean()))

    assert math.isnan(ks_p_value(Exponential(mean=1), method, 0.01, 64))


def test_the_search_for_two_phases_finds_a_maximum() -> None:
    observed = observations(TRUE[8], 30)
    best = fit_of("hyper_exponential", observed)
    for shares in (0.88, 0.9, 0.92):
        for slow in (1.6, 1.8, 2.0, 2.2):
            rival = HyperExponential(probabilities=(shares, 1 - shares), means=(0.1, slow))
            assert log_likelihood(rival, observed) < best.log_likelihood
