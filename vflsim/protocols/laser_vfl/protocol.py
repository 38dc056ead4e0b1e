"""LASER-VFL: late and missing embeddings are masked, in training and in inference (Valdeira et al., ICLR 2025)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.rounds import ignoring
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits, replace
from vflsim.protocols.capabilities import Vectorisable
from vflsim.protocols.ignore import in_time, take_part
from vflsim.protocols.laser_vfl.learning import SubsetServer
from vflsim.recurrences import WITH_EVENTS, Recurrence, TimedWorld, lockstep
from vflsim.recurrences.racing import Dropping
from vflsim.setting import Learners, Setting, split_clients
from vflsim.vocabulary.quantities import Count, PositiveSeconds
from vflsim.world.messages import Gradient
from vflsim.world.node import ClientNode, Node


class LaserVfl(Vectorisable, Protocol):
    """Rounds in which every party has a head on the mean of any set of embeddings with its own.

    A step uses the observed embeddings: of clients that have the row, and that are in time where ``fastest`` or
    ``deadline`` is given. All heads are at the server, where the labels are; ``models.server`` is one of them. The
    paper's parties hold theirs, and the labels, themselves.

    Examples: ``{kind: laser_vfl, deadline: 2 s}``, ``{kind: laser_vfl, fastest: 3}``
    """

    kind: Literal["laser_vfl"] = "laser_vfl"
    fastest: Count | None = None
    """Each round uses the first embeddings, this many."""
    deadline: PositiveSeconds | None = None
    """Each round uses the embeddings that arrive within this time (at least one)."""
    traits: ClassVar[Traits] = replace(ROUNDS, waits_for_all=False, party_scores=True)

    async def server(self, node: Node[SubsetServer]) -> None:
        """Collect the observed embeddings; step all heads of their parties; send all clients the end of the round."""
        for k in node.rounds():
            embeddings = await in_time(node, k, self.fastest, self.deadline)
            step = await node.compute(node.learner.server_step(embeddings))
            used = {embedding.sender: step.gradient_for(embedding) for embedding in embeddings}
            late = [client for client in node.clients if client not in used]
            for client in [*used, *late]:
                await node.send(client, Gradient(value=used.get(client), round=k))

    async def client(self, node: ClientNode) -> None:
        """Embed, upload, step if the round used it; then join the current round."""
        await take_part(node)

    # --- facts that need no run --------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another aggregate than the mean, and for more clients than there are."""
        super().check(context)
        if context.aggregate != "mean":
            raise ValueError(
                f"heads predict from the mean of embeddings, not their {context.aggregate}; "
                "allowed: models.aggregate: mean"
            )
        if self.fastest is not None and self.fastest > context.clients:
            raise ValueError(f"fastest: {self.fastest} of {context.clients} clients; allowed: 1 to {context.clients}")

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if self.fastest is not None and self.deadline is not None:
            raise ValueError("laser_vfl takes fastest or deadline, not both")
        return self

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server with a head for every party."""
        return Learners(SubsetServer(setting, seed), split_clients(setting, seed))

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of synchronous rounds. Raises ``Unanalysable`` if rounds may leave a client out."""
        return ignoring(Cycles(self, setting), self.fastest, self.deadline)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what rounds know that wait for all clients."""
        return WITH_EVENTS if self.fastest is None and self.deadline is None else frozenset()

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of rounds that wait for all clients, or that end without late ones."""
        if self.fastest is None and self.deadline is None:
            return lockstep(world)
        return Dropping(world, self.fastest, self.deadline)
