"""VAFL: the server steps on every embedding as it arrives (Alg. 1), or when t have arrived (Alg. 2)."""

from __future__ import annotations

from typing import Literal

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.rounds import starting_afresh, synchronous
from vflsim.protocols.base import CheckContext
from vflsim.protocols.own_pace import OwnPaceProtocol
from vflsim.recurrences import Recurrence, TimedWorld
from vflsim.recurrences.racing import FirstOfAll
from vflsim.setting import Setting
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Embedding, Gradient
from vflsim.world.node import ClientNode, ServerNode


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


class TSynchronous(OwnPaceProtocol):
    """The server steps on the first t embeddings, and takes those of the other clients from its table.

    Late embeddings count for a later step; with ``cancel`` they are abandoned instead, and all clients start afresh,
    on the same batch, with every step.

    Examples: ``{kind: t_synchronous, t: N/2, cancel: true}``, ``{kind: t_synchronous, t: 3, first_fill: upload,
    max_staleness: 20, bounds: row_age}``
    """

    kind: Literal["t_synchronous"] = "t_synchronous"
    t: Count
    """How many embeddings make a step."""
    cancel: bool = False
    """Whether a step abandons all unfinished work, so that all clients start afresh."""

    async def server(self, node: ServerNode) -> None:
        """After t embeddings, take one step on one loss per distinct batch among them; return the gradients."""
        await self.fill_table(node)
        for k in node.rounds():
            current = k if self.cancel else None
            fresh = await node.gather("embedding", count=self.t, senders=node.clients, round=current)
            answers = await self.requery(node, fresh)
            step = await node.compute(node.learner.server_step(fresh, answers))
            await self.return_gradients(node, step, fresh)
            if self.cancel:
                used = {message.sender for message in fresh}
                for client in node.clients:
                    if client not in used:
                        await node.send(client, Gradient(round=k))

    @property
    def arrivals(self) -> int:
        """Return t."""
        return self.t

    async def client(self, node: ClientNode) -> None:
        """Train at the client's own pace, or restart at the server's broadcast; answer queries concurrently."""
        if self.max_staleness is not None:
            node.start(self.answer_queries(node))
        await self.upload_first_pass(node)
        await (self.start_afresh_each_step(node) if self.cancel else self.work_at_own_pace(node))

    async def start_afresh_each_step(self, node: ClientNode) -> None:
        """Client, with ``cancel``: train until the step's broadcast abandons unfinished work."""
        for k in node.rounds():
            batch = node.batch(k)
            async with node.until("gradient", round=k):
                await node.activated()
                h = await node.compute(node.learner.embed(batch))
                await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of the t-th of the clients' cycles with ``cancel``, else of clients at their own pace."""
        if not self.cancel and self.t < len(setting.clients):
            return super().closed_forms(setting)
        cycles = Cycles(self, setting)
        self.refuse_queries()
        return synchronous(cycles) if self.t == len(setting.clients) else starting_afresh(cycles, self.t)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return that clients at their own pace may wait for activations, and pause."""
        return frozenset() if self.cancel else super().vectorised_with

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """Return that clients train at their own pace, unless steps abandon their work."""
        return "" if self.cancel else super().trains

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a round has."""
        return clients if self.cancel else super().numbers_a_round(clients)

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence in which t arrivals make a step, or all clients restart with each step."""
        return FirstOfAll(world, self.t) if self.cancel else super().recurrence(world)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if there are fewer than t clients, or if ``cancel`` has no common batch."""
        super().check(context)
        if self.t > context.clients:
            raise ValueError(f"t: {self.t} embeddings of {context.clients} clients; allowed: 1 to {context.clients}")
        if self.cancel and context.batches == "own":
            raise ValueError("cancel: true starts all clients on the same batch; allowed: training.batches: shared")
