"""The verbs: all that a protocol sees of the world it runs in."""

from __future__ import annotations

import math
from collections.abc import Collection, Coroutine
from copy import copy
from typing import Any, TypeVar

from vflsim.errors import ProtocolError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.operations import Operation
from vflsim.learning.staleness import StepFacts
from vflsim.streams import SHARED, party_name
from vflsim.timing.compute import duration, law
from vflsim.world.kernel import Abandoned, Moment, Task
from vflsim.world.mailbox import Mailbox, Wanted
from vflsim.world.messages import Message
from vflsim.world.party import Draws, PartyClock, Shared
from vflsim.world.processor import Processor
from vflsim.world.scopes import Until
from vflsim.world.transport import Transfer

T = TypeVar("T")


class Node:
    """One party, as its protocol sees it. Party 0 is the server; clients keep their numbers from the scenario.

    ``clients`` are the participants in client order, ``learner`` the party's side of the learning plane. Invariants: a
    cancelled verb withdraws its waiter, frees its processor or link, and loses no message; no verb knows the values
    of the tensors that pass through it.
    """

    def __init__(
        self, party: int, shared: Shared, clock: PartyClock, draws: Draws, learner: Any, own: BatchSequence
    ) -> None:
        self.party, self.shared, self.learner = party, shared, learner
        self.world, self.clients = shared.world, shared.clients
        self.mailbox = shared.mailboxes.setdefault(party, Mailbox(shared.world))
        self.scopes: dict[Task, list[Until]] = {}
        self._clock, self._draws, self._own = clock, draws, own
        self._processor = Processor(shared.world)
        self._next_batch = 0

    # --- time ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.world.now()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises ``ProtocolError`` for a negative, infinite or NaN time."""
        await self._enter()
        await self.world.pause(_seconds("sleep", seconds), "its sleep to end")

    async def activated(self) -> None:
        """Wait for the party's next activation (immediate, Poisson, …)."""
        await self._enter()
        process = self._clock.activation
        if process is None:
            return
        start = self.now
        activation = process.next(start)
        try:
            await self.world.pause(activation.time - start, "its activation")
        except BaseException:
            process.put_back(activation)  # the wait was abandoned, not the activation
            raise
        self.shared.recorder.event(
            start, self.now, self.party, "activation", -1, -1, 0, activation.index, activation.drawn
        )

    # --- batches ------------------------------------------------------------------------------------------------

    def batch(self, index: int) -> Batch:
        """The ``index``-th mini-batch of the sequence that all parties share."""
        return self.shared.sequence.batch(index)

    def next_batch(self) -> Batch:
        """This client's next mini-batch: of its own sequence, or its own place in the shared one."""
        self._next_batch += 1
        return self._own.batch(self._next_batch - 1)

    # --- computation ----------------------------------------------------------------------------------------------

    async def compute(self, operation: Operation[T]) -> T:
        """Do an operation of the learning plane: wait for the processor, then for the time the compute model says.

        Returns what the operation promises (a deferred handle, or a server step of handles).
        """
        await self._enter()
        await self._processor.acquire()
        try:
            if self.world.over:  # an observer's turn came with the end of the run: nothing begins any more
                raise Abandoned
            purpose = f"compute.{operation.kind}"
            model = self._clock.compute
            index, drawn = self._draws.next(purpose, law(model))
            flops = operation.flops() if model.kind == "flops" else 0.0
            seconds = duration(model, drawn, flops, operation.units)
            start, done = self.now, False
            try:
                await self._perform(operation, seconds)
                done = True
            finally:
                self.shared.recorder.event(
                    start, self.now, self.party, purpose, operation.round, -1, 0, index, drawn, self._outcome(done)
                )
        finally:
            self._processor.release()
        self._count(operation)
        return operation.result

    async def _perform(self, operation: Operation[Any], seconds: float) -> None:
        operation.at = self.shared.recorder.rounds, self.now + seconds
        await self.world.perform(operation, seconds)

    def _count(self, operation: Operation[Any]) -> None:
        facts = operation.commit() if operation.commit is not None else None
        recorder = self.shared.recorder
        if operation.counts == "update":
            recorder.updates += 1
        elif operation.counts == "round":
            assert isinstance(facts, StepFacts)
            recorder.step(facts, self.now)
        if operation.counts is not None and self.shared.progressed is not None:
            self.shared.progressed()

    # --- messages -------------------------------------------------------------------------------------------------

    async def send(self, to: int | str, message: Message) -> None:
        """Queue a message on the link and return at once; its bytes are what the codec would really write.

        A message that was sent or received before is copied. Raises ``ProtocolError`` for a receiver that is no other
        party of the run.
        """
        await self._enter()
        transfer = self._send(to, message)
        for scope in self.scopes.get(self.world.current(), ()):
            scope.hold(transfer)

    def _send(self, to: int | str, message: Message) -> Transfer:
        message = self._address(to, message)
        batch, value = message.batch, message.value
        ids = 0 if batch is None or batch.origin == SHARED else len(batch.ids)
        size = (
            self.shared.codec.size(None, None, ids)
            if value is None
            else self.shared.codec.size(value.shape, value.dtype, ids)
        )
        return self.shared.transport.send(message, size, self._deliver)

    def _address(self, to: int | str, message: Message) -> Message:
        receiver = self._peer(to, message)
        if message.sender >= 0:  # broadcast or passed on: the first one may still be under way
            message = copy(message)
        message.sender, message.receiver, message.sent = self.party, receiver, self.now
        return message

    def _peer(self, to: int | str, message: Message) -> int:
        receiver = 0 if to == "server" else to
        if receiver == self.party or receiver not in self.shared.mailboxes:
            raise ProtocolError(
                f"{message.kind!r} sent to {to!r}",
                allowed=f"another party: 'server' or one of the clients {self.clients}",
            )
        return int(receiver)

    def _deliver(self, message: Message) -> None:
        self.shared.mailboxes[message.receiver].deliver(message)

    async def upload(self, to: int | str, message: Message) -> None:
        """The party's upload delay, then ``send``."""
        await self._enter()
        peer = self._peer(to, message)
        purpose = "upload" if message.kind == "embedding" else f"upload.{message.kind}"
        index, drawn = self._draws.next(purpose, self._clock.upload_delay)
        start, done = self.now, False
        try:
            await self.world.pause(drawn, "its upload delay")
            done = True
        finally:
            self.shared.recorder.event(
                start, self.now, self.party, purpose, message.round, peer, 0, index, drawn, self._outcome(done)
            )
        await self.send(to, message)

    async def recv(self, kind: str, round: int | None = None, timeout: float | None = None) -> Message:
        """The next message of ``kind`` (of that round). Raises ``TimeoutError`` if ``timeout`` seconds bring none."""
        messages = await self._gather(kind, 1, None, round, timeout)
        if not messages:
            raise TimeoutError(f"no {kind!r} message within {timeout} s")
        return messages[0]

    async def gather(
        self, kind: str, count: int | None = None, senders: Collection[int] | None = None,
        round: int | None = None, timeout: float | None = None,
    ) -> list[Message]:  # fmt: skip
        """``count`` messages, or one from each of ``senders``; fewer if ``timeout`` seconds pass first.

        Resolves at the end of the instant in which the last one arrives, in (arrival time, party) order. Raises
        ``ProtocolError`` for both or neither, a negative count, and senders that are not of the run.
        """
        if (count is None) == (senders is None):
            raise ProtocolError("gather takes a count or the senders", allowed="exactly one of the two")
        if count is not None and count < 0:
            raise ProtocolError(f"gather(count={count})", allowed="a count ≥ 0")
        strangers = [sender for sender in senders or () if sender not in self.shared.mailboxes]
        if strangers:
            raise ProtocolError(f"gather from {strangers}", allowed=f"0 (the server) and the clients {self.clients}")
        return await self._gather(kind, count or 0, senders, round, timeout)

    async def _gather(
        self, kind: str, count: int, senders: Collection[int] | None, round_: int | None, timeout: float | None
    ) -> list[Message]:
        await self._enter()
        limit = None if timeout is None else _seconds("a timeout of", timeout)
        wanted: Wanted = self.mailbox.want(kind, count, senders, round_)
        timer = None
        if limit is not None:
            timer = self.world.after(limit, lambda: self.mailbox.time_out(wanted), Moment.TIMEOUT)
        try:
            return list(await wanted.signal)
        except BaseException:
            self.mailbox.withdraw(wanted)
            if wanted.signal.done:  # handed over in the very instant in which the wait was abandoned
                self.mailbox.give_back(await wanted.signal)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def arrived(self, kind: str, round: int | None = None, before: int | None = None) -> list[Message]:
        """Take what has arrived of ``kind`` (of one round, or of rounds ``before`` a number) without waiting."""
        return self.mailbox.take(kind, round, before)

    # --- structure --------------------------------------------------------------------------------------------------

    def until(self, kind: str, round: int | None = None) -> Until:
        """A block whose body is abandoned the moment such a message arrives."""
        return Until(self, kind, round)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        """Run ``coroutine`` beside the main line; its failure is the party's."""
        task = self.world.current()
        return self.world.spawn(coroutine, f"{party_name(self.party)} (beside)", self.party, task.observer)

    def record(self, what: str, **fields: Any) -> None:
        """Add a row to the run's table ``what``; ``time_s`` and ``party`` are added."""
        self.shared.recorder.add(what, {"time_s": self.now, "party": party_name(self.party), **fields})

    def free(self, messages_only: bool = False) -> Node:
        """The same party with verbs that take no time, weigh nothing and leave no events (evaluation, references).

        ``messages_only``: its computations still take their time.
        """
        return FreeNode(self, messages_only)

    def abandon_transfer(self, transfer: Transfer) -> None:
        """Take a message off its link."""
        self.shared.transport.abandon(transfer)

    def _outcome(self, done: bool) -> str:
        return "done" if done else "unfinished" if self.world.over else "abandoned"

    async def _enter(self) -> None:
        if self.scopes:
            for scope in self.scopes.get(self.world.current(), ()):
                scope.check()
        await self.world.breathe()


class FreeNode(Node):
    """A node's twin outside time (``Node.free``). It shares the party's mailbox, learner and place in its batches."""

    def __init__(self, node: Node, messages_only: bool) -> None:
        self.__dict__.update(node.__dict__)
        self._node, self._messages_only = node, messages_only

    def next_batch(self) -> Batch:
        """The party's next mini-batch."""
        return self._node.next_batch()

    async def activated(self) -> None:
        """At once."""
        await self._enter()

    async def compute(self, operation: Operation[T]) -> T:
        """The operation, in no time and beside whatever the party's processor does (unless only messages are free)."""
        if self._messages_only:
            return await self._node.compute(operation)
        await self._enter()
        await self._perform(operation, 0.0)
        self._count(operation)
        return operation.result

    async def send(self, to: int | str, message: Message) -> None:
        """Deliver within this instant; no bytes."""
        await self._enter()
        addressed = self._address(to, message)
        self.world.after(0.0, lambda: self._deliver(addressed))

    async def upload(self, to: int | str, message: Message) -> None:
        """``send``."""
        await self.send(to, message)


def _seconds(what: str, seconds: float) -> float:
    if not 0 <= seconds < math.inf:  # also refuses NaN
        raise ProtocolError(f"{what} {seconds!r} s", allowed="seconds ≥ 0, and not for ever")
    return seconds
