"""What one client of each sort does in a round, for what all clients do: operations, and sizes of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vflsim.codecs import Codec
from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.stages import Ints
from vflsim.streams import SERVER, SHARED
from vflsim.tracing.acts import Act, Acts, ClientWork, InTurn, ServerWork, ToClients, ToPeers, ToServer
from vflsim.world.messages import Message
from vflsim.world.wire import specs_of


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
        sizes = {place: self._size(acts[number], clients[place]) for place, acts in self.made.items()}
        return np.array([sizes[place] for place in self.alike])

    def _size(self, act: Act, client: int) -> int:
        assert isinstance(act, ToServer | ToClients | ToPeers)
        message, there = act.message, specs_of(act.message)
        up = self._codec.towards(SERVER)
        codec = up if isinstance(act, ToServer) else self._codec.towards(client)
        names = act.passed_on if isinstance(act, ToClients) else ()
        passed_on = {name: up for name in names if name in there}
        return codec.size_of(there, _ids(message), passed_on) if passed_on else codec.size_of(there, _ids(message))


def _ids(message: Message) -> int:
    """Return the number of sample ids in a message: those of a batch of its sender's own."""
    return 0 if message.batch is None or message.batch.origin == SHARED else len(message.batch.ids)
