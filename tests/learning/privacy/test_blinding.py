"""Fixed point: blinding changes no bit of the sum, nothing wraps around, and a missing client is noticed."""

from __future__ import annotations

import os
from itertools import combinations, product

import numpy as np
import pytest
import torch
from blinded_clients import group_of, masks_of
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy import stats
from thorough import examples
from torch import Tensor

from vflsim.errors import BlindingError, NonFiniteError
from vflsim.learning.privacy.blinding import (
    BlindedSum,
    Blinding,
    Masks,
    chacha20,
    derived_key,
    pair_key,
    private_key,
    public_key,
    shared_secret,
)


def embeddings(clients: int, seed: int, rows: int = 8, width: int = 8) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {m: torch.randn(rows, width, generator=generator, dtype=torch.float64) for m in range(1, clients + 1)}


def blinded(group: BlindedSum, h: dict[int, Tensor], number: int = 0) -> dict[int, Tensor]:
    masks = masks_of(len(group.clients), group.blinding.bits)
    return {m: group.masked(each, masks[m].of("embed", number, each.numel())) for m, each in h.items()}


@pytest.mark.sampled(6)
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


def test_x25519_gives_the_keys_of_rfc_7748() -> None:
    """Sec. 6.1: Alice and Bob."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_key(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    secret = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert shared_secret(alice, public_key(bob)).hex() == shared_secret(bob, public_key(alice)).hex() == secret


@pytest.mark.parametrize(
    ("salt", "info", "expected"),
    [
        (
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (None, b"", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
    ],
    ids=["A.1", "A.3"],
)
def test_hkdf_gives_the_keys_of_rfc_5869(salt: bytes | None, info: bytes, expected: str) -> None:
    assert derived_key(b"\x0b" * 22, info, salt, 42).hex() == expected


SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)


def test_chacha20_gives_the_streams_of_rfc_8439() -> None:
    """App. A.1, vectors 1 and 2: one stream of two blocks. Sec. 2.4.2: a text."""
    first = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    second = (
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert chacha20(bytes(32), bytes(12), 128).hex() == first + second
    assert chacha20(bytes(32), bytes(12), 64, counter=1).hex() == second
    stream = chacha20(bytes(range(32)), bytes.fromhex("000000000000004a00000000"), len(SUNSCREEN), counter=1)
    text = bytes(a ^ b for a, b in zip(stream, SUNSCREEN, strict=True))
    assert text.hex() == (
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357"
        "1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )


def test_keys_agree_pairwise_and_differ_between_pairs_runs_kinds_and_seeds() -> None:
    private = {client: private_key(0, client) for client in range(1, 9)}
    public = {client: public_key(key) for client, key in private.items()}
    found = set()
    for one, other in combinations(private, 2):
        secret = shared_secret(private[one], public[other])
        assert secret == shared_secret(private[other], public[one])
        for run, kind in product(("a/0", "b/0", "a/1"), ("embed", "answer")):
            assert pair_key(secret, run, kind, one, other) == pair_key(secret, run, kind, other, one)
            found.add(pair_key(secret, run, kind, one, other))
    assert len(found) == 3 * 2 * 28
    assert private_key(1, 1) != private_key(0, 1) == private[1]


def test_a_public_key_that_would_give_everybody_the_same_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="shared key"):
        shared_secret(private_key(0, 1), bytes(32))


ROUNDS = 1000
EVERY = int(os.environ.get("VFLSIM_MASKS_EVERY", "50"))
"""Of the rounds, one in so many is tried; ``VFLSIM_MASKS_EVERY=1`` tries all."""
LEVEL = 1e-3
"""Probability with which one test of uniformity fails truly uniform bytes. The seeds are fixed."""


@pytest.mark.sampled(8)
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


CLIENTS = (1, 2, 3)
GROUP = BlindedSum(Blinding(), CLIENTS, torch.float64)


def test_a_server_that_substitutes_public_keys_reads_one_clients_embedding() -> None:
    """Client 1 gets keys of the server's own in the place of the others': the server has all its secrets."""
    keys = {client: private_key(0, client) for client in CLIENTS}
    servers = {client: private_key(99, client) for client in (2, 3)}
    believed = {other: shared_secret(keys[1], public_key(servers[other])) for other in servers}
    h = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    upload = GROUP.masked(h, Masks(1, believed, GROUP.blinding.bits, "run").of("embed", 0, h.numel()))
    clear = GROUP.masked(h, torch.zeros(h.numel(), dtype=torch.int64).numpy().astype("<u4"))
    assert not torch.equal(upload, clear)
    known = {other: shared_secret(private, public_key(keys[1])) for other, private in servers.items()}
    mask = Masks(1, known, GROUP.blinding.bits, "run").of("embed", 0, h.numel())
    read = (upload.numpy().view("u4") - mask.reshape(4, 3)).view("i4") * 2.0**-GROUP.blinding.fraction
    torch.testing.assert_close(torch.from_numpy(read), h, rtol=0, atol=2.0 ** -(GROUP.blinding.fraction + 1))


def test_a_server_with_its_own_keys_alone_reads_nothing() -> None:
    """The secrets of honest pairs need one of their private keys: the server's own give another mask."""
    keys = {client: private_key(0, client) for client in CLIENTS}
    honest = {other: shared_secret(keys[1], public_key(keys[other])) for other in (2, 3)}
    guessed = {other: shared_secret(private_key(99, other), public_key(keys[1])) for other in (2, 3)}
    one, two = (Masks(1, secrets, 32, "run").of("embed", 0, 1000) for secrets in (honest, guessed))
    assert (one == two).mean() < 0.01
