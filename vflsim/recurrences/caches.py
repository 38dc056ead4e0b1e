"""Caches of exchanges of many parties at once: ``protocols.message_cache``, without the messages."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.chunk import Bools
from vflsim.recurrences.stages import Ints

_NEVER = np.iinfo(np.int64).max


class Caches:
    """The latest ``size`` (W) exchanges of each party (M), each for at most ``uses`` (R) steps, the first included.

    An exchange may be used again when W - 1 other steps have been taken since, the one longest unused first. One older
    than W R exchanges is dropped.
    """

    def __init__(self, size: int, uses: int, parties: int) -> None:
        self._size, self._uses = size, uses
        self._exchange = np.full((size, parties), -1)  # -1: nothing
        self._used_at, self._used = np.zeros((size, parties), np.int64), np.zeros((size, parties), np.int64)
        self._steps = np.zeros(parties, np.int64)
        self._columns = np.arange(parties)

    def put(self, exchange: int) -> None:
        """Add what all parties have exchanged, of which each has taken a step just now; drop the old and the oldest."""
        self._exchange[self._exchange < exchange - self._size * self._uses] = -1
        if self._uses > 1:
            places = self._exchange.argmin(axis=0), self._columns
            self._exchange[places], self._used_at[places], self._used[places] = exchange, self._steps, 1
        self._steps += 1

    @property
    def ready(self) -> Bools:
        """Which parties have an exchange that may be used (M,)."""
        ready: Bools = np.logical_or.reduce(self._free)
        return ready

    @property
    def _free(self) -> Bools:
        free: Bools = (self._exchange >= 0) & (self._steps - self._used_at >= self._size)
        return free

    def take(self, whose: Bools) -> Ints:
        """Return the exchange that each party uses (M,), and count the uses by the parties that ``whose`` selects.

        The number means nothing for a party without a ready exchange.
        """
        chosen = np.where(self._free, self._used_at, _NEVER).argmin(axis=0)
        found: Ints = np.maximum(self._exchange[chosen, self._columns], 0)
        places = chosen[whose], self._columns[whose]
        self._used_at[places] = self._steps[whose]
        self._used[places] += 1
        self._steps[whose] += 1
        self._exchange[places] = np.where(self._used[places] == self._uses, -1, self._exchange[places])
        return found
