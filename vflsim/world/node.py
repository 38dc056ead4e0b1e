"""The verbs that may take time; with those of its base class they are all that a protocol sees of the world."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from copy import copy
from typing import Any, TypeAlias

from typing_extensions import TypeVar, override

from vflsim.books import COMPUTE, RADIO
from vflsim.learning.execution.operations import Operation, nothing
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.timing.compute import EXACTLY_ONCE, duration
from vflsim.world.kernel import all_of
from vflsim.world.messages import Message
from vflsim.world.party import Processor, checked_seconds, no_operation
from vflsim.world.record import purpose_of
from vflsim.world.standpoint import L, Standpoint
from vflsim.world.task import Abandoned

T = TypeVar("T")


class Node(Standpoint[L]):
    """One party, as its protocol sees it: the verbs of its base class take no time, those here may.

    Invariants: a cancelled verb withdraws its waiter, frees its processor or link, and loses no message; no verb knows
    the values of the tensors that pass through it.

    Example::

        async def client(node: Node[ClientLearner]) -> None:
            for k in node.rounds():
                h = await node.compute(node.learner.embed(node.batch(k)))
                await node.upload("server", Embedding(node.batch(k), h, round=k))
                await node.recv("gradient", round=k)
    """

    # --- time ---------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises ``ProtocolError`` for a negative, infinite or NaN time.

        Example: ``await node.sleep(0.5)``
        """
        if self._open or self._turns:
            await self._enter()
        seconds = checked_seconds("sleep", seconds)
        if self._gate is not None:
            seconds = await self._gate.lasting(seconds, "its sleep to end")
        await self.world.pause(seconds, "its sleep to end")

    async def activated(self) -> None:
        """Wait for the party's next activation (immediate, Poisson, …); for ever if no more will come.

        Example: ``await node.activated()``
        """
        if self._open or self._turns:
            await self._enter()
        process, gate = self.state.clock.activation, self._gate
        if process is None:
            if gate is None:
                self.world.stand_still()
            else:
                await gate.up()
            return
        start = self.world.now()
        activation = process.next(start) if gate is None else gate.next(process, start)
        if activation is None:
            await self.world.signal("its next activation, but there are no more")
            raise AssertionError("nobody sets that signal")
        try:
            await self.world.pause(activation.time - start, "its activation")
            if gate is not None:
                await gate.up()
        except BaseException:
            process.put_back(activation)  # the wait was abandoned, not the activation
            raise
        self.shared.recorder.event(
            start, self.world.now(), self.party, "activation", -1, -1, 0, activation.index, activation.drawn
        )

    async def back(self, client: int) -> None:
        """Wait until ``client`` is up, if it has crashed. Raises ``IncompleteRoundError`` if it never will be.

        Example: ``await node.back(3)``
        """
        if self._open or self._turns:
            await self._enter()
        self.world.stand_still()
        if self._outages is not None:
            await self._outages.back(client)

    # --- computation --------------------------------------------------------------------------------------------

    async def compute(self, operation: Operation[T]) -> T:
        """Do an operation: wait for the processor and the compute time; return its result, a deferred value.

        Raises ``ProtocolError`` for anything else than an operation.

        Example: ``h = await node.compute(node.learner.embed(batch))``
        """
        if not isinstance(operation, Operation):
            raise no_operation(operation)
        if operation.begin is not nothing:
            operation.begin()
        if self._open or self._turns:
            await self._enter()
        state, world, gate = self.state, self.world, self._gate
        processor, recorder = self._processor, state.run.recorder
        meter, record = recorder.meter, recorder.event
        if processor.busy:
            await processor.free()
        processor.busy = True
        try:
            if world.over:  # an observer's turn came with the end of the run
                raise Abandoned
            start, purpose, fixed = world.instant, purpose_of("compute", operation.kind), operation.seconds
            index, drawn = state.draws.next(purpose, state.compute_law if fixed is None else EXACTLY_ONCE, start)
            seconds = duration(state.clock.compute, drawn, operation)
            if meter is not None:
                meter.begin(COMPUTE, start, self.party)
            try:
                if gate is not None:
                    seconds = await gate.lasting(seconds, "its computation to end")
                operation.at = recorder.rounds, start + seconds
                if self._turns:
                    seconds = world.until_work(operation, seconds)
                await world.pause(seconds, "its computation to end")
                if self.watch is not None:
                    self.watch.over(operation)
                if working := world.perform(operation):
                    await working
                facts = None if operation.commit is None else state.committed(operation)
            except BaseException:
                state.cut_short(start, purpose, operation.round, -1, index, drawn)
                if meter is not None:
                    state.worked(operation, (world.instant - start) / seconds if seconds else 0.0)
                raise
            record(start, world.instant, self.party, purpose, operation.round, -1, 0, index, drawn)
            if meter is not None:
                state.worked(operation)
        finally:
            processor.release()
        state.count(operation, facts)
        return operation.result

    # --- messages -------------------------------------------------------------------------------------------------

    async def send(self, to: int | str, message: Message) -> None:
        """Queue a message on the link and return at once; its bytes are those of the codec's output.

        A message that was sent or received before is copied. Raises ``ProtocolError`` for a receiver that is no other
        party of the run.

        Example: ``await node.send(message.sender, Gradient(batch, gradient, round=k))``
        """
        if self._open or self._turns:
            await self._enter()
        self.world.stand_still()
        transfer = self.state.send(self.state.receiver(to, message), message)
        if self._open:
            self._scopes.hold(transfer)

    async def upload(self, to: int | str, message: Message) -> None:
        """Wait for the party's upload delay, then ``send``.

        Example: ``await node.upload("server", Embedding(batch, h, round=k))``
        """
        if self._open or self._turns:
            await self._enter()
        peer = self.state.receiver(to, message)
        purpose = "upload" if message.embedding else purpose_of("upload", message.kind)
        await self._delay(purpose, f"its {purpose} delay", 1.0, message.round, peer)
        if self._turns:
            await self._enter()
        transfer = self.state.send(peer, message)
        if self._open:
            self._scopes.hold(transfer)

    async def delay(self, kind: str, factor: float = 1.0, round: int = -1) -> None:
        """Wait ``factor`` times a draw of the upload delay; each ``kind`` has its own draws and events.

        Example: ``await node.delay("encoding", 2.0, round=k)``
        """
        if self._open or self._turns:
            await self._enter()
        await self._delay(kind, f"its {kind} delay", factor, round, -1)

    async def _delay(self, purpose: str, about: str, factor: float, round_: int, peer: int) -> None:
        state, world, gate = self.state, self.world, self._gate
        start = world.instant
        index, drawn = state.draws.next(purpose, state.clock.upload_delay, start)
        drawn = checked_seconds(about, drawn * factor)
        recorder = state.run.recorder
        meter, record = recorder.meter, recorder.event
        if meter is not None:
            meter.begin(RADIO, start, self.party)
        try:
            seconds = drawn if gate is None else await gate.lasting(drawn, about)
            await world.pause(seconds, about)
        except BaseException:
            state.cut_short(start, purpose, round_, peer, index, drawn)
            raise
        finally:
            if meter is not None:
                meter.end(RADIO, world.instant, self.party)
        record(start, world.instant, self.party, purpose, round_, peer, 0, index, drawn)

    async def recv(
        self, kind: str, round: int | None = None, timeout: float | None = None, sender: int | None = None
    ) -> Message:
        """Receive the next message of ``kind`` (of that round, from that sender).

        Raises ``TimeoutError`` if none comes within ``timeout`` seconds, ``DisconnectedError`` if ``sender`` is given
        and crashes. With ``round``, earlier rounds' messages of that kind (and sender) are dropped.

        Example: ``gradient = await node.recv("gradient", round=k, timeout=5.0)``
        """
        if self._open or self._turns:
            await self._enter()
        wanted = self.state.mailbox.want(kind, 1, None if sender is None else (sender,), round)
        await self.state.receiving(wanted, timeout, self._outages, sender)
        if wanted.value:
            return wanted.value[0]
        raise TimeoutError(f"no {kind!r} message within {timeout} s")

    async def gather(
        self, kind: str, count: int | None = None, senders: Collection[int] | None = None,
        round: int | None = None, timeout: float | None = None, forgoing: bool = False,
    ) -> list[Message]:  # fmt: skip
        """Receive ``count`` messages, one from each of ``senders``, or one from ``count`` of them.

        Fewer if ``timeout`` seconds pass first, or, with ``forgoing``, if senders crash. Resolves at the end of the
        instant in which the last one arrives, in (arrival time, party) order. With ``round``, earlier rounds' messages
        of that kind and those senders are dropped. Raises ``ProtocolError`` for neither count nor senders, a negative
        count or more than there are senders, and senders that are not of the run.

        Example: ``first = await node.gather("embedding", count=3, round=k)``
        """
        self.state.check_gather(count, senders, forgoing)
        if self._open or self._turns:
            await self._enter()
        wanted = self.state.mailbox.want(kind, count, senders, round)
        await self.state.receiving(wanted, timeout, self._outages, forgoing=forgoing)
        return wanted.value

    async def together(self, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
        """Run the coroutines beside each other until all have ended; return their results in their order.

        Example: ``h, mean = await node.together(node.compute(work), node.recv("mean", round=k))``
        """
        return await all_of(self.world, self.start, coroutines)

    def worker(self) -> Node[L]:
        """Return the same party with a processor of its own: what it computes overlaps what the party does elsewhere.

        Draws, messages and the link are the party's.

        Example: ``await node.together(node.compute(one), node.worker().compute(other))``
        """
        twin = copy(self)
        twin._processor = Processor(self.world)
        return twin

    def free(self, messages_only: bool = False, wired: bool = True) -> Node[L]:
        """Return the same party with verbs without time, bytes and events (for evaluation and references).

        ``messages_only``: its computations still take their time. ``wired``: messages pass through the codec; not so
        where the parties are one and nothing is ever encoded.

        Example: ``scores = await self.evaluate(node.free())``
        """
        return FreeNode(self, messages_only, wired)

    async def _enter(self) -> None:
        """Begin a verb where there is something to do: in an ``until`` block, or in a world that takes turns."""
        if self._open:
            self._scopes.check()
        await self.world.breathe()


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
        self.world.after(0.0, lambda: self.state.deliver(message))

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


ServerNode: TypeAlias = Node[ServerLearner]
"""The server's node in protocols that split a plain model.

Example: ``async def server(self, node: ServerNode) -> None``.
"""
ClientNode: TypeAlias = Node[ClientLearner]
"""A client's node in protocols that split a plain model.

Example: ``async def client(self, node: ClientNode) -> None``.
"""
