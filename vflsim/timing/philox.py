"""Philox4x64-10 for very many streams at once, a few words of each: numpy makes a generator for every stream.

Source: Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC'11).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_TOGETHER = 2**12
"""Counters that are computed at a time, so that the arrays stay in the processor's cache."""
_PER_COUNT = 4
_ROUNDS = 10
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


def words_of(keys: Words, first: int, count: int) -> Words:
    """Return words ``first`` up to ``first + count`` of every stream, (n, count), by its ``keys`` (n, 2).

    They are those of ``numpy.random.Philox`` with these keys, whose counter begins at 1.
    """
    begin, end = first // _PER_COUNT, -(-(first + count) // _PER_COUNT)
    counters = np.arange(begin + 1, end + 1, dtype=np.uint64)
    words = np.empty((len(keys), len(counters), _PER_COUNT), np.uint64)
    each = max(1, _TOGETHER // len(counters))
    for start in range(0, len(keys), each):
        some = keys[start : start + each]
        words[start : start + each] = _blocks(some[:, :1], some[:, 1:], counters)
    skipped = first - begin * _PER_COUNT
    return words.reshape(len(keys), -1)[:, skipped : skipped + count]


def _blocks(one: Words, other: Words, counters: Words) -> Words:
    """Return four words for every key (n, 1) twice and counter (c,): (n, c, 4)."""
    shape = len(one), len(counters)
    a = np.broadcast_to(counters, shape)
    b = c = d = np.zeros(shape, np.uint64)
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            high, low = _product(a, _MULTIPLIERS[0])
            higher, lower = _product(c, _MULTIPLIERS[1])
            a, b, c, d = higher ^ b ^ one, lower, high ^ d ^ other, low
            one, other = one + _WEYL[0], other + _WEYL[1]
    return np.stack([a, b, c, d], axis=2)


def _product(x: Words, constant: int) -> tuple[Words, Words]:
    """Return the upper and the lower 64 bits of ``x`` times a constant."""
    high, low = np.uint64(constant >> 32), np.uint64(constant & (2**32 - 1))
    upper, lower = x >> _HALF, x & _LOW
    middle = upper * low + ((lower * low) >> _HALF)
    carried = lower * high + (middle & _LOW)
    return upper * high + (middle >> _HALF) + (carried >> _HALF), x * np.uint64(constant)
