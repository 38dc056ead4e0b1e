"""A node's twin outside time: for evaluations and references."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from typing_extensions import override

from vflsim.learning.execution.operations import Operation
from vflsim.world.messages import Message
from vflsim.world.node import L, Node

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
        if turn := self._enter():
            await turn

    @override
    async def compute(self, operation: Operation[T]) -> T:
        """Do the operation in no time, beside the party's processor (unless only messages are free)."""
        if self._messages_only:
            return await self._timed.compute(operation)
        self.state.begin(operation)
        if turn := self._enter():
            await turn
        operation.at = self.shared.recorder.rounds, self.now
        if self.watch is not None:
            self.watch.over(operation, free=True)
        if working := self.world.perform(operation):
            await working
        self.state.count(operation, self.state.committed(operation))
        return operation.result

    @override
    async def send(self, to: int | str, message: Message) -> None:
        """Deliver within this instant; no bytes."""
        if turn := self._enter():
            await turn
        message = self.state.addressed(to, message)
        if self._wired:
            self.state.wire.carry(message, remember=False)
        self.world.after(0.0, partial(self.state.deliver, message))

    @override
    async def upload(self, to: int | str, message: Message) -> None:
        await self.send(to, message)

    @override
    async def delay(self, kind: str, factor: float = 1.0, round: int = -1) -> None:
        if turn := self._enter():
            await turn

    @override
    def _enter(self) -> Awaitable[None] | None:
        self.world.stand_still()
        return super()._enter()
