"""The capability of protocols whose rounds follow from earlier rounds by arrays: the vectorised path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from vflsim.learning.batches import Batch
from vflsim.protocols.blinded import key_acts
from vflsim.recurrences import Acts, Obstacle, Recurrence, TimedWorld
from vflsim.recurrences.acts import split_acts


class Vectorisable(ABC):
    """A protocol whose rounds follow from earlier rounds by a recurrence over arrays.

    Example::

        class Same(Vectorisable, Protocol):
            vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind"})

            def recurrence(self, world: TimedWorld) -> Recurrence:
                return Synchronous().recurrence(world)
    """

    vectorised_keys: ClassVar[frozenset[str]]
    """The keys of the protocol that the recurrence understands."""

    @abstractmethod
    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of the rounds. Called only if ``vectorised_keys`` has all set keys."""

    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do in a round on ``batch``: by default plain split training.

        It makes operations and messages of the learners ``server`` and ``clients``, which are counted and never run.
        Without clients, ``client`` is the server.
        """
        return split_acts(server, clients, client, batch)

    def first_acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do before the first round: with blinding, they agree on keys."""
        return key_acts(server, clients, client) if server.held.blinded_sum is not None else ()

    def records(self, server: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows that the server records as the run begins, one for each table: by default none.

        ``server`` is its learner. Rows that a protocol records later need the event path.
        """
        return {}

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what the recurrence knows besides: of ``activation``, ``blinding``, ``energy``, ``pauses``, ``peers``.

        Those whose rounds wait for all clients know all but the last, where ``acts`` has an ``Activated``
        (``BARRIERS``). ``pauses`` are outages in which work is resumed; ``energy``: chunks tell the parties' ``spans``;
        ``peers``: its clients send each other messages.
        """
        return frozenset()

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a round of so many clients has, by which rounds are computed together."""
        return clients

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield values of the protocol's keys for which the recurrence does not hold."""
        yield from ()
