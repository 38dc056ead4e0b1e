"""Fixed point: blinding changes no bit of the sum, nothing wraps around, and a missing client is noticed."""

import numpy as np
import pytest
import torch
from blinded_clients import group_of, masks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from torch import Tensor

from vflsim.errors import BlindingError, NonFiniteError
from vflsim.learning.privacy.blinding import BlindedSum, Blinding


def embeddings(clients: int, seed: int, rows: int = 8, width: int = 8) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {m: torch.randn(rows, width, generator=generator, dtype=torch.float64) for m in range(1, clients + 1)}


def blinded(group: BlindedSum, h: dict[int, Tensor], number: int = 0) -> dict[int, Tensor]:
    masks = masks_of(len(group.clients), group.blinding.bits)
    return {m: group.masked(each, masks[m].of("embed", number, each.numel())) for m, each in h.items()}


@pytest.mark.parametrize(("bits", "fraction"), [(32, 16), (32, 20), (64, 40), (64, 16)])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_the_sum_is_that_of_the_fixed_point_to_the_bit(clients: int, bits: int, fraction: int) -> None:
    group, h = group_of(clients, bits, fraction), embeddings(clients, seed=clients)
    uploads = blinded(group, h)
    assert {upload.dtype for upload in uploads.values()} == {group.uploaded}
    clear = {m: group.masked(each, np.zeros(each.numel(), f"u{bits // 8}")) for m, each in h.items()}
    assert torch.equal(group.total(uploads), group.total(clear))
    exact = sum((each * 2**fraction).round() for each in h.values()) / 2**fraction
    assert torch.equal(group.total(uploads), exact)
    assert (group.total(uploads) - sum(h.values())).abs().max() <= clients * 2 ** -(fraction + 1)


@given(st.integers(1, 9), st.sampled_from([(32, 0), (32, 16), (64, 16), (64, 50)]), st.integers(0, 2**32))
@settings(max_examples=examples(20))
def test_embeddings_up_to_the_limit_add_up_and_larger_ones_are_refused(
    clients: int, point: tuple[int, int], seed: int
) -> None:
    group = group_of(clients, *point)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    full = dict.fromkeys(group.clients, signs * group.largest)
    assert torch.allclose(group.total(blinded(group, full, seed)), signs * group.largest * clients, rtol=1e-15)
    too_large = signs * group.largest * (1 + 2**-40)
    with pytest.raises(BlindingError, match="could wrap around"):
        group.encoded(too_large)


def test_values_that_no_fixed_point_has_are_refused() -> None:
    with pytest.raises(BlindingError, match="magnitudes up to 4096"):
        group_of(2).encoded(torch.tensor([[1.0, -1e30]]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_said_to_be_so(value: float) -> None:
    with pytest.raises(NonFiniteError, match="an embedding is not finite"):
        group_of(2).encoded(torch.tensor([[1.0, value]]))


def test_one_missing_party_is_noticed_in_all_of_a_hundred_trials() -> None:
    """By counting senders; and by the sum, where the server counts wrongly: 1 in 4⁶⁴ sums would pass."""
    picks = np.random.default_rng(3)
    for trial in range(100):
        clients = int(picks.integers(2, 9))
        gone = int(picks.integers(1, clients + 1))
        group = group_of(clients)
        uploads = blinded(group, embeddings(clients, trial), trial)
        del uploads[gone]
        with pytest.raises(BlindingError, match=f"without client {gone}$|without client {gone}\n"):
            group.total(uploads)
        others = BlindedSum(Blinding(), tuple(uploads), torch.float64)
        with pytest.raises(BlindingError, match="out of range: masks are left over"):
            others.total(uploads)


def test_the_sum_has_the_dtype_of_embeddings() -> None:
    group = BlindedSum(Blinding(), (1, 2), torch.float32)
    h = {m: torch.full((2, 3), 0.1 * m) for m in (1, 2)}
    assert group.total(blinded(group, h)).dtype == torch.float32


@pytest.mark.parametrize(
    ("bits", "fraction", "clients", "largest"), [(32, 16, 4, 2048), (32, 16, 1, 8192), (64, 40, 1, 2**21)]
)
def test_the_range_is_what_the_page_says(bits: int, fraction: int, clients: int, largest: float) -> None:
    assert Blinding(bits=bits, fraction=fraction).largest(clients) == largest  # type: ignore[arg-type]
