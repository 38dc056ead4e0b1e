"""Key agreement: the published vectors of X25519, HKDF and ChaCha20 through our own functions, and keys that agree."""

from itertools import combinations, product

import pytest

from vflsim.learning.privacy.blinding.keys import derived_key, pair_key, private_key, public_key, shared_secret
from vflsim.learning.privacy.blinding.masks import chacha20


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


ZEROS = "00" * 32, "00" * 12
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
