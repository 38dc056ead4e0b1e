"""Masks cancel exactly, uploads look uniform, and the attack on a constant mask fails here."""

import os

import numpy as np
import pytest
import torch
from blinded_clients import group_of, masks_of
from numpy.typing import NDArray
from scipy import stats

ROUNDS = 1000
EVERY = int(os.environ.get("VFLSIM_MASKS_EVERY", "50"))
"""Of the rounds, one in so many is tried; ``VFLSIM_MASKS_EVERY=1`` tries all."""
LEVEL = 1e-3
"""Probability with which one test of uniformity fails truly uniform bytes. The seeds are fixed."""


@pytest.mark.sampled(14)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("clients", range(1, 21))
def test_masks_cancel_exactly_in_the_sum_of_all_clients(clients: int, bits: int) -> None:
    masks = masks_of(clients, bits, seed=clients)
    for number in range(clients % EVERY, ROUNDS, EVERY):
        each = [own.of("embed", number, 5) for own in masks.values()]
        assert each[0].dtype == np.dtype(f"u{bits // 8}")
        assert not np.add.reduce(each, dtype=each[0].dtype).any()
        assert clients == 1 or all(mask.any() for mask in each)


def test_every_message_and_every_element_has_a_mask_of_its_own() -> None:
    masks = masks_of(3)[1]
    streams = [masks.of(kind, number, 400) for kind in ("embed", "answer") for number in range(5)]
    assert len(np.unique(streams)) > 3990  # of 4000 words; 0.002 equal pairs are expected
    assert (masks.of("embed", 0, 100) == streams[0][:100]).all()


def uploads(number: int, constant: bool, h: torch.Tensor) -> NDArray[np.unsignedinteger]:
    """Client 2's upload of ``h`` among four; ``constant``: the mask of the literal Eq. 5, equal in all rounds."""
    mask = masks_of(4)[2].of("embed", 0 if constant else number, h.numel())
    return group_of(4).masked(h, mask).numpy().view(np.uint32)


def p_value(words: NDArray[np.unsignedinteger]) -> float:
    """The smallest of the chi-square tests of the four bytes of each word, for uniform bytes; times four."""
    counts = [np.bincount(byte, minlength=256) for byte in words.reshape(-1).view(np.uint8).reshape(-1, 4).T]
    return 4 * min(float(stats.chisquare(count).pvalue) for count in counts)


@pytest.mark.parametrize("constant", [False, True], ids=["ours", "constant"])
def test_uploads_of_two_rounds_and_their_difference_are_uniform_unless_the_mask_is_constant(constant: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(128, 128, generator=generator, dtype=torch.float64) for _ in range(2))
    one, other = uploads(7, constant, first), uploads(8, constant, second)
    assert p_value(one) > LEVEL
    assert p_value(other) > LEVEL
    assert (p_value(other - one) > LEVEL) is (not constant)


def test_differencing_two_rounds_reads_embeddings_under_a_constant_mask_and_nothing_here() -> None:
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randn(64, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    truth = (second - first).numpy()

    def read(constant: bool) -> NDArray[np.float64]:
        one, other = uploads(3, constant, first), uploads(4, constant, second)
        return (other - one).view(np.int32).astype(np.float64) / 2**16

    assert np.abs(read(constant=True) - truth).max() <= 2**-16
    guess = read(constant=False)
    assert np.abs(np.corrcoef(guess.ravel(), truth.ravel())[0, 1]) < 3.3 / np.sqrt(truth.size)  # fails one in 1000
    assert np.median(np.abs(guess - truth)) > 1000
