"""A node's twin outside time: for evaluations and references."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from typing_extensions import override

from vflsim.learning.execution.operations import Operation
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.party import no_operation
from vflsim.world.standpoint import L

T = TypeVar("T")


class FreeNode(Node[L]):
    """A node's twin outside time (``Node.free``): the same party, learner and verbs, without outages."""

    def __init__(self, timed: Node[L], messages_only: bool, wired: bool) -> None:
        super().__init__(timed.state, timed.learner, timed.watch)
        self._timed, self._messages_only = timed, messages_only
        self._wired: bool = wired and (not isinstance(timed, FreeNode) or timed._wired)
        self._outages = self._gate = None

    @override
    async def activated(self) -> None:
        await self._enter()

    @override
    async def compute(self, operation: Operation[T]) -> T:
        """Do the operation in no time, beside the party's processor (unless only messages are free)."""
        if self._messages_only:
            return await self._timed.compute(operation)
        if not isinstance(operation, Operation):
            raise no_operation(operation)
        operation.begin()
        await self._enter()
        operation.at = self.shared.recorder.rounds, self.world.now()
        if self.watch is not None:
            self.watch.over(operation, free=True)
        if working := self.world.perform(operation):
            await working
        self.state.count(operation, self.state.committed(operation))
        return operation.result

    @override
    async def send(self, to: int | str, message: Message) -> None:
        """Deliver within this instant; no bytes."""
        await self._enter()
        message = self.state.addressed(self.state.receiver(to, message), message)
        if self._wired:
            self.state.wire.carry(message, remember=False)
        self.world.after(0.0, partial(self.state.deliver, message))

    @override
    async def upload(self, to: int | str, message: Message) -> None:
        await self.send(to, message)

    @override
    async def delay(self, kind: str, factor: float = 1.0, round: int = -1) -> None:
        await self._enter()

    @override
    async def _enter(self) -> None:
        self.world.stand_still()
        await super()._enter()
