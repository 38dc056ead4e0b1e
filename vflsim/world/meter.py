"""The energy of a run that goes on: its spans, noted as they begin and end, and settled many at a time."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from vflsim.books.energy import Energy
from vflsim.books.spans import Bounds
from vflsim.timing.party import Power

_ROW = np.dtype([("time", "f8"), ("amount", "i8"), ("party", "i4"), ("slot", "i4"), ("state", "i1"), ("sign", "i1")])
_PACK = struct.Struct("=dqiibb").pack
_FULL = _ROW.itemsize * 2**14
"""Bytes of rows that are kept before they are settled."""


class Meter:
    """Notes the spans of parties that have a ``Power`` as these begin and end, and gives the energy until then."""

    def __init__(self, powers: Mapping[int, Power]) -> None:
        self._powers, self._energy = powers, Energy(powers)
        self._rows, self._ends = bytearray(), array("d")
        self.rounds = array("d")
        """The energy of all parties until the end of each round (J), of those that have been settled."""

    def counts_flops(self, party: int) -> bool:
        """Whether the operations of a party have an energy."""
        return party in self._powers and self._powers[party].per_flop > 0

    def begin(self, state: int, now: float, *parties: int) -> None:
        """Note that spans of these parties begin."""
        for party in parties:
            if party in self._powers:
                self._rows += _PACK(now, 0, party, len(self._ends), state, 1)

    def end(self, state: int, now: float, *parties: int, amount: int = 0) -> None:
        """Note that spans of these parties end, after ``amount`` bytes or operations."""
        for party in parties:
            if party in self._powers:
                self._rows += _PACK(now, amount, party, len(self._ends), state, -1)
        if len(self._rows) > _FULL:
            self.settle()

    def end_round(self, now: float) -> None:
        """Note that a round ends: ``rounds`` will have the energy until then, of what has been noted so far."""
        self._ends.append(now)

    def settle(self, *moments: float) -> list[float]:
        """Add up what has been noted; return the energy until ``moments``, which are no earlier."""
        rows, rounds = np.frombuffer(self._rows, _ROW), len(self._ends)
        bounds = Bounds(*(rows[name] for name in ("time", "sign", "state", "party", "amount", "slot")))
        found = self._energy.take(bounds, [*self._ends, *moments])
        self.rounds.extend(found[:rounds])
        self._rows, self._ends = bytearray(), array("d")
        return found[rounds:]

    def by_party(self, now: float) -> dict[str, list[Any]]:
        """Return the columns of the table of energy by party and state until ``now``, when all has ended."""
        self.settle()
        return self._energy.by_party(now)
