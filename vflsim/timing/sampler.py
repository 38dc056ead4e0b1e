"""Turns uniforms into delays. No other module does so, so that a draw always has the same bits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vflsim.streams import BLOCK, Uniforms, as_uniforms
from vflsim.timing.delays.base import Delay, Regimes, columns
from vflsim.timing.delays.basic import Constant
from vflsim.timing.floats import Floats

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


_NOWHERE = -BLOCK


class Sampler:
    """The draws 0, 1, 2, … of one delay on the stream (seed, party, purpose), in any order.

    It samples whole blocks, for speed, and because the last bit of np.log may depend on the length of its array. A
    delay that is ``in_time`` goes through the regimes of (seed, party, role), where the role is the purpose up to its
    first dot: ``compute.embed`` and ``compute.client_step`` share one.

    Example::

        uploads = Sampler(setting.timings[2].upload_delay, seed=0, party=2, purpose="upload")
        uploads.draw(5) == uploads.draw(5)  # True
    """

    __slots__ = ("_block", "_delay", "_first", "_in_time", "_uniforms")

    def __init__(self, delay: Delay, seed: int, party: int, purpose: str) -> None:
        self._delay = delay
        self._first = _NOWHERE  # index of the first draw in the block at hand
        self._in_time: _InTime | None = None
        if isinstance(delay, Constant):  # it needs no stream, which saves memory with a hundred thousand clients
            self._block = _constant_block(delay.value)
            return
        self._block = array("d")
        self._uniforms = Uniforms(seed, party, purpose)
        regimes = delay.regimes(seed, party, purpose.partition(".")[0])
        if regimes is not None:
            self._in_time = _InTime(regimes, self._uniforms, delay.uniforms)

    @property
    def in_time(self) -> bool:
        """Whether a draw depends on the instant when its activity begins."""
        return self._in_time is not None

    def draw(self, index: int, now: float = 0.0) -> float:
        """Give draw ``index`` ≥ 0 in seconds, for an activity that begins at ``now`` (seconds since the start).

        A function of the stream and the index alone; for a delay that is ``in_time``, of the instant too.
        """
        offset = index - self._first
        if 0 <= offset < BLOCK:
            return self._block[offset]
        return self._fetch(index) if self._in_time is None else self._in_time.draw(index, now)

    def blocks(self, first: int, count: int) -> Floats:
        """Give draws ``first * BLOCK`` up to ``(first + count) * BLOCK``, with the same bits as ``draw``.

        Shape (count * BLOCK,). Raises ValueError for a delay whose draws depend on the instant.
        """
        if self._in_time is not None:
            raise ValueError("these draws depend on the instants at which activities begin: draw them one by one")
        if isinstance(self._delay, Constant):
            return np.full(count * BLOCK, self._delay.value)
        return self._delay.sample(self._uniforms.blocks(first, count, self._delay.uniforms))

    def alike(self, other: Sampler) -> bool:
        """Return whether both turn uniforms into delays in the same way: then ``blocks_of_alike`` takes them."""
        delay = self._delay
        plain = delay.uniforms == 1 and self._in_time is None and not isinstance(delay, Constant)
        return plain and delay is other._delay and other._in_time is None

    def _fetch(self, index: int) -> float:
        number, offset = divmod(index, BLOCK)
        self._first = index - offset
        if not isinstance(self._delay, Constant):
            self._block = array("d", self.blocks(number, 1).tobytes())
        return self._block[offset]


def blocks_of_alike(samplers: Sequence[Sampler], firsts: Sequence[int], count: int) -> Floats:
    """Give ``count`` blocks of each of these samplers from its first one on, with the same bits as ``blocks``.

    Shape (samplers, count * BLOCK). All must be ``alike``: their uniforms are turned into delays at once.
    """
    uniforms = np.stack(
        [sampler._uniforms.words(first, count) for sampler, first in zip(samplers, firsts, strict=True)]
    )
    return samplers[0]._delay.sample(as_uniforms(uniforms).reshape(-1)).reshape(uniforms.shape)


def draws_of_alike(samplers: Sequence[Sampler], first: int, count: int) -> Floats:
    """Give draws ``first`` up to ``first + count`` of each of these samplers, with the same bits as ``draw``.

    Shape (samplers, count). All must be ``alike``. Cheap for a few draws of very many.
    """
    keys = np.frombuffer(b"".join([sampler._uniforms.key for sampler in samplers]), "<u8").reshape(-1, 2)
    rows = -(-len(keys) // BLOCK) * BLOCK  # so that np.log sees whole blocks
    words = np.zeros((rows, count), np.uint64)
    words[: len(keys)] = words_of(keys, first, count)
    return samplers[0]._delay.sample(as_uniforms(words).reshape(-1)).reshape(words.shape)[: len(keys)]


@lru_cache(maxsize=64)
def _constant_block(seconds: float) -> array[float]:
    return array("d", [seconds]) * BLOCK


class _InTime:
    """Draws through the law of the state that holds when the activity begins."""

    def __init__(self, regimes: Regimes, uniforms: Uniforms, per_draw: int) -> None:
        self._regimes, self._uniforms, self._per_draw = regimes, uniforms, per_draw
        self._number = -1
        self._columns = np.empty((BLOCK, per_draw))
        self._drawn: dict[int, array[float]] = {}

    def draw(self, index: int, now: float) -> float:
        number, offset = divmod(index, BLOCK)
        if number != self._number:
            self._columns = self._uniforms.block(number, self._per_draw).reshape(BLOCK, self._per_draw)
            self._number, self._drawn = number, {}
        state, law = self._regimes.law(now)
        block = self._drawn.get(state)
        if block is None:
            draws = law.sample(columns(self._columns, 0, law.uniforms))
            block = self._drawn[state] = array("d", draws.tobytes())
        return block[offset]
