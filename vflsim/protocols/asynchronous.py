"""VAFL Alg. 1: the server steps on every embedding as it arrives."""

from __future__ import annotations

from typing import Literal

from vflsim.protocols.own_pace import OwnPaceProtocol
from vflsim.world.node import ServerNode


class Asynchronous(OwnPaceProtocol):
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

    @property
    def arrivals(self) -> int:
        """Return 1: every arrival makes a server step."""
        return 1
