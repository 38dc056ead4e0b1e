"""Random streams are functions of (seed, party, purpose, index), the same for ever."""

import numpy as np
import pytest
import torch
from scipy import stats

from vflsim.streams import BLOCK, SHARED, Uniforms, generator, stream_key, torch_seed

# BLAKE2b-128 of the documented text, from coreutils: printf 'vflsim/1/0/1/upload' | b2sum -l 128
GOLDEN_DIGESTS = {
    (0, 1, "upload"): "c6a1bb862d3ed14e4f39d6171eed880a",
    (0, 0, "compute.embed"): "0998c613449ad174c6293e3f619529c7",
    (7, SHARED, "batches"): "97d93e5e759ee8495378179691b20be2",
    (12345678901234567890, 28, "latency.client-3→server"): "9744d6a9272cdfc23e1938e8c87178c7",
}
GOLDEN_UNIFORMS = [0.4374944770343151, 0.5442882102067278, 0.3395182550103647, 0.030297178023735438]
GOLDEN_SEED = 5679388970345800134


def philox4x64_10(key: int, counter: int) -> list[int]:
    """Philox4x64-10 as published (Salmon et al., SC'11), in exact integers."""
    mask = 2**64 - 1
    k0, k1 = key & mask, key >> 64
    c = [counter >> (64 * j) & mask for j in range(4)]
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(p1 >> 64) ^ c[1] ^ k0, p1 & mask, (p0 >> 64) ^ c[3] ^ k1, p0 & mask]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return c


@pytest.mark.parametrize(("stream", "digest"), GOLDEN_DIGESTS.items())
def test_keys_stay_what_they_are_for_ever(stream, digest):
    assert stream_key(*stream) == int.from_bytes(bytes.fromhex(digest), "little")


def test_uniforms_stay_what_they_are_for_ever():
    assert Uniforms(0, 1, "upload").block(0)[:4].tolist() == GOLDEN_UNIFORMS
    assert torch_seed(0, 1, "upload") == GOLDEN_SEED


def test_a_streams_neighbours_have_other_keys():
    near = {
        stream_key(s, p, w) for s in range(3) for p in range(-1, 3) for w in ("upload", "compute.embed", "1/upload")
    }
    assert len(near) == 3 * 4 * 3


def test_the_reference_philox_gives_the_published_known_answers():
    assert philox4x64_10(0, 0) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


@pytest.mark.parametrize("number", [0, 1, 2, 17, 10**12])
def test_a_block_is_philox_at_its_counter(number):
    key = stream_key(3, 5, "share")
    first = number * BLOCK // 4 + 1  # numpy counts up before it generates
    words = [word for step in range(BLOCK // 4) for word in philox4x64_10(key, first + step)]
    assert Uniforms(3, 5, "share").block(number).tolist() == [(word >> 11) * 2.0**-53 for word in words]


def test_blocks_in_any_order_equal_the_sequential_stream():
    uniforms = Uniforms(1, 2, "upload")
    backwards = [uniforms.block(number) for number in reversed(range(9))]
    sequential = np.random.Philox(key=stream_key(1, 2, "upload")).random_raw(9 * BLOCK) >> np.uint64(11)
    np.testing.assert_array_equal(np.concatenate(backwards[::-1]), sequential * 2.0**-53)


@pytest.mark.parametrize("per_draw", [1, 2, 3, 7])
def test_many_blocks_are_the_blocks_one_after_the_other(per_draw):
    uniforms = Uniforms(1, 2, "upload")
    many = uniforms.blocks(5, 6, per_draw)
    assert many.shape == ((6 * BLOCK,) if per_draw == 1 else (6 * BLOCK, per_draw))
    np.testing.assert_array_equal(many, np.concatenate([uniforms.block(5 + k, per_draw) for k in range(6)]))
    # Draw k has the uniforms k * per_draw, … of the stream.
    flat = uniforms.blocks(0, 11 * per_draw)
    np.testing.assert_array_equal(many.ravel(), flat[5 * BLOCK * per_draw :])


def test_uniforms_are_uniform_and_streams_uncorrelated():
    parties = [np.concatenate([Uniforms(0, m, "upload").block(b) for b in range(200)]) for m in (1, 2)]
    for u in parties:
        assert u.shape == (200 * BLOCK,)
        assert u.min() >= 0
        assert u.max() < 1
        assert stats.kstest(u, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(*parties)[0, 1]) < 3.3 / np.sqrt(200 * BLOCK)


def test_generators_start_afresh_and_leave_the_global_state_alone():
    before = np.random.get_state()[1].copy()
    first, second = (generator(0, SHARED, "batches").permutation(50).tolist() for _ in range(2))
    assert first == second != generator(1, SHARED, "batches").permutation(50).tolist()
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_torch_takes_the_seeds():
    seeds = [torch_seed(s, p, "weights") for s in range(20) for p in range(20)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert torch.Generator().manual_seed(max(seeds)).initial_seed() == max(seeds)
