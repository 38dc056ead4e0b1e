"""VAFL Alg. 1: the server steps on every embedding as it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.own_pace import own_pace
from vflsim.protocols.capabilities import Analysable
from vflsim.protocols.own_pace import at_own_pace, numbers_at_own_pace, staleness_obstacles
from vflsim.protocols.table import TableProtocol
from vflsim.protocols.vectorisable import Vectorisable
from vflsim.recurrences import Obstacle, Recurrence, TimedWorld
from vflsim.setting import Setting
from vflsim.world.node import ClientNode, ServerNode


class Asynchronous(Analysable, Vectorisable, TableProtocol):
    """Each client trains at its own pace, against the latest embeddings received of the others.

    Examples: ``{kind: asynchronous}``, ``{kind: asynchronous, first_fill: upload, max_staleness: 20, bounds:
    row_age}``
    """

    kind: Literal["asynchronous"] = "asynchronous"
    vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind", "first_fill", "bounds"})

    async def server(self, node: ServerNode) -> None:
        """On each embedding: step, with the other clients' rows from the table; return the gradient."""
        await self.fill_table(node)
        while True:
            fresh = await node.gather("embedding", count=1)
            answers = await self.requery(node, fresh)
            step = await node.compute(node.learner.server_step(fresh, answers))
            await self.return_gradients(node, step, fresh)

    async def client(self, node: ClientNode) -> None:
        """Train at the client's own pace, and answer queries concurrently."""
        if self.max_staleness is not None:
            node.start(self.answer_queries(node))
        await self.upload_first_pass(node)
        await self.work_at_own_pace(node)

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of clients that work at their own pace; every arrival makes a server step."""
        cycles = Cycles(self, setting)
        self.refuse_queries()
        return own_pace(cycles, 1)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return that clients may wait for activations, and pause."""
        return frozenset({"activation", "energy", "pauses"})

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield a bound on staleness."""
        yield from staleness_obstacles(self.max_staleness)

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a round has."""
        return numbers_at_own_pace(1, clients)

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence in which every arrival makes a server step."""
        return at_own_pace(self, world, 1)
