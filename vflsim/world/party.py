"""One party of a run: its draws, its processor, its mailbox, and its end of the network."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any

from vflsim.books import COMPUTE
from vflsim.errors import DisconnectedError, ProtocolError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.staleness import StepFacts
from vflsim.timing.arrivals import ActivationProcess
from vflsim.timing.compute import AnyCompute, law
from vflsim.timing.delays import Constant, Delay
from vflsim.timing.sampler import Sampler
from vflsim.world.kernel import Moment, World
from vflsim.world.mailbox import Mailbox, Wanted
from vflsim.world.messages import Message
from vflsim.world.outages import Outages
from vflsim.world.record import Recorder
from vflsim.world.task import Abandoned, Signal
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Scopes, Transport
from vflsim.world.wire import Views, Wire, Wires

_MOST_BLOCKS = 8
"""Blocks of draws taken at a time: from then on a draw takes 0.05 µs, and a block by itself 0.25 µs a draw."""


@dataclass(slots=True)
class RunContext:
    """The objects that all parties of one run share. ``outages`` is None where every party is always up."""

    world: World
    transport: Transport
    recorder: Recorder
    wires: Wires
    clients: tuple[int, ...]
    sequence: BatchSequence
    mailboxes: dict[int, Mailbox] = field(default_factory=dict)
    progressed: Callable[[], None] | None = None
    """Called after every round and update."""
    computed: Callable[[Operation[Any]], None] | None = None
    """Called after every computation, once it has been counted."""
    views: Views | None = None
    outages: Outages | None = None
    protocol: str = ""
    """The protocol's class, for error messages."""

    def close(self) -> None:
        """Account for the messages and outages that the end of the run cuts short."""
        self.transport.close()
        if self.outages is not None:
            self.outages.close()


@dataclass(frozen=True, slots=True)
class PartyClock:
    """The laws of a party's times: its compute model, its upload delay and its activations."""

    compute: AnyCompute
    upload_delay: Delay
    activation: ActivationProcess | None = None


class Draws:
    """A party's random times. The index of a draw is how often the party *began* that kind of activity, so the k-th
    draw is the same number under every protocol (common random numbers)."""

    __slots__ = ("_now", "_party", "_seed", "_streams")

    def __init__(self, seed: int, party: int) -> None:
        self._seed, self._party = seed, party
        self._streams: dict[str, Iterator[tuple[int, float]]] = {}
        self._now = 0.0

    def next(self, purpose: str, delay: Delay, now: float = 0.0) -> tuple[int, float]:
        """Index and seconds of the next draw for ``purpose``, an activity that begins ``now``.

        Abandoned work uses up its draw.
        """
        self._now = now
        try:
            return next(self._streams[purpose])
        except KeyError:
            stream = self._streams[purpose] = self._stream(purpose, delay)
            return next(stream)

    def _stream(self, purpose: str, delay: Delay) -> Iterator[tuple[int, float]]:
        """Number the draws for ``purpose``; one by one only where they depend on the instant."""
        if isinstance(delay, Constant):
            return enumerate(repeat(delay.value))
        sampler = Sampler(delay, self._seed, self._party, purpose)
        if sampler.in_time:
            return ((index, sampler.draw(index, self._now)) for index in count())
        return enumerate(chain.from_iterable(_in_blocks(sampler)))


def _in_blocks(sampler: Sampler) -> Iterator[array[float]]:
    """Give all draws in order: as many blocks at a time as there have been, up to ``_MOST_BLOCKS``."""
    first, many = 0, 1
    while True:
        yield array("d", sampler.blocks(first, many).tobytes())
        first += many
        many = min(first, _MOST_BLOCKS)


class Processor:
    """One computation at a time, first come, first served.

    Invariant: at most one holder; an abandoned wait or computation frees its place at once.
    """

    __slots__ = ("_world", "busy", "queue")

    def __init__(self, world: World) -> None:
        self._world = world
        self.busy = False
        self.queue: deque[Signal] = deque()
        """Those who wait for it."""

    async def free(self) -> None:
        """Wait for the hand-over: the processor is not released in between, so nobody else can take it."""
        signal = self._world.signal("its processor")
        self.queue.append(signal)
        try:
            await signal
        except BaseException:
            if signal.done:  # handed over in the very instant in which the wait was abandoned
                self.release()
            else:
                self.queue.remove(signal)
            raise

    def release(self) -> None:
        """Hand the processor to the next in line."""
        if self.queue:
            self.queue.popleft().set()
        else:
            self.busy = False


class Party:
    """The state of one party, which its node and the free twins of its node have in common."""

    def __init__(self, number: int, run: RunContext, clock: PartyClock, draws: Draws, batches: BatchSequence) -> None:
        self.number, self.run, self.clock, self.draws = number, run, clock, draws
        self.compute_law = law(clock.compute)
        """Whether compute times come from a model of the operation's cost; otherwise its size scales a draw."""
        self.mailbox = run.mailboxes.setdefault(number, Mailbox(run.world))
        self.scopes = Scopes(run.world, self.mailbox, run.transport)
        self.processor = Processor(run.world)
        self.wire = Wire(number, run.wires)
        self.batches, self._begun = batches, 0

    def next_batch(self) -> Batch:
        """The next mini-batch of the party's own sequence, or of its own place in the shared one."""
        self._begun += 1
        return self.batches.batch(self._begun - 1)

    def send(self, receiver: int, message: Message) -> Transfer:
        """Put a message on the link to another party; its bytes are those of the codec's output."""
        run = self.run
        wires = run.wires
        if message.sender >= 0 or not wires.lossless:
            message = copy(message)  # as in ``addressed``
        message.sender, message.receiver, message.sent = self.number, receiver, run.world.instant
        size = wires.size(message)
        if not wires.lossless:
            self.wire.carry(message)
        deliver = run.mailboxes[receiver].deliver if run.views is None else self._seen
        return run.transport.send(message, size, deliver)

    def addressed(self, receiver: int, message: Message) -> Message:
        """The message with sender, receiver and time: a copy if it was sent or received before."""
        if message.sender >= 0 or not self.run.wires.lossless:
            message = copy(message)  # broadcast or passed on: the first one may still be under way
        message.sender, message.receiver, message.sent = self.number, receiver, self.run.world.instant
        return message

    def receiver(self, to: int | str, message: Message) -> int:
        """The receiver's number. Raises ``ProtocolError`` unless it is another party of the run."""
        number = 0 if to == "server" else to
        if number == self.number or number not in self.run.mailboxes:
            raise ProtocolError(
                f"{message.kind!r} sent to {to!r}",
                allowed=f"another party: 'server' or one of the clients {self.run.clients}",
            )
        return int(number)

    def deliver(self, message: Message) -> None:
        """Hand a message over to its receiver."""
        self.run.mailboxes[message.receiver].deliver(message)

    def _seen(self, message: Message) -> None:
        """Hand a message over, and keep it in its receiver's view."""
        assert self.run.views is not None, "the run records views"
        self.run.views.received(message)
        self.deliver(message)

    def check_gather(self, count: int | None, senders: Collection[int] | None, forgoing: bool) -> None:
        """Raise ``ProtocolError`` for arguments of ``Node.gather`` that no messages can satisfy."""
        if count is None and senders is None:
            raise ProtocolError("gather takes a count, the senders, or both", allowed="at least one of the two")
        if forgoing and (count is not None or senders is None):
            raise ProtocolError("gather(forgoing=True) with a count", allowed="senders alone, each of whom may go down")
        if count is not None and not 0 <= count <= (math.inf if senders is None else len(senders)):
            limit = "" if senders is None else f" and ≤ {len(senders)}, the number of senders"
            raise ProtocolError(f"gather(count={count})", allowed=f"a count ≥ 0{limit}")
        if senders is not None and not self.run.mailboxes.keys() >= set(senders):
            strangers = [sender for sender in senders if sender not in self.run.mailboxes]
            raise ProtocolError(
                f"gather from {strangers}", allowed=f"0 (the server) and the clients {self.run.clients}"
            )

    def receiving(
        self,
        wanted: Wanted,
        timeout: float | None,
        outages: Outages | None,
        sender: int | None = None,
        forgoing: bool = False,
    ) -> Awaitable[None]:
        """Return what waits for a receive: itself, if it has no timeout and nobody goes down."""
        if timeout is None and outages is None:
            return wanted
        limit = None if timeout is None else checked_seconds("a timeout of", timeout)
        return self._receive(wanted, limit, outages, sender, forgoing)

    async def _receive(
        self, wanted: Wanted, timeout: float | None, outages: Outages | None, sender: int | None, forgoing: bool
    ) -> None:
        """Wait until a receive is answered, at most ``timeout`` seconds, while others may go down.

        Raises ``DisconnectedError`` if ``sender`` is given and crashes first.
        """
        timer = None
        if timeout is not None:
            wanted.patient = True
            timer = self.run.world.after(timeout, wanted.time_out, Moment.TIMEOUT)
        if outages is not None:
            outages.listen(self.number, wanted, sender, forgoing)
        try:
            await wanted
        finally:
            if timer is not None:
                timer.cancel()
            if outages is not None:
                outages.stop_listening(wanted)
        if wanted.hung_up and not wanted.value:  # the sender may be back already
            raise DisconnectedError(f"client {sender} went down before it sent {wanted.kind!r}")

    def cut_short(self, start: float, purpose: str, round_: int, peer: int, index: int, drawn: float) -> None:
        """Record an activity with a draw that ends now before it is done, for the reason that holds now."""
        run = self.run
        crashed = run.outages is not None and run.outages.crashed(self.number)
        outcome = "unfinished" if run.world.over else "lost" if crashed else "abandoned"
        run.recorder.event(start, run.world.instant, self.number, purpose, round_, peer, 0, index, drawn, outcome)

    def worked(self, operation: Operation[Any], share: float = 1.0) -> None:
        """Count a computation, or the ``share`` of it that was done, for the run's energy."""
        run, party = self.run, self.number
        meter = run.recorder.meter
        assert meter is not None, "the run counts energy"
        flops = int(share * operation.flops()) if meter.counts_flops(party) else 0
        meter.end(COMPUTE, run.world.instant, party, amount=flops)

    def committed(self, operation: Operation[Any]) -> Any:
        """Commit an operation that has been performed; return what its ``commit`` does.

        Raises ``Abandoned`` if it may not be: it would release more than the run's ε allows, and the run is over.
        """
        if operation.commit is None:
            return None
        before, facts = self.run.world.over, operation.commit()
        if self.run.world.over and not before:
            raise Abandoned
        return facts

    def count(self, operation: Operation[Any], facts: Any) -> None:
        """Count the step that a committed operation is."""
        run = self.run
        if operation.counts is not None:
            if operation.counts == "update":
                run.recorder.updates += 1
                run.recorder.events.steps.add(operation.kind)
            else:
                run.recorder.step(_step_facts(operation, facts), run.world.instant)
            progressed = run.progressed
            if progressed is not None:
                progressed()
        computed = run.computed
        if computed is not None:
            computed(operation)


def checked_seconds(what: str, seconds: float) -> float:
    """Return ``seconds``. Raises ``ProtocolError`` for a negative, infinite or NaN time."""
    if not 0 <= seconds < math.inf:  # also refuses NaN
        raise ProtocolError(f"{what} {seconds!r} s", allowed="seconds ≥ 0, and not for ever")
    return seconds


def _step_facts(operation: Operation[Any], facts: Any) -> StepFacts:
    """Return what a round used. Raises ``ProtocolError`` if the operation that ends it does not say so."""
    if operation.counts != "round":
        raise ProtocolError(f"{operation.kind} counts={operation.counts!r}", allowed='"round", "update" or None')
    if not isinstance(facts, StepFacts):
        raise ProtocolError(
            f'{operation.kind} has counts="round", and its commit returned a value of type {type(facts).__name__}',
            allowed="StepFacts: the embeddings that the step used, and their ages",
            remedy="give it commit=lambda: self.staleness.complete([(batch, clients)], loss), with its own Staleness",
        )
    return facts


def no_operation(value: object) -> ProtocolError:
    """Return the error for ``node.compute(value)`` with anything else than an operation."""
    return ProtocolError(
        f"node.compute got a value of type {type(value).__name__}",
        allowed="an Operation: what a method of the learner returns (PartyLearner.operation)",
        remedy="call the learner's method without await, and have it return the operation that it makes",
    )
