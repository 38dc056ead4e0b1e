"""The capability of protocols whose rounds follow from earlier rounds by arrays of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from vflsim.learning.batches import Batch
from vflsim.recurrences import Acts, Obstacle, Recurrence, TimedWorld


class Vectorisable(ABC):
    """A protocol with a recurrence of its own. Rounds that wait for all clients need none: they are traced.

    Example::

        class Same(Vectorisable, Protocol):
            vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind"})

            def recurrence(self, world: TimedWorld) -> Recurrence:
                return lockstep(world)
    """

    vectorised_keys: ClassVar[frozenset[str]]
    """The keys of the protocol that the recurrence understands."""

    @abstractmethod
    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of the rounds. Called only if ``vectorised_keys`` has all set keys."""

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what the recurrence knows besides: of ``activation``, ``blinding``, ``energy``, ``pauses``, ``peers``.

        Those whose rounds wait for all clients know all but the last (``BARRIERS``). ``pauses`` are outages in which
        work is resumed; ``energy``: chunks tell the parties' ``spans``; ``peers``: clients send each other messages.
        """
        return frozenset()

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """How a program trains plain learners along the rounds: all clients on one batch, or each on batches of its own
        with a table at the server; empty if there is none."""
        return ""

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a round of so many clients has, by which rounds are computed together."""
        return clients

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield values of the protocol's keys for which the recurrence does not hold."""
        yield from ()


class ActsByHand(Vectorisable):
    """A protocol whose clients' work depends on times, so that a trace does not show all that they may do.

    Example::

        class Pipelined(ActsByHand, Protocol):
            vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind"})

            def recurrence(self, world: TimedWorld) -> Recurrence:
                return InFlightRounds(world, window=2, steps=1)

            def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
                embed = clients[client].embed(batch)
                up = Embedding(batch, embed.result, round=0)
                up.sender = client
                serve = server.server_step([up])
                down = Gradient(value=serve.result.gradient_for(up), round=0)
                step = clients[client].client_step(batch, down), clients[client].step_again(batch, down)
                trip = ClientWork(embed), ToServer(up), ServerWaits(), ServerWork(serve), ToClients(down)
                return *trip, *map(ClientWork, step)
    """

    @abstractmethod
    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do in a round on ``batch``.

        It makes operations and messages of the learners ``server`` and ``clients``, which are counted and never run.
        """

    def first_acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do before the first round: by default nothing."""
        return ()

    def records(self, server: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows that the server records as the run begins, one for each table: by default none.

        ``server`` is its learner. Rows that a protocol records later need the event path.
        """
        return {}
