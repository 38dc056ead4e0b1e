"""BS-VFL: clients embed the next batches while they wait for the gradients of earlier ones (Wang et al., KDD 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from vflsim.learning.batches import Batch
from vflsim.protocols.base import ROUNDS, Protocol, Traits, replace
from vflsim.protocols.capabilities import ActsByHand
from vflsim.protocols.fedbcd import BlockServer, block_learners
from vflsim.protocols.in_flight import serve_in_flight, train_in_flight
from vflsim.recurrences import Activated, Acts, ClientWork, Recurrence, ServerWork, TimedWorld
from vflsim.recurrences.in_flight import InFlightRounds
from vflsim.setting import Learners, Setting
from vflsim.tracing.acts import embedding, trip
from vflsim.vocabulary.quantities import Count, Index
from vflsim.world.messages import Gradient
from vflsim.world.node import ClientNode, Node


class BsVfl(ActsByHand, Protocol):
    """Clients keep up to D batches in flight. On each gradient they take Q steps; so does the server on each batch.

    A client steps as soon as the gradient of its oldest batch is here, and embeds another batch otherwise, until more
    than D of them wait. If it has stepped since it embedded a batch, it embeds the batch anew for the step. With
    D = 0 this is ``fedbcd`` in parallel.

    Example: ``{kind: bs_vfl, window: 4, local_steps: 5, server_steps: 1}``
    """

    kind: Literal["bs_vfl"] = "bs_vfl"
    window: Index
    """D, the batches of a client that may wait for their gradients while it embeds the next one."""
    local_steps: Count = 1
    """Q, the steps of a client on each gradient, and of the server on each batch. Each is a computation."""
    server_steps: Count | None = None
    """The server's steps on each batch: ``local_steps`` unless given."""
    traits: ClassVar[Traits] = replace(ROUNDS, rounds_correspond=False, party_dropout=True)

    async def server(self, node: Node[BlockServer]) -> None:
        """Batch by batch: wait for all embeddings; step and send the gradients; take the other steps."""
        await serve_in_flight(node, self.further_steps)

    async def client(self, node: ClientNode) -> None:
        """Embed, upload; step Q times on every gradient that is here, or that the window makes the client await."""
        await train_in_flight(node, self.window, self.local_steps)

    # --- facts that need no run --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Return D and the batch that the client awaits."""
        return 1 + self.window

    @property
    def further_steps(self) -> int:
        """The number of server steps on each batch without the first."""
        return (self.server_steps or self.local_steps) - 1

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server that can step repeatedly on the same embeddings."""
        return block_learners(setting, seed)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what the recurrence knows besides."""
        return frozenset({"activation", "energy", "pauses"})

    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return an embedding up, a gradient down, two kinds of steps along it, and the server's further steps."""
        embed, up = embedding(clients, client, batch)
        serve, learner = server.server_step([up]), clients[client]
        down = Gradient(value=serve.result.gradient_for(up), round=0)
        steps = ClientWork(learner.client_step(batch, down)), ClientWork(learner.step_again(batch, down))
        further = (ServerWork(server.local_step([up])),) * self.further_steps
        return Activated(), *trip(embed, up, serve, down), *steps, *further

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of batches in flight.

        It is by hand: how far a client embeds ahead depends on when gradients come, and a trace has no times.
        """
        return InFlightRounds(world, self.window, self.local_steps)

    def describe(self, setting: Setting) -> str:
        """Say how many batches clients may have in flight."""
        return f"each client embeds up to {self.window} batches ahead of the gradients that it has stepped on"
