"""Counter-based random streams: one per (seed, party, purpose), never a global generator.

The n-th number of a stream is a function of (seed, party, purpose, n) alone. Protocols are therefore compared on
common random numbers. Keys are stable for ever: another derivation would change every published result.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

SERVER = 0
"""The server's party number; client m has number m = 1..N. Example: ``message.sender == SERVER``."""
SHARED = -1
"""The party number of streams that all parties share, such as the sequence of shared mini-batches.

Example: ``generator(seed, SHARED, "mine/order")``.
"""
BLOCK = 64
"""Uniforms drawn at a time. Fixed, because the last bit of np.log may depend on the length of its array."""

FEW = 3
"""The number of parties that a message names."""
_PER_COUNT = 4  # 64-bit words that Philox4x64 gives per value of its counter


def party_name(party: int) -> str:
    """Give the name of a party in results and messages.

    Example::

        party_name(0), party_name(2)  # ('server', 'client-2')
    """
    return "server" if party == 0 else f"client-{party}"


def few(names: Sequence[str], between: str = ", ") -> str:
    """List the names, or the first ones and the number of the others: ``client 1, client 2, client 3 and 95 more``."""
    shown = names if len(names) <= FEW + 1 else names[:FEW]
    return between.join(shown) + (f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else "")


def stream_key(seed: int, party: int, purpose: str) -> int:
    """Give the 128-bit key of a stream: BLAKE2b of ``vflsim/1/<seed>/<party>/<purpose>``, read little-endian."""
    return int.from_bytes(_digest(seed, party, purpose), "little")


def _digest(seed: int, party: int, purpose: str) -> bytes:
    return blake2b(f"vflsim/1/{seed:d}/{party:d}/{purpose}".encode(), digest_size=16).digest()


def generator(seed: int, party: int, purpose: str) -> np.random.Generator:
    """Give a fresh numpy generator at the start of the stream (for permutations, splits, …).

    Example::

        order = generator(seed=0, party=3, purpose="mine/order").permutation(4)
        sorted(order.tolist())  # [0, 1, 2, 3]
    """
    return np.random.Generator(np.random.Philox(_Key(_digest(seed, party, purpose))))  # type: ignore[arg-type]  # its stubs


def torch_seed(seed: int, party: int, purpose: str) -> int:
    """Give a seed for ``torch.Generator.manual_seed``: the low 63 bits of the stream's key.

    Example::

        noise = torch.Generator().manual_seed(torch_seed(seed=0, party=3, purpose="mine/noise"))
        torch.randn(2, generator=noise).shape  # torch.Size([2])
    """
    return stream_key(seed, party, purpose) & (2**63 - 1)


class _Key(ISeedSequence):
    """A key as numpy's "seed sequence". Without one, every Philox would ask the system for entropy."""

    __slots__ = ("_words",)

    def __init__(self, key: bytes) -> None:
        self._words = np.frombuffer(key, dtype="<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        """Give the two words of a Philox key."""
        return self._words


class Uniforms:
    """The uniforms in [0, 1) of one stream (Philox4x64-10), by blocks, in any order."""

    __slots__ = ("key",)

    def __init__(self, seed: int, party: int, purpose: str) -> None:
        self.key = _digest(seed, party, purpose)
        """The stream's key, 16 bytes."""

    def block(self, number: int, per_draw: int = 1) -> NDArray[np.float64]:
        """Give the uniforms of draws ``number * BLOCK`` up to ``(number + 1) * BLOCK``, ``per_draw`` each.

        Shape (BLOCK,), or (BLOCK, per_draw) where a draw consumes more than one; float64.
        """
        return self.blocks(number, 1, per_draw)

    def blocks(self, first: int, count: int, per_draw: int = 1) -> NDArray[np.float64]:
        """Give ``count`` blocks from ``first`` on, one after the other, with the same bits as ``block``."""
        uniforms = as_uniforms(self.words(first, count, per_draw))
        return uniforms if per_draw == 1 else uniforms.reshape(count * BLOCK, per_draw)

    def words(self, first: int, count: int, per_draw: int = 1) -> NDArray[np.uint64]:
        """Give the 64-bit words that ``blocks`` makes uniforms of."""
        size = BLOCK * per_draw
        bits = np.random.Philox(_Key(self.key), counter=first * (size // _PER_COUNT))  # type: ignore[arg-type]  # its stubs
        # The raw words are covered by numpy's compatibility promise, the methods of Generator are not.
        words: NDArray[np.uint64] = bits.random_raw(count * size)
        return words


def as_uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn 64-bit words into uniforms in [0, 1), elementwise: by their upper 53 bits."""
    uniforms: NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniforms
