"""Key agreement of two clients: X25519 (RFC 7748), then HKDF with SHA-256 (RFC 5869).

``cryptography`` computes both. It is imported by the functions that need it, because most runs do not.
"""

from __future__ import annotations

from vflsim.streams import generator

KEY_BYTES = 32
"""The length of private, public and derived keys."""


def private_key(seed: int, party: int) -> bytes:
    """Return the private key of ``party``: 32 bytes of its stream ``blinding.private_key``.

    A seed makes runs reproducible, and everybody who knows it knows the key. A live deployment must draw its private
    keys from the operating system (``os.urandom``).
    """
    words = generator(seed, party, "blinding.private_key").bit_generator.random_raw(KEY_BYTES // 8)
    return words.astype("<u8").tobytes()


def public_key(private: bytes) -> bytes:
    """Return the public key that belongs to ``private``, 32 bytes (EASTER: PK = g^SK)."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared_secret(private: bytes, public: bytes) -> bytes:
    """Return the secret of the owner of ``private`` and the owner of ``public``, 32 bytes, the same for both.

    Raises ``ValueError`` for a public key with which every secret would be zero.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def derived_key(secret: bytes, info: bytes, salt: bytes | None = None, length: int = KEY_BYTES) -> bytes:
    """Derive a key for the use that ``info`` names from a shared secret: HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, info).derive(secret)


def pair_key(secret: bytes, run: str, kind: str, one: int, other: int) -> bytes:
    """Return the key of two clients for messages of a ``kind`` in a ``run``, from their shared secret; equal for both.

    HKDF's info is ``vflsim/blinding/2/<run>/<kind>/<low>/<high>`` with the numbers of the clients.
    """
    low, high = sorted((one, other))
    return derived_key(secret, f"vflsim/blinding/2/{run}/{kind}/{low}/{high}".encode())
