"""What one client of each sort does in a round, for what all clients do: operations, and sizes of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vflsim.codecs import Codec
from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.stages import Ints
from vflsim.tracing.acts import Acts, ClientWork, InTurn, ServerWork, bytes_of


class Probe:
    """The acts of one round on one batch, by the first client of each sort: ``made`` by place of the client.

    ``alike`` is the place of the first client of every client's sort.
    """

    def __init__(self, made: Mapping[int, Acts], alike: Sequence[int], codec: Codec) -> None:
        self.made, self.alike, self._codec = made, alike, codec
        *_, self.acts = made.values()

    def inner(self, number: int) -> Probe:
        """Return the acts that act ``number`` repeats for each client."""
        inner = {}
        for place, acts in self.made.items():
            act = acts[number]
            assert isinstance(act, InTurn)
            inner[place] = act.acts
        return Probe(inner, self.alike, self._codec)

    def operations(self, number: int) -> dict[int, Operation[Any]]:
        """Return the operations of act ``number`` by the place of the first client of a sort."""
        found = {}
        for place, acts in self.made.items():
            act = acts[number]
            assert isinstance(act, ClientWork | ServerWork)
            found[place] = act.operation
        return found

    def sizes(self, number: int, clients: Sequence[int]) -> Ints:
        """Return the bytes of the messages of act ``number`` (M,)."""
        sizes = {place: bytes_of(acts[number], self._codec, clients[place]) for place, acts in self.made.items()}
        return np.array([sizes[place] for place in self.alike])
