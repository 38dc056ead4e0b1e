"""A delay from outside the package: one method is enough, by path or as an object."""

import math
import sys
from functools import partial
from typing import Literal

import numpy as np
import own_delays
import pytest
from own_delays import Beta, Bounded, Erlang, Lomax, Memoryless, Nothing
from pydantic import TypeAdapter, ValidationError
from scipy import stats
from thorough import in_turn

from vflsim.cli import main
from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.delays import AnyDelay, Exponential, Maximum, Mixture, NoClosedFormError, Sum
from vflsim.timing.delays.base import Delay
from vflsim.timing.sampler import Sampler

LEVEL = 1e-3  # of a wrong alarm; the seeds are fixed
LAWS = {
    "by quantiles": (partial(Beta, a=2.0, b=3.0), stats.beta(2, 3)),
    "by cdf": (partial(Erlang, mean=2.0), stats.gamma(3, scale=2 / 3)),
    "a heavy tail by cdf": (partial(Lomax, shape=1.5), stats.lomax(1.5)),
    "a tiny scale": (partial(Memoryless, mean=1e-9), stats.expon(scale=1e-9)),
}
every_law = pytest.mark.parametrize(("own", "witness"), LAWS.values(), ids=LAWS)


@pytest.mark.sampled(2)
@every_law
def test_one_method_gives_all_numbers(own, witness):
    delay = own()
    q = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.999])
    x = witness.ppf(q)
    np.testing.assert_allclose(delay.quantile(q), x, rtol=1e-9)
    np.testing.assert_allclose(delay.cdf(x), q, rtol=1e-9)
    np.testing.assert_allclose(delay.survival(x), 1 - q, atol=1e-12)
    np.testing.assert_allclose(delay.density(x), witness.pdf(x), rtol=2e-3)
    np.testing.assert_allclose(delay.support, witness.support(), atol=1e-12)
    np.testing.assert_allclose(delay.cdf([-1.0, 0.0]), 0.0, atol=1e-300)
    assert delay.density(-1.0) == 0.0
    assert abs(delay.expectation() - witness.mean()) <= max(1e-9 * witness.mean(), 2 * delay.error())
    assert delay.variance() == pytest.approx(witness.var(), rel=1e-4)


@pytest.mark.sampled(2)
@every_law
def test_samples_follow_the_law(own, witness):
    samples = np.asarray(own().sample(Uniforms(3, 1, "upload").blocks(0, 20_000 // BLOCK, 1)))
    assert stats.kstest(samples, witness.cdf).pvalue > LEVEL


def test_a_quantile_of_ones_own_gives_the_draws_of_the_built_in_delay():
    own, built_in = (Sampler(delay, 5, 2, "upload") for delay in (Memoryless(mean=2.0), Exponential(mean=2.0)))
    np.testing.assert_array_equal(own.blocks(0, 5), built_in.blocks(0, 5))


@pytest.mark.slow
def test_delays_of_ones_own_add_up_and_mix_with_built_in_ones():
    x = np.linspace(0.1, 12.0, 40)
    same = Sum(parts=[Erlang(mean=2.0), Exponential(mean=2 / 3)])
    np.testing.assert_allclose(same.cdf(x), stats.gamma(4, scale=2 / 3).cdf(x), atol=1e-5)
    np.testing.assert_allclose(same.density(x), stats.gamma(4, scale=2 / 3).pdf(x), rtol=1e-2)
    heavy = Sum(parts=[Lomax(shape=1.5), Exponential(mean=1e-6)])
    np.testing.assert_allclose(heavy.cdf(x), stats.lomax(1.5).cdf(x), atol=1e-5)
    mixed = Mixture(weights=[1, 3], parts=[Beta(a=2.0, b=3.0), 2.0])
    assert mixed.expectation() == pytest.approx(0.25 * 0.4 + 0.75 * 2)
    slower = Maximum(parts=[Memoryless(mean=1.0)] * 3)
    assert slower.expectation() == pytest.approx(1 + 1 / 2 + 1 / 3, rel=1e-5)


def test_a_delay_of_ones_own_has_no_formula_unless_it_gives_one():
    with pytest.raises(NoClosedFormError, match="erlang has no formula"):
        Erlang(mean=1.0).sympy(None)


def test_a_delay_with_neither_method_is_refused():
    with pytest.raises(ValidationError, match="Nothing defines neither 'cdf' nor 'inverse_cdf'"):
        Nothing()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"path": "own_delays:Absent"}, "does not exist"),
        ({"path": "own_delays:np"}, "no Delay"),
        ({"path": "nowhere:Delay"}, "no module named nowhere"),
        ({}, "'path' is missing"),
    ],
)
def test_a_path_that_names_no_usable_delay_is_refused(entry, says):
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(AnyDelay).validate_python({"kind": "module", **entry})


def test_a_path_names_a_delay_wherever_a_delay_may_stand():
    own = {"kind": "module", "path": "own_delays:Memoryless", "mean": 1.0}
    delay = TypeAdapter(AnyDelay).validate_python({"kind": "sum", "parts": [own, "1 s"]})
    assert delay == Sum(parts=[Memoryless(mean=1.0), 1.0])
    assert delay.support == (1.0, math.inf)


SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 4, by: columns}
models: {client: {kind: linear, embedding: 6}, aggregate: mean, server: {kind: linear}}
training: {batch: 20, client_optimizer: {kind: sgd, lr: 0.2}, server_optimizer: {kind: sgd, lr: 0.1}}
timing:
  clients:
    select: all
    upload_delay: {kind: module, path: "own_delays:Memoryless", mean: 2}
    compute: {kind: module, path: "own_delays:Memoryless", mean: 0.0001}
protocols: {wait: {kind: synchronous}}
stop: {rounds: 10}
"""


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["vflsim", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None), capsys.readouterr().err
        return " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.slow
def test_a_delay_of_ones_own_is_shown(printed, tmp_path):
    out = tmp_path / "law.png"
    text = printed(
        "delays", "show", "{kind: module, path: 'own_delays:Beta', a: 2, b: 3}", "--out", out, "--samples", 2000
    )
    for line in ("mean 0.4 s", "variance 0.04 s²", "support 0 s to 1 s", "50 % 0.385728 s", "no formula"):
        assert line in text
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_delay_of_ones_own_is_analysed(printed, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    assert "4.16" in printed("analyze", path), "2 H_4 s and a little"


WRONG = {
    "Negative": "Negative.cdf is -0.001 at",
    "Falling": "Falling.cdf falls",
    "Nan": "Nan.cdf is nan at",
    "Disagreeing": "Disagreeing.inverse_cdf disagrees with the cdf",
    "WrongMean": "WrongMean.expectation is 2.02, where the cdf has 2",
    "WrongSample": "WrongSample.sample are .* off its cdf",
    "Restless": "Restless.sample draws from NumPy's global generator",
    "Raising": "Raising fails: RuntimeError: no table; remedy: mend it; raised in .*own_delays.py",
}


@pytest.mark.parametrize(("name", "says"), WRONG.items(), ids=WRONG)
def test_a_delay_that_contradicts_itself_is_refused(name, says):
    with pytest.raises(ValidationError, match=says):
        getattr(own_delays, name)(mean=2.0)


@pytest.mark.parametrize(
    ("method", "result", "says"),
    [
        (
            "inverse_cdf",
            lambda u: [*np.ravel(u)],
            r"inverse_cdf returns a list for an array of shape \(3,\); allowed: an a",
        ),
        ("inverse_cdf", lambda u: (u, u), "inverse_cdf returns a tuple"),
        ("inverse_cdf", lambda u: 1.0, "inverse_cdf returns a float"),
        ("inverse_cdf", np.ravel, r"inverse_cdf returns a ndarray of shape \(6,\).* for an array of shape \(2, 3\)"),
        ("density", lambda x: [2 * each for each in x], "density returns a list"),
        ("sample", lambda u: [*u], "sample returns a list; allowed: an array"),
        ("expectation", lambda: np.array([0.5, 0.5]), r"expectation returns a ndarray .*allowed: one number"),
        ("variance", lambda: [1 / 12], "variance returns a list; allowed: one number"),
        ("support", [0.0, 0.5, 1.0], r"support is \[0.0, 0.5, 1.0\]; allowed: two numbers"),
        ("atoms", list, "atoms returns a list; allowed: Atoms"),
    ],
)
def test_a_method_that_returns_something_else_is_named_with_what_it_has_to_return(method, result, says):
    def uniform(self, u):
        return 1.0 * u

    def own(self, *given):
        return result(*given)

    methods = {"inverse_cdf": uniform, method: own if callable(result) else property(lambda self: result)}
    names = {"__module__": __name__, "__annotations__": {"kind": Literal["odd"]}, "kind": "odd"}
    with pytest.raises(ValidationError, match=f"Odd.{says}"):
        type("Odd", (Delay,), {**methods, **names})()


def test_a_finite_variance_of_an_infinite_one_is_refused():
    with pytest.raises(ValidationError, match=r"WrongVariance\.variance is 100, where the cdf has inf"):
        own_delays.WrongVariance(shape=1.5)


@pytest.mark.parametrize("offset", [-5.6e-17, -2.3e-16, 2.3e-16, -5e-13])
def test_rounding_in_a_cdf_changes_no_closed_form(offset):
    own = TypeAdapter(AnyDelay).validate_python(own_delays.Rounded(mean=2.0, offset=offset))
    x = np.array([0.0, 0.5, 3.0, 1e3])
    for parts in ([own, Exponential(mean=1.0)], [own, own]):
        right = [Exponential(mean=2.0) if part is own else part for part in parts]
        np.testing.assert_allclose(Maximum(parts=parts).cdf(x), Maximum(parts=right).cdf(x), atol=1e-11)
        assert Maximum(parts=parts).expectation() == pytest.approx(Maximum(parts=right).expectation(), rel=1e-5)
        assert np.all(Maximum(parts=parts).survival(x) >= 0)
    assert np.all((own.cdf(x) >= 0) & (own.cdf(x) <= 1))


def test_the_error_of_a_wrong_delay_names_file_line_key_and_class(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO.replace('own_delays:Memoryless", mean: 2', 'own_delays:Disagreeing", mean: 2'))
    with pytest.raises(
        ScenarioError, match=r"(?s)tiny.yaml:9: timing.clients.*upload_delay.*Disagreeing.*own_delays.py"
    ):
        load(path)


@pytest.mark.slow
@in_turn(
    bounds={"usual": (1.0, 3.0), "short": (0.0, 1e-6), "narrow": (100.0, 100.001), "wide": (0.5, 1e4)},
    power=[1.0, 2.0, 3.0],
)
def test_a_bound_that_is_not_declared_is_found(bounds, power):
    low, high = bounds
    delay = Bounded(low=low, high=high, power=power)
    np.testing.assert_allclose(delay.support, (low, high), rtol=1e-5)
    longest = Maximum(parts=[Sum(parts=[delay, delay]), delay])
    assert longest.expectation() > 2 * delay.expectation() - 1e-9
    assert longest.expectation() < 2 * high
    assert math.isfinite(longest.variance())


def test_a_triangular_time_by_its_cdf_counts_as_bounded_in_compositions():
    delay = Bounded(low=0.0, high=1.0, power=2.0)  # the smaller of two uniform times
    twice = Maximum(parts=[Sum(parts=[delay, delay])])
    assert twice.expectation() == pytest.approx(2 / 3, rel=1e-5)
    assert twice.variance() == pytest.approx(2 / 18, rel=1e-4)


@pytest.mark.parametrize(("own", "number"), [(Lomax, {"shape": 1.5}), (Lomax, {"shape": 2.2}), (Erlang, {"mean": 2.0})])
def test_a_tail_that_only_leaves_the_floats_is_no_bound(own, number):
    delay = own(**number)
    assert delay.support[1] == math.inf
    assert math.isinf(delay.variance()) == (delay == Lomax(shape=1.5))
