"""Protocols with a table whose clients work at their own pace: their laws, and their arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cache
from typing import Any

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.own_pace import own_pace
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Operation
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import Analysable
from vflsim.protocols.table import TableProtocol
from vflsim.protocols.vectorisable import Vectorisable
from vflsim.recurrences import Obstacle, Recurrence
from vflsim.recurrences.batch_rows import BatchRows
from vflsim.recurrences.own_pace import OfStep, OwnPace
from vflsim.recurrences.shared_pace import SharedPace
from vflsim.recurrences.sources import unit_seconds
from vflsim.recurrences.world import TimedWorld
from vflsim.setting import Learners, Setting
from vflsim.streams import SERVER
from vflsim.timing.compute import ComputeModel
from vflsim.tracing.acts import embedding
from vflsim.world.node import ClientNode


class OwnPaceProtocol(Analysable, Vectorisable, TableProtocol):
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
        """Return the recurrence in which so many arrivals make a step."""
        setting = world.setting
        rows, training = setting.data.rows, setting.training
        sequences = [world.sequence]
        if training.batches == "own":
            sequences = [BatchSequence(rows, training, world.seed, client) for client in world.clients.tolist()]
        modelled = isinstance(setting.timings[SERVER].compute, ComputeModel)
        seconds, flops = _costs(self, world)
        made = OwnPace if world.shared_links is None else SharedPace
        return made(world, self.arrivals, BatchRows(sequences), seconds if modelled else None, flops)


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
