"""Capabilities: groups of methods that only some protocols have. A protocol derives from them beside ``Protocol``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from vflsim.learning.batches import Batch
from vflsim.recurrences import Acts, Obstacle, Recurrence, TimedWorld
from vflsim.setting import Setting


class Vectorisable(ABC):
    """A protocol with a recurrence of its own. Rounds that wait for all clients need none: they are traced.

    Example::

        class Same(Vectorisable, Protocol):
            def recurrence(self, world: TimedWorld) -> Recurrence:
                return SynchronousRounds(world)
    """

    @abstractmethod
    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of the rounds. It knows the keys of the class that defines it, and no others."""

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


class Peering:
    """A protocol whose clients send each other messages, too: in a live run they connect to each other.

    What its parties must know of everybody's data before a run are ``public_facts``: numbers by name, told by each
    client to all others in a live run. They are in ``setting.public`` then, and leak nothing else.

    Example::

        class Neighbours(Peering, Protocol):
            kind: Literal["neighbours"] = "neighbours"
            facts_told: ClassVar[tuple[str, ...]] = ("largest",)

            def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
                return {"largest": float(setting.data.features[client - 1]["train"].abs().max())}
    """

    facts_told: ClassVar[tuple[str, ...]] = ()
    """The names of all public facts."""

    def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
        """Return the facts about the training data of ``client`` that all parties must know: finite numbers."""
        return {}

    def needs_one_process(self) -> str:
        """Say why it cannot run live with these keys, and which it can; empty if it can."""
        return ""
