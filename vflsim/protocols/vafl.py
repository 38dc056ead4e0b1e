"""VAFL: a server with a table that steps on every embedding as it arrives (Alg. 1), or when t have arrived (Alg. 2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Literal

from vflsim.analysis.afresh import starting_afresh
from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.lockstep import law_of_rounds
from vflsim.analysis.own_pace import own_pace
from vflsim.analysis.stages import Unanalysable
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.server import ServerStep
from vflsim.protocols.base import TABLE, CheckContext, Protocol, Traits
from vflsim.protocols.capabilities import Vectorisable
from vflsim.protocols.in_flight import answered
from vflsim.recurrences import Obstacle, Recurrence, SynchronousRounds, TimedWorld
from vflsim.recurrences.ages import BatchRows
from vflsim.recurrences.own_pace import OfStep, OwnPace
from vflsim.recurrences.shared_pace import SharedPace
from vflsim.recurrences.sources import unit_seconds
from vflsim.setting import Learners, Setting
from vflsim.streams import SERVER
from vflsim.timing.compute import ComputeModel
from vflsim.tracing.acts import embedding
from vflsim.tracing.exchanges import Content, Contents, ids_of, single
from vflsim.vocabulary.quantities import Count, Index
from vflsim.world.messages import Answer, Embedding, FirstFill, Gradient, Message, Query
from vflsim.world.node import ClientNode, ServerNode


class TableProtocol(Protocol):
    """A server that keeps the latest row per (sample, client) and never waits for all clients.

    ``first_fill``: rows never received are ``zeros``, or come from an ``upload`` of every training row before training
    starts, whose time and bytes count. ``max_staleness``: rows about to be used that are older (in server steps) are
    re-queried at once (VAFL Sec. 2.3); ``bounds`` is the age that this limits.
    """

    first_fill: Literal["zeros", "upload"] = "zeros"
    """What stands for rows never received: ``zeros``, or an ``upload`` of every training row before training starts."""
    max_staleness: Index | None = None
    """Rows about to be used that are older than so many server steps are queried again at once."""
    bounds: Literal["client_age", "row_age"] = "client_age"
    """The age that ``max_staleness`` limits: a client's latest embedding's, or each row's."""
    traits: ClassVar[Traits] = TABLE

    def facts(self) -> Mapping[str, Any]:
        """Describe the bound on staleness, and the age that it limits."""
        return (
            {} if self.max_staleness is None else {"max_staleness": self.max_staleness, "staleness_bounds": self.bounds}
        )

    def refuse_queries(self) -> None:
        """Raise ``Unanalysable`` if the server queries clients for fresh rows."""
        if self.max_staleness is not None:
            raise Unanalysable("rows that are too old are queried again: a round depends on the ones before")

    def rare_contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return queries, and answers."""
        ids = ids_of(setting, rows)
        if self.max_staleness is None:
            return {}
        if receiver != SERVER:
            return {Query.kind: [Content(ids=ids)]}
        return {Answer.kind: [single((rows, setting.models[sender - 1].embedding), setting.uploaded, ids)]}

    async def fill_table(self, node: ServerNode) -> None:
        """Server: with ``first_fill: upload``, wait for every client's first pass."""
        if self.first_fill == "upload":
            first = await node.gather("first_fill", senders=node.clients)
            await node.free().compute(node.learner.fill(first))
            node.arrived("first_fill")  # a client that crashed and came back may have sent it twice

    async def upload_first_pass(self, node: ClientNode) -> None:
        """Client: with ``first_fill: upload``, embed and upload every training row, unless training has started."""
        if self.first_fill == "upload" and node.current_round == 0:
            h = await node.compute(node.learner.embed_split("train", "first_fill"))
            await node.upload("server", FirstFill(value=h))

    async def requery(self, node: ServerNode, fresh: list[Message]) -> list[Message]:
        """Server: query fresh embeddings of the rows about to be used that are older than ``max_staleness``."""
        stale = node.learner.too_old(fresh, self.max_staleness, self.bounds)
        asked = [answered(node, client, Query(batch, round=n)) for n, (client, batch) in enumerate(stale)]
        return sorted(await node.together(*asked), key=attrgetter("arrived", "sender"))

    async def answer_queries(self, node: ClientNode) -> None:
        """Client: answer every query at once, concurrently with its other work."""
        while True:
            query = await node.recv("query")
            assert query.batch is not None, "a query names its batch"
            h = await node.compute(node.learner.answer(query.batch))
            await node.upload("server", Answer(query.batch, h, round=query.round))

    async def work_at_own_pace(self, node: ClientNode) -> None:
        """Client: wait for activation, embed a batch, upload it, wait for the gradient, step (VAFL Alg.

        1, lines 3–7).
        """
        while True:
            await node.activated()
            batch = node.next_batch()
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=batch.index))
            gradient = await node.recv("gradient", round=batch.index)
            await node.compute(node.learner.client_step(batch, gradient))

    async def return_gradients(self, node: ServerNode, step: ServerStep, fresh: list[Message]) -> None:
        """Server: send each client the gradient of its own batch."""
        for message in fresh:
            await node.send(message.sender, Gradient(value=step.gradient_for(message), round=message.round))


class OwnPaceProtocol(Vectorisable, TableProtocol):
    """A server that steps on the first ``arrivals`` embeddings, of clients that go on at their own pace."""

    @property
    @abstractmethod
    def arrivals(self) -> int:
        """How many embeddings make a step."""

    async def client(self, node: ClientNode) -> None:
        """Train at the client's own pace, and answer queries concurrently."""
        if self.max_staleness is not None:
            node.start(self.answer_queries(node))
        await self.upload_first_pass(node)
        await self.work_at_own_pace(node)

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of clients at their own pace, of whom so many make a step."""
        cycles = Cycles(self, setting)
        self.refuse_queries()
        return own_pace(cycles, self.arrivals)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return that clients may wait for activations, or pause, and that their messages may share links."""
        return frozenset({"activation", "energy", "pauses", "sharing"})

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """Return that clients train at their own pace, if the table begins with zeros."""
        return "own pace" if self.first_fill == "zeros" else ""

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield a bound on staleness, if there is one."""
        if self.max_staleness is not None:
            what = (
                f"clients answer queries for rows older than {self.max_staleness} steps beside their own work, which "
                "shares the processor and the draws with it"
            )
            yield Obstacle("max_staleness", what, "none")

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a step has. Whom it uses is a bit for every client."""
        return max(self.arrivals, clients // 8)

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence in which so many arrivals make a step.

        It is by hand: a trace has no times, and whose embeddings of which batches make a step depends on them.
        """
        setting = world.setting
        rows, training = setting.data.rows, setting.training
        sequences = [world.sequence]
        if training.batches == "own":
            sequences = [BatchSequence(rows, training, world.seed, client) for client in world.clients.tolist()]
        modelled = isinstance(setting.timings[SERVER].compute, ComputeModel)
        seconds, flops = _costs(self, world)
        recurrence = OwnPace if world.shared_links is None else SharedPace
        return recurrence(world, self.arrivals, BatchRows(sequences), seconds if modelled else None, flops)


def _costs(protocol: Protocol, world: TimedWorld) -> tuple[OfStep, OfStep]:
    """Return the server's seconds per unit drawn, and its operations, for a step on embeddings of several batches."""
    first, compute = int(world.clients[0]), world.setting.timings[SERVER].compute

    @cache
    def learners() -> Learners[Any, Any]:
        return protocol.learners(world.setting, world.seed)

    def step(whole: int, ends: int) -> Operation[Any]:
        full, last = (world.sequence.batch(number).ids for number in (0, world.sequence.per_epoch - 1))
        batches = [Batch(number, ids) for number, ids in enumerate([full] * whole + [last] * ends)]
        messages = [embedding(learners().clients, first, batch)[1] for batch in batches]
        operation: Operation[Any] = learners().server.server_step(messages)
        return operation

    return lambda whole, ends: unit_seconds(compute, step(whole, ends)), lambda whole, ends: step(whole, ends).flops()


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
        return (law_of_rounds(cycles),) if self.t == len(setting.clients) else starting_afresh(cycles, self.t)

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
        """Return the recurrence in which t arrivals make a step, or all clients restart with each step.

        Of the latter a trace tells t, but not that late work is abandoned, or that a table has the others' rows.
        """
        return SynchronousRounds(world, "abandoned", table=True) if self.cancel else super().recurrence(world)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if there are fewer than t clients, or if ``cancel`` has no common batch."""
        super().check(context)
        if self.t > context.clients:
            raise ValueError(f"t: {self.t} embeddings of {context.clients} clients; allowed: 1 to {context.clients}")
        if self.cancel and context.batches == "own":
            raise ValueError("cancel: true starts all clients on the same batch; allowed: training.batches: shared")
