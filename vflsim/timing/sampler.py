"""Turns uniforms into delays. No other module does so, so that a draw always has the same bits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vflsim.streams import BLOCK, Uniforms, as_uniforms
from vflsim.timing.base import Delay, Regimes, columns
from vflsim.timing.basic import Constant
from vflsim.timing.floats import Floats
from vflsim.timing.philox import words_of

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
        own = self._delay
        plain = own.uniforms == 1 and self._in_time is None and not isinstance(own, Constant)
        return plain and own is other._delay and other._in_time is None

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
        drawn = self._drawn.get(state)
        if drawn is None:
            draws = law.sample(columns(self._columns, 0, law.uniforms))
            drawn = self._drawn[state] = array("d", draws.tobytes())
        return drawn[offset]
