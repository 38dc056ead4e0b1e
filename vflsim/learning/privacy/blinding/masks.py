"""Masks that cancel in the sum over all clients (EASTER Eq. 4, 5), from one ChaCha20 stream per pair and message.

EASTER writes the blinding factor of client k as a constant, r_k = Σ_j ±H(CK_kj). Added to every embedding, it drops
out of the difference of two uploads. Here each pair expands its key into new, independent masks for every element of
every message.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.privacy.blinding.keys import pair_key

BLOCK_BYTES, BLOCK_OPERATIONS = 64, 976
"""ChaCha20 computes blocks of 64 bytes: 80 quarter rounds of 12 operations on words, and 16 additions (RFC 8439)."""


def chacha20(key: bytes, nonce: bytes, length: int, counter: int = 0) -> bytes:
    """Return ``length`` bytes of the ChaCha20 stream of a 32-byte key and a 12-byte nonce (RFC 8439, Sec. 2.4)."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    cipher = Cipher(ChaCha20(key, counter.to_bytes(4, "little") + nonce), mode=None)
    return cipher.encryptor().update(bytes(length))


class Masks:
    """The masks of client ``own`` in a ``run``; it shares ``secrets`` (32 bytes each) with the others, by number.

    r_k = Σ_{j>k} PRG_kj − Σ_{j<k} PRG_kj modulo 2^bits (Eq. 5), so Σ_k r_k = 0. PRG_kj is a function of the pair's key
    for the run and a kind of message, and of the message's number. Uploads under one mask would give away their
    difference: a run, kind and number must never be used for two different values.
    """

    def __init__(self, own: int, secrets: Mapping[int, bytes], bits: int, run: str) -> None:
        self._own, self._secrets, self._dtype = own, dict(secrets), np.dtype(f"<u{bits // 8}")
        self._run = run
        self._keys: dict[str, dict[int, bytes]] = {}

    def of(self, kind: str, number: int, count: int) -> NDArray[np.unsignedinteger]:
        """Return the masks of ``count`` elements in message ``number`` ≥ 0 of a ``kind``: one stream per pair."""
        total = np.zeros(count, self._dtype)
        nonce = number.to_bytes(12, "little")
        for other, key in self._keys_for(kind).items():
            stream = np.frombuffer(chacha20(key, nonce, total.nbytes), self._dtype)
            if other > self._own:
                total += stream
            else:
                total -= stream
        return total

    def _keys_for(self, kind: str) -> Mapping[int, bytes]:
        if kind not in self._keys:
            self._keys[kind] = {
                other: pair_key(secret, self._run, kind, self._own, other) for other, secret in self._secrets.items()
            }
        return self._keys[kind]


def operations(elements: int, bits: int, others: int) -> float:
    """Count the integer operations of masking: ChaCha20 blocks and an addition per element for each of ``others``."""
    blocks = -(-elements * bits // (8 * BLOCK_BYTES))
    return float(others * (blocks * BLOCK_OPERATIONS + elements))
