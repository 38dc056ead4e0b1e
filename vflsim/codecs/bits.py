"""Whole numbers of a few bits each, packed into bytes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vflsim.errors import DataError


def packed_bytes(count: int, bits: int) -> int:
    """Count the bytes of ``count`` numbers of ``bits`` bits."""
    return (count * bits + 7) // 8


def pack_bits(numbers: torch.Tensor, bits: int) -> bytes:
    """Pack the numbers 0 ≤ n < 2^bits one after another, lowest bit first; zeros fill the last byte."""
    whole = numbers.reshape(-1, 1).cpu().numpy()
    return np.packbits((whole >> np.arange(bits) & 1).astype(np.uint8), bitorder="little").tobytes()


def unpack_bits(payload: bytes, count: int, bits: int) -> torch.Tensor:
    """Invert ``pack_bits``: int64 numbers. Raises ``DataError`` for bytes of another length, or with stray bits."""
    if len(payload) != packed_bytes(count, bits):
        raise DataError(f"{len(payload)} bytes of packed numbers", allowed=f"{packed_bytes(count, bits)}")
    found = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little").astype(np.int64)
    if found[count * bits :].any():
        raise DataError("bits after the last packed number", allowed="zeros")
    numbers: NDArray[np.int64] = (found[: count * bits].reshape(count, bits) << np.arange(bits)).sum(1)
    return torch.from_numpy(numbers)
