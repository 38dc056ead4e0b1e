"""The random times of one kind of activity, for all clients at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vflsim.streams import BLOCK
from vflsim.timing.floats import Floats
from vflsim.timing.sampler import Sampler, blocks_of_alike, draws_of_alike

Ints = NDArray[np.int64]
WIDE = 2**16
"""Clients above which a block of draws is large: rounds come in parts of a block, and windows of draws are short."""
_TOGETHER = 32
"""The number of clients whose draws are transposed together, so that their rows fit into a cache."""
_MANY = 2**13
"""The number of clients of whom a few draws are made together; whole blocks."""


class Source(Protocol):
    """The draws of one client: ``timing.sampler.Sampler``, or the latencies of one pair of parties."""

    def blocks(self, first: int, count: int) -> Floats:
        """Return draws ``first * BLOCK`` up to ``(first + count) * BLOCK``."""


class Stage:
    """Draws by round, one column per client: ``constants`` (M,) seconds, NaN where ``sources`` (None elsewhere) draw.

    Draws by index come from a moving window of ``window`` draws per client (a multiple of BLOCK): fewer if there are
    many clients.
    """

    def __init__(self, constants: Floats, sources: Sequence[Source | None], window: int | None = None) -> None:
        self.random = np.isnan(constants)
        self._constants = constants
        self._sources = {column: source for column, source in enumerate(sources) if source is not None}
        self._length = window or (4 * BLOCK if len(constants) <= WIDE else BLOCK)
        self._block: tuple[int, Floats] | None = None
        self._window: Floats | None = None
        self._base = np.zeros(len(constants), np.int64)
        self._columns = np.arange(len(constants))

    def without(self, columns: Sequence[int]) -> Stage:
        """Return a stage that never draws in ``columns``, and has -inf there."""
        constants, sources = self._constants.copy(), dict(self._sources)
        for column in columns:
            constants[column] = -np.inf
            sources.pop(column, None)
        return Stage(constants, [sources.get(column) for column in range(len(constants))], self._length)

    def only(self, columns: Sequence[int]) -> Stage:
        """Return the stage of these ``columns``."""
        return Stage(self._constants[columns], [self._sources.get(column) for column in columns], self._length)

    def source(self, column: int) -> tuple[float, Source | None]:
        """Return what one client always takes, or (NaN) where its draws come from."""
        return float(self._constants[column]), self._sources.get(column)

    @property
    def nothing(self) -> bool:
        """Whether no client ever takes any time."""
        return not self._constants.any()  # NaN counts as some

    @property
    def taking(self) -> NDArray[np.bool_]:
        """Mark the clients that may take some time."""
        return self.random | (self._constants > 0)

    @property
    def varies(self) -> bool:
        """Whether any client's time is random."""
        return bool(self._sources)

    def rows(self, first: int, count: int) -> Floats:
        """Return draws ``first`` up to ``first + count`` of every client (count, M); cheapest for whole blocks."""
        if not self._sources:
            return np.broadcast_to(self._constants, (count, len(self._constants)))
        if len(self._constants) > WIDE and count < BLOCK and self._alike:
            return self._few(first, count)
        number, start = divmod(first, BLOCK)
        if start or count % BLOCK:
            known = self._block if self._block is not None and self._block[0] == number else None
            self._block = None  # frees its memory first
            parts = [] if known is None else [known[1]]
            after, last = number + len(parts), -(-(first + count) // BLOCK)
            if last > after:
                parts.append(self.rows(after * BLOCK, (last - after) * BLOCK))
            drawn = np.concatenate(parts) if len(parts) > 1 else parts[0]
            self._block = last - 1, drawn[-BLOCK:]
            return drawn[start : start + count]
        rows = np.empty((count, len(self._constants)))
        rows[:] = self._constants
        self._fill(rows, list(self._sources), [first // BLOCK] * len(self._sources))
        return rows

    def take(self, index: Ints) -> Floats:
        """Return draw ``index[c]`` of every client c (M,); no client's index may ever decrease."""
        if not self._sources:
            return self._constants
        if self._window is None:
            self._window = np.tile(self._constants, (self._length, 1))
            self._base[list(self._sources)] = -self._length
        place = index - self._base
        if place.max() >= self._length:
            behind = np.flatnonzero(place >= self._length)
            self._base[behind] = index[behind] // BLOCK * BLOCK
            drawn = [column for column in behind.tolist() if column in self._sources]
            self._fill(self._window, drawn, (self._base[drawn] // BLOCK).tolist())
            place = index - self._base
        return self._window.ravel().take(place * len(self._constants) + self._columns)

    @cached_property
    def _alike(self) -> bool:
        """Whether all clients that draw turn uniforms into times in the same way."""
        samplers = [source for source in self._sources.values() if isinstance(source, Sampler)]
        return len(samplers) == len(self._sources) and all(map(samplers[0].alike, samplers))

    def _few(self, first: int, count: int) -> Floats:
        """Return draws of every client (count, M): no more of very many clients' blocks than these."""
        rows = np.empty((count, len(self._constants)))
        rows[:] = self._constants
        columns = list(self._sources)
        for start in range(0, len(columns), _MANY):
            some = columns[start : start + _MANY]
            samplers = [source for source in map(self._sources.__getitem__, some) if isinstance(source, Sampler)]
            drawn = draws_of_alike(samplers, first, count).T
            if some[-1] - some[0] == len(some) - 1:
                rows[:, some[0] : some[-1] + 1] = drawn
            else:
                rows[:, some] = drawn
        return rows

    def _fill(self, rows: Floats, columns: list[int], firsts: list[int]) -> None:
        count = len(rows) // BLOCK
        buffer = np.empty((_TOGETHER, len(rows)))
        for start in range(0, len(columns), _TOGETHER):
            some = columns[start : start + _TOGETHER]
            sources, numbers = [self._sources[column] for column in some], firsts[start : start + _TOGETHER]
            samplers = [source for source in sources if isinstance(source, Sampler)]
            if len(samplers) == len(some) and all(map(samplers[0].alike, samplers)):
                buffer[: len(some)] = blocks_of_alike(samplers, numbers, count)
            else:
                for row, source, first in zip(buffer, sources, numbers, strict=False):
                    row[:] = source.blocks(first, count)
            if some[-1] - some[0] == len(some) - 1:
                rows[:, some[0] : some[-1] + 1] = buffer[: len(some)].T
            else:
                rows[:, some] = buffer[: len(some)].T
