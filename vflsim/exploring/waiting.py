"""The clients that server steps wait for, from the rounds of a timing-only run by arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vflsim.recurrences.chunk import Bools, Chunk, Moves
from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats

NOBODY = 0
"""Stands for steps that wait for no client: all messages were there before, or a deadline began them."""


@dataclass(eq=False)
class UploadArrivals:
    """Collects when messages reached the server, and when its steps began, chunk by chunk.

    A step waited for a client if a message of that client, which it used, arrived in the instant in which the server's
    wait ended: the same question that :mod:`vflsim.plotting.step_waits` asks of events.
    """

    clients: tuple[int, ...]
    _arrived: list[Floats] = field(default_factory=list)
    _sender: list[Ints] = field(default_factory=list)
    _waited: list[Floats] = field(default_factory=list)
    _used: list[Bools] = field(default_factory=list)

    def take(self, chunk: Chunk, count: int) -> None:
        """Add the first ``count`` rounds of a chunk. Chunks come in order."""
        for moves in chunk.before:
            self._add(moves, len(moves.ends))
        for moves in (*chunk.during, *chunk.after):
            self._add(moves, count)
        self._waited.append(np.asarray(chunk.waited[:count], np.float64))
        everybody = np.ones((count, len(self.clients)), np.bool_)
        self._used.append(everybody if chunk.used is None else chunk.used[:count])

    def shares(self) -> Mapping[int, float]:
        """Return the share of steps that waited for each client, and for ``NOBODY``; 1 together.

        Clients whose messages arrive together share the step. Empty without a round.
        """
        if not sum(map(len, self._waited)):
            return {}
        waited, used = np.concatenate(self._waited), np.concatenate(self._used)
        arrived, sender = np.concatenate([np.empty(0), *self._arrived]), np.concatenate([[], *self._sender])
        order = np.argsort(arrived, kind="stable")
        arrived, sender = arrived[order], sender[order].astype(np.int64)
        first = np.searchsorted(arrived, waited, side="left")
        many = np.searchsorted(arrived, waited, side="right") - first
        step = np.repeat(np.arange(len(waited)), many)
        place = sender[np.arange(len(step)) - np.repeat(np.cumsum(many) - many, many) + first[step]]
        pairs = np.unique(np.stack([step, place], 1)[used[step, place]], axis=0)
        each = np.bincount(pairs[:, 0], minlength=len(waited))
        weights = np.bincount(pairs[:, 1], 1 / each[pairs[:, 0]], minlength=len(self.clients)) / len(waited)
        nobody = float(np.count_nonzero(each == 0) / len(waited))
        return {NOBODY: nobody, **dict(zip(self.clients, weights.tolist(), strict=True))}

    def _add(self, moves: Moves, count: int) -> None:
        if moves.direction == "up":
            ends = np.asarray(moves.ends[:count])
            places = np.arange(ends.shape[1]) if moves.places is None else moves.places[:count]
            there = np.isfinite(ends)
            self._arrived.append(ends[there])
            self._sender.append(np.broadcast_to(places, ends.shape)[there])
