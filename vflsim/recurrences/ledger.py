"""Counts of client steps, and of message bytes, up to ascending times."""

from __future__ import annotations

from typing import Any

import numpy as np

from vflsim.recurrences.chunk import Bools, Moves
from vflsim.recurrences.stages import Ints
from vflsim.timing.delays.base import Floats

_COLUMNS = ("began", "ends", "sizes", "counted", "rates", "copies", "profiles")
_PIECES = 4
"""Most arrays of transfers that are looked through one by one."""


class Steps:
    """Counts client steps."""

    def __init__(self) -> None:
        self.total = 0
        self._waiting: list[Floats] = []

    def expect(self, times: Floats) -> None:
        """Add steps at ``times`` (any shape; inf: never)."""
        self._waiting.append(times)

    def until(self, now: float) -> int:
        """Count the steps up to and including ``now``, which may never decrease."""
        later = []
        for times in self._waiting:
            due = times <= now
            count = np.count_nonzero(due)
            self.total += int(count)
            if count < due.size:
                later.append(times[~due & (times < np.inf)])
        later = [times for times in later if times.size]
        self._waiting = [np.concatenate(later)] if len(later) > _PIECES else later
        return self.total

    def ending(self, now: float) -> int:
        """Count the uncounted steps that end at ``now``."""
        return sum(int(np.count_nonzero(times == now)) for times in self._waiting)

    def waiting(self) -> Floats:
        """Return the times of later steps (n,)."""
        return np.concatenate([np.empty(0), *(times[times < np.inf] for times in self._waiting)])


class Bytes:
    """Counts the bytes of delivered and aborted messages in one direction."""

    def __init__(self) -> None:
        self.total = 0
        self._waiting: list[Moves] = []

    def expect(self, moves: Moves) -> None:
        """Add transfers."""
        self._waiting.append(moves)

    def until(self, now: float) -> int:
        """Count the bytes of transfers that ended up to and including ``now``, which may never decrease."""
        later = []
        for moves in self._waiting:
            due = moves.ends <= now
            if due.all():
                self.total += int(moves.counted.sum())
            else:
                self.total += int(moves.counted[due].sum())
                later.append(chosen_of(moves, ~due & (moves.ends < np.inf)))
        later = [moves for moves in later if moves.ends.size]
        self._waiting = [_together(later)] if len(later) > _PIECES else later
        return self.total

    def ending(self, now: float) -> int:
        """Count the uncounted transfers that end at ``now``."""
        return sum(int(np.count_nonzero(moves.ends == now)) for moves in self._waiting)

    def cut(self, now: float) -> int:
        """Abort all transfers at ``now``; return the bytes transferred until then."""
        for moves in self._waiting:
            moving = (moves.began < now) & (moves.ends > now)
            cut = chosen_of(moves, moving)
            self.total += int((bytes_through(cut, now) * (1 if cut.copies is None else cut.copies)).sum())
        self._waiting = []
        return self.total


def bytes_through(moves: Moves, now: Floats | float) -> Ints:
    """Return the whole bytes that each transfer (of several at the same times: one) has moved until a later ``now``."""
    through = bytes_moved(moves.sizes, moves.began, moves.rates, now)
    if moves.profiles is not None:
        ends = np.broadcast_to(now, through.shape)
        for place in np.flatnonzero(moves.profiles != None).tolist():  # noqa: E711  # element by element
            bits = moves.profiles[place].amount(float(moves.began[place]), float(ends[place]))
            through[place] = int(min(int(moves.sizes[place]), bits / 8))
    return through


def bytes_moved(sizes: Ints, began: Floats, rates: Floats, now: Floats | float) -> Ints:
    """Return the whole bytes of ``sizes`` that have moved until a later ``now``, at ``rates`` in bit/s."""
    moved: Ints = np.minimum(sizes, (now - began) * rates / 8).astype(np.int64)
    return moved


def rows_of(moves: Moves, start: int, stop: int) -> Moves:
    """Select the transfers of rounds ``start`` up to ``stop``."""
    return chosen_of(moves, slice(start, stop))


def chosen_of(moves: Moves, chosen: Bools | slice) -> Moves:
    """Select transfers by rounds; by marks, as flat arrays."""
    shape = moves.ends.shape

    def some(each: Any) -> Any:
        return None if each is None else (each if each.shape == shape else np.broadcast_to(each, shape))[chosen]

    columns: dict[str, Any] = {name: some(getattr(moves, name)) for name in _COLUMNS}
    return Moves(moves.direction, **columns)


def _together(pieces: list[Moves]) -> Moves:
    """Join flat arrays of transfers of one direction."""
    columns = [name for name in _COLUMNS if any(getattr(piece, name) is not None for piece in pieces)]

    def column(piece: Moves, name: str) -> Any:
        values = getattr(piece, name)
        return np.full(piece.ends.shape, None, object) if values is None else values

    joined: dict[str, Any] = {name: np.concatenate([column(piece, name) for piece in pieces]) for name in columns}
    return Moves(pieces[0].direction, **joined)
