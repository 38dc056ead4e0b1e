"""The Gaussian mechanism by itself: what it bounds, what it adds, what it promises."""

import math
import statistics

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from scipy import stats
from torch import Tensor

from vflsim.errors import NonFiniteError
from vflsim.learning.privacy.mechanisms import MECHANISMS, AnyMechanism, Gaussian
from vflsim.streams import generator

ADAPTER: TypeAdapter[Gaussian] = TypeAdapter(AnyMechanism)
PLAIN = {"kind": "gaussian", "clip": 1.5, "delta": 1e-5}


def mechanism(**said: object) -> Gaussian:
    return ADAPTER.validate_python({**PLAIN, **({"noise_multiplier": 1.0} if not said else {}), **said})


def rows(scale: float, dtype: torch.dtype = torch.float64) -> Tensor:
    drawn = torch.randn(200, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return (scale * drawn).to(dtype)


def noise(gaussian: Gaussian, count: int, purpose: str = "noise", dtype: torch.dtype = torch.float64) -> Tensor:
    return gaussian.noise((count,), dtype, generator(3, 1, purpose).bit_generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e9])
def test_no_row_is_longer_than_the_clip_and_none_is_turned(scale: float, dtype: torch.dtype) -> None:
    h = rows(scale, dtype)
    bounded = mechanism().bounded(h)
    lengths = bounded.double().norm(dim=1)
    assert (lengths <= 1.5 * (1 + 4 * torch.finfo(dtype).eps)).all()
    long = h.double().norm(dim=1) > 1.5
    assert torch.allclose(lengths[long], torch.tensor(1.5, dtype=torch.float64), rtol=1e-6)
    assert torch.allclose(torch.cosine_similarity(bounded, h, dim=1), torch.ones(200, dtype=dtype))
    assert bounded.dtype == dtype


def test_a_row_that_is_short_enough_stays_as_it_is() -> None:
    h = rows(1.0)
    short = h.norm(dim=1) <= 1.5
    assert 0 < short.sum() < 200
    assert torch.equal(mechanism().bounded(h)[short], h[short])
    assert torch.equal(mechanism().bounded(torch.zeros(2, 6)), torch.zeros(2, 6))


def test_the_gradient_of_a_clipped_row_is_the_projection_and_of_a_short_one_the_identity() -> None:
    h, received = rows(1.0).requires_grad_(), rows(0.7).flip(0)
    mechanism().bounded(h).backward(received)
    lengths = h.detach().norm(dim=1, keepdim=True)
    unit = h.detach() / lengths
    # d(C h/‖h‖) = C/‖h‖ (1 − u uᵀ) dh, which is its own transpose.
    projected = 1.5 / lengths * (received - unit * (unit * received).sum(1, keepdim=True))
    assert torch.allclose(h.grad, torch.where(lengths > 1.5, projected, received), atol=1e-14)


def test_the_clip_passes_the_check_of_autograd() -> None:
    h = rows(1.0)[:20].requires_grad_()
    assert torch.autograd.gradcheck(mechanism().bounded, h)
    zero = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    mechanism().bounded(zero).sum().backward()
    assert torch.equal(zero.grad, torch.ones(1, 6, dtype=torch.float64))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_embedding_that_is_not_finite_is_an_error_rather_than_clipped(value: float) -> None:
    h = rows(1.0)
    h[7, 2] = value
    with pytest.raises(NonFiniteError, match="embedding is not finite"):
        mechanism().bounded(h)


def test_the_noise_is_normal_with_sigma_the_multiplier_times_twice_the_clip() -> None:
    gaussian = mechanism(noise_multiplier=0.8)
    assert gaussian.sensitivity == 3.0
    assert gaussian.sigma == pytest.approx(2.4)
    drawn = noise(gaussian, 200_000).numpy() / 2.4
    # Each of the three fails one sound implementation in a thousand; the seed is fixed.
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    low, high = stats.chi2.ppf([5e-4, 1 - 5e-4], 200_000)
    assert low < (drawn**2).sum() < high
    assert abs(drawn.mean()) * math.sqrt(200_000) < stats.norm.ppf(1 - 5e-4)


def test_noise_of_different_elements_is_not_correlated() -> None:
    drawn = mechanism().noise((20_000, 4), torch.float64, generator(5, 2, "x").bit_generator)
    correlations = np.corrcoef(drawn.numpy().T)[np.triu_indices(4, 1)] * math.sqrt(20_000)
    assert np.abs(correlations).max() < stats.norm.ppf(1 - 1e-3 / 12)  # six pairs, one failure in a thousand


def test_equal_streams_give_equal_noise_however_much_is_drawn_and_in_whatever_precision() -> None:
    gaussian = mechanism()
    assert torch.equal(noise(gaussian, 64), noise(gaussian, 1000)[:64])
    assert torch.equal(noise(gaussian, 64, dtype=torch.float32), noise(gaussian, 64).float())
    assert not torch.equal(noise(gaussian, 64), noise(gaussian, 64, "other"))


def test_the_ends_of_the_words_give_finite_noise() -> None:
    class Ends:
        def random_raw(self, count: int) -> np.ndarray:
            return np.array([0, 2**64 - 1], np.uint64)

    drawn = mechanism().noise((2,), torch.float64, Ends())  # type: ignore[arg-type]
    assert torch.isfinite(drawn).all()
    assert drawn[0] == -drawn[1] < 0


def test_what_a_random_word_becomes_is_fixed_for_ever() -> None:
    words = generator(3, 1, "noise").bit_generator.random_raw(3).tolist()
    expected = [3.0 * statistics.NormalDist().inv_cdf((word // 2**12 + 0.5) / 2**52) for word in words]
    assert noise(mechanism(), 3).tolist() == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx([-0.41415309178, -0.92341518822, -3.89342248337])


def test_epsilon_per_release_is_that_of_one_release_and_grows_with_more() -> None:
    gaussian = mechanism(epsilon=5, per="release")
    assert gaussian.epsilon_after(1) == pytest.approx(5)
    assert gaussian.epsilon_after(10) > 15
    assert gaussian.most_releases is None
    assert "ε = 5 (δ = 1e-05) per release of a sample; for a whole run more" in gaussian.promise()


def test_epsilon_per_run_is_that_of_all_its_releases() -> None:
    gaussian = mechanism(epsilon=5, per="run", releases=30)
    assert gaussian.epsilon_after(30) == pytest.approx(5)
    assert gaussian.epsilon_after(1) < 1
    assert gaussian.multiplier == pytest.approx(math.sqrt(30) * mechanism(epsilon=5, per="release").multiplier)
    assert gaussian.most_releases == 30
    assert "5 for a whole run of at most 30 releases" in gaussian.promise()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"clip": 0, "noise_multiplier": 1}, "0 is out of range; allowed: a number above 0"),
        ({"clip": None, "noise_multiplier": 1}, "None is not a number"),
        ({"delta": 0, "noise_multiplier": 1}, "0 is out of range"),
        ({"delta": 1, "noise_multiplier": 1}, "1 is out of range; allowed: a number above 0 and below 1"),
        ({"noise_multiplier": 0}, "0 is out of range; allowed: a number at least 1e-12"),
        ({"epsilon": -5, "per": "release"}, "-5 is out of range"),
        ({"epsilon": 1e9, "per": "release"}, "at most 1e\\+06"),
        ({"noise_multiplier": 1, "epsilon": 5, "per": "release"}, "both of noise_multiplier and epsilon"),
        ({"noise_multiplier": None}, "none of noise_multiplier and epsilon"),
        ({"epsilon": 5}, "epsilon: 5 has no scope; allowed: per: release, per: run"),
        ({"epsilon": 5, "per": "epoch"}, "'release' or 'run'"),
        ({"epsilon": 5, "per": "release", "releases": 3}, "releases plans a whole run; allowed: with per: run"),
        ({"epsilon": 5, "per": "release", "rounds": 3}, "rounds plans a whole run; allowed: with per: run"),
        ({"epsilon": 5, "per": "run", "rounds": 3, "releases": 3}, "releases and rounds are both given"),
        ({"epsilon": 5, "per": "run", "batches": "secret", "releases": 3}, "releases counts those of one sample"),
        ({"epsilon": 5, "per": "run", "batches": "hidden"}, "'known' or 'secret'"),
        ({"epsilon": 5, "per": "run", "releases": 0}, "0 is out of range; allowed: a whole number at least 1"),
        ({"noise_multiplier": 1, "per": "release"}, "per: release needs epsilon"),
        ({"noise_multiplier": 1, "releases": 3}, "releases plans a whole run"),
        ({"noise_multiplier": 1, "sigma": 3}, "sigma"),
    ],
)
def test_a_mechanism_that_says_too_little_or_too_much_is_refused(said: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ADAPTER.validate_python({**PLAIN, **said})


def test_delta_clip_and_the_kind_cannot_be_left_out() -> None:
    for key in PLAIN:
        with pytest.raises(ValidationError, match=key):
            ADAPTER.validate_python({name: value for name, value in PLAIN.items() if name != key})


def test_the_table_holds_every_kind() -> None:
    assert [kind.model_fields["kind"].default for kind in MECHANISMS] == ["gaussian", "perturbed_local_embedding"]
