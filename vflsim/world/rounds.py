"""The rounds of a run, in columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Lists:
    """Lists of client numbers, one after the other: no Python object is kept per list."""

    def __init__(self) -> None:
        self._values, self._ends = bytearray(), array("q", [0])

    def append(self, clients: Iterable[int]) -> None:
        """Add a list."""
        self._values += np.asarray(clients, np.int32).tobytes()
        self._ends.append(len(self._values) // 4)

    @property
    def values(self) -> NDArray[np.int32]:
        """All lists as one, a copy."""
        return np.frombuffer(bytes(self._values), np.int32)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each begins in ``values``, and where the last one ends."""
        return np.array(self._ends, np.int64)


class Rounds:
    """One row a server step: its number, ``start_s`` and ``end_s``, and clients: ``used``, ``missing``, ``fresh``."""

    def __init__(self) -> None:
        self.round, self.start_s, self.end_s = array("q"), array("d"), array("d")
        self.used, self.missing, self.fresh = Lists(), Lists(), Lists()

    def __len__(self) -> int:
        return len(self.round)

    def add(
        self, number: int, start: float, end: float,
        used: Iterable[int], missing: Iterable[int], fresh: Iterable[int],
    ) -> None:  # fmt: skip
        """Append a row."""
        self.round.append(number)
        self.start_s.append(start)
        self.end_s.append(end)
        self.used.append(used)
        self.missing.append(missing)
        self.fresh.append(fresh)

    def packed(self) -> bytes:
        """All rows as bytes: equal for equal rows."""
        kept = (self.used, self.missing, self.fresh)
        lists = (part.tobytes() for each in kept for part in (each.offsets, each.values))
        return b"".join([self.round.tobytes(), self.start_s.tobytes(), self.end_s.tobytes(), *lists])
