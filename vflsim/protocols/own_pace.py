"""The vectorised path of protocols with a table: clients at their own pace, and the first fill of the table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Operation
from vflsim.protocols.base import Protocol
from vflsim.recurrences import Obstacle
from vflsim.recurrences.batch_rows import BatchRows
from vflsim.recurrences.own_pace import OfStep, OwnPace
from vflsim.recurrences.sources import unit_seconds
from vflsim.recurrences.world import TimedWorld
from vflsim.setting import Learners
from vflsim.streams import SERVER
from vflsim.timing.compute import ComputeModel
from vflsim.tracing.acts import embedding


def staleness_obstacles(max_staleness: int | None) -> Iterator[Obstacle]:
    """Yield a bound on staleness, if there is one."""
    if max_staleness is not None:
        what = (
            f"clients answer queries for rows older than {max_staleness} steps beside their own work, which "
            "shares the processor and the draws with it"
        )
        yield Obstacle("max_staleness", what, "none")


def numbers_at_own_pace(t: int, clients: int) -> int:
    """Return about how many times a step on t embeddings has. Whom it uses is a bit for every client."""
    return max(t, clients // 8)


def at_own_pace(protocol: Protocol, world: TimedWorld, t: int) -> OwnPace:
    """Return the recurrence of clients at their own pace, whose server steps on t embeddings."""
    setting = world.setting
    rows, training = setting.data.rows, setting.training
    sequences = [world.sequence]
    if training.batches == "own":
        sequences = [BatchSequence(rows, training, world.seed, client) for client in world.clients.tolist()]
    modelled = isinstance(setting.timings[SERVER].compute, ComputeModel)
    seconds, flops = _costs(protocol, world)
    return OwnPace(world, t, BatchRows(sequences), seconds if modelled else None, flops)


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
