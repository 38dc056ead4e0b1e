"""VAFL Alg. 1: the server steps on every embedding as it arrives."""

from __future__ import annotations

from typing import Literal

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.own_pace import own_pace
from vflsim.protocols.capabilities import Analysable
from vflsim.protocols.table import TableProtocol
from vflsim.setting import Setting
from vflsim.world.node import ClientNode, ServerNode


class Asynchronous(Analysable, TableProtocol):
    """Each client trains at its own pace, against the latest embeddings received of the others.

    Examples: ``{kind: asynchronous}``, ``{kind: asynchronous, first_fill: upload, max_staleness: 20, bounds:
    row_age}``
    """

    kind: Literal["asynchronous"] = "asynchronous"

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
