"""Whole numbers, signs and half precision: what arrives, what it weighs, what saturates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from thorough import examples
from torch import Tensor

from vflsim.codecs import Codec, Plain
from vflsim.codecs.frame import ONLY, Envelope, Spec
from vflsim.codecs.round import BFloat16, Binarise, Float16, LatentNoise, Round
from vflsim.errors import NonFiniteError

floats = st.lists(st.floats(width=32), min_size=1, max_size=12).map(
    lambda each: torch.tensor(each, dtype=torch.float32)
)
finite = floats.map(lambda x: x.nan_to_num(0, 0, 0))
CASTS = {Float16(): torch.float16, BFloat16(): torch.bfloat16}
casts = pytest.mark.parametrize(("codec", "dtype"), CASTS.items(), ids=["float16", "bfloat16"])


def message_bytes(codec: Codec, x: Tensor) -> int:
    written = len(codec.encode(Envelope("embedding", 1), {ONLY: x}))
    assert written == codec.size_of({ONLY: Spec(tuple(x.shape), x.dtype)})
    return written


def test_int8_is_a_quarter_of_float32_and_a_header_of_sixty_bytes() -> None:
    x = torch.randn(32, 64)
    assert message_bytes(Plain(), x) - 60 == 4 * (message_bytes(Round(), x) - 60) == 4 * 32 * 64
    assert message_bytes(Round(bits=16), x) - 60 == message_bytes(Float16(), x) - 60 == 2 * 32 * 64
    assert Round().pack(torch.tensor([1.0, -2.0, 127.0])) == bytes([1, 254, 127])


def test_signs_are_packed_eight_to_a_byte() -> None:
    x = torch.tensor([[3.0, -0.5, 0.0], [-1e-9, 2.0, -7.0], [1.0, -1.0, 4.0]])
    assert Binarise().pack(x) == bytes([0b01010101, 0b1])  # lowest bit first
    assert Binarise().through(x).tolist() == [[1, -1, 1], [-1, 1, -1], [1, -1, 1]]
    assert [message_bytes(Binarise(), torch.randn(rows, 4)) for rows in (1, 2, 32)] == [61, 61, 60 + 16]


@settings(max_examples=examples(60), derandomize=True)
@given(x=floats, bits=st.sampled_from([8, 16]))
def test_whole_numbers_are_the_nearest_within_the_range(x: Tensor, bits: Any) -> None:
    codec, most = Round(bits=bits), 2 ** (bits - 1) - 1
    expected = np.clip(np.rint(x.numpy().astype(np.float64)), -most, most)
    expected[~np.isfinite(x.numpy())] = math.nan
    assert np.array_equal(codec.through(x).numpy(), expected, equal_nan=True)
    beyond = np.isfinite(x.numpy()) & (np.abs(np.rint(x.numpy().astype(np.float64))) > most)
    assert np.array_equal(codec.saturated(x).numpy(), beyond)


def test_ties_go_to_the_even_number_and_the_ends_do_not_saturate() -> None:
    x = torch.tensor([0.5, 1.5, -0.5, -2.5, 127.4, -127.49, 127.5, -1e30])
    assert Round().through(x).tolist() == [0, 2, 0, -2, 127, -127, 127, -127]
    assert Round().saturated(x).tolist() == [False] * 6 + [True, True]


@casts
@settings(max_examples=examples(60), derandomize=True)
@given(x=finite)
def test_casts_never_make_a_number_infinite(codec: Codec, dtype: torch.dtype, x: Tensor) -> None:
    arrived, info = codec.through(x), torch.finfo(dtype)
    saturated = codec.saturated(x)
    assert saturated is not None
    assert bool(arrived.isfinite().all())
    assert torch.equal(arrived[saturated].abs(), torch.full_like(arrived[saturated], info.max))
    assert torch.equal(saturated, x.to(dtype).isinf())
    small = info.smallest_normal * info.eps / 2
    near = (arrived - x).abs().double() <= (x.abs().double() * info.eps / 2).clamp(min=small)
    assert bool((near | saturated).all())


def test_the_cast_to_half_precision_saturates_where_rounding_ends() -> None:
    x = torch.tensor([65504.0, 65519.0, 65520.0, -1e9, math.inf, -math.inf, math.nan])
    assert Float16().through(x).tolist() == pytest.approx(
        [65504, 65504, 65504, -65504, math.inf, -math.inf, math.nan], nan_ok=True
    )
    assert Float16().saturated(x).tolist() == [False, False, True, True, False, False, False]
    wide = torch.tensor([3.4028e38, -3.4028e38])
    assert BFloat16().through(wide).abs().tolist() == [torch.finfo(torch.bfloat16).max] * 2


def test_what_is_no_number_does_not_become_one() -> None:
    x = torch.tensor([1.0, math.nan, math.inf])
    for codec in (Round(), Round(noise=LatentNoise(epsilon=1)), Round(bits=16)):
        assert codec.through(x).isnan().tolist() == [False, True, True]
        assert codec.unpack(codec.pack(x), (3,), x.dtype).isnan().tolist() == [False, True, True]
    assert Float16().through(x).isfinite().tolist() == [True, False, False]
    assert Binarise().through(torch.tensor([-math.inf, math.inf])).tolist() == [-1, 1]
    for encode in (Binarise().through, Binarise().pack):
        with pytest.raises(NonFiniteError, match="cannot be binarised"):
            encode(x)


@pytest.mark.parametrize("codec", [Round(), Binarise()])
def test_only_what_goes_up_is_transformed_unless_both_are_asked_for(codec: Codec) -> None:
    assert codec.towards(0) is codec
    assert codec.towards(3) == Plain()
    both = codec.model_copy(update={"gradients": True})
    assert both.towards(0) is both.towards(3) is both
    assert Float16().towards(3) == Float16()


def test_latent_noise_follows_laplace_s_law_and_its_key() -> None:
    """Kolmogorov and Smirnov's test of 20,000 draws: a sound sampler fails it with probability 1e-3."""
    noise = LatentNoise(epsilon=0.7)
    drawn = noise.draw(20_000, key=4)
    assert stats.kstest(drawn.numpy(), stats.laplace(scale=1 / 0.7).cdf).pvalue > 1e-3
    assert torch.equal(drawn, noise.draw(20_000, key=4))
    assert not torch.equal(drawn, noise.draw(20_000, key=5))


def test_noise_is_added_to_whole_numbers_and_rounded_away_with_the_stated_probability() -> None:
    """[[x] + Lap(1/ε)] = [x] in 1 − exp(−ε/2) of 40,000 elements, within 4 standard errors: wrong in 1 of 10,000."""
    x, epsilon = torch.randn(200, 200) * 20, 1.5
    codec = Round(noise=LatentNoise(epsilon=epsilon)).keyed(9)
    same = float((codec.through(x) == Round().through(x)).double().mean())
    probability = stats.laplace(scale=1 / epsilon).cdf(0.5) - stats.laplace(scale=1 / epsilon).cdf(-0.5)
    assert abs(same - probability) < 4 * math.sqrt(probability * (1 - probability) / x.numel())
    assert torch.equal(codec.through(x), codec.through(x.round()))
    latent = codec.noise.draw(x.numel(), 9).reshape(x.shape) if codec.noise else x
    assert torch.equal(codec.through(x), (x.round().double() + latent).round().clamp(-127, 127).float())


def test_the_key_of_the_noise_is_not_sent() -> None:
    x, noisy = torch.randn(3, 4), Round(noise=LatentNoise(epsilon=1))
    assert len(noisy.pack(x)) == len(Round().pack(x)) == 12
    assert not torch.equal(noisy.keyed(1).through(x), noisy.keyed(2).through(x))
    assert Round().elementwise
    assert not noisy.elementwise


def test_a_promise_gives_the_probability_and_both_epsilons() -> None:
    promise = Round(noise=LatentNoise(epsilon=2)).promise(elements=10)
    assert "63.2 %" in promise  # 1 − 1/e
    assert "ε = 2 per release covers one element that differs by 1" in promise
    assert "ε = 5080 all of a sample's features at one client, in 10 elements" in promise  # 2 · 254 · 10
    assert Round().promise(10) == Binarise().promise(10) == ""
