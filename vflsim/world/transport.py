"""Messages on their way, latency first, then bandwidth; and ``node.until`` blocks, which a message makes useless."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal

from vflsim.errors import ProtocolError
from vflsim.timing.capacity import Link, capacity_profile
from vflsim.timing.profile import Profile, gated
from vflsim.world.kernel import World
from vflsim.world.mailbox import ArrivalWatch, Mailbox
from vflsim.world.messages import Message
from vflsim.world.networks import FLUID, Network, TransportLayer
from vflsim.world.record import Recorder
from vflsim.world.task import Abandoned, Task
from vflsim.world.transfers import Latency, Route, Transfer

__all__ = ["Transfer", "Transport"]

Cut = Literal["abandoned", "unfinished", "lost"]
_NAN = math.nan


class Transport:
    """Moves messages between parties over their links.

    A message first waits the latency of the sender's and of the receiver's link, which occupies neither; then its bytes
    move through the sender's up-link and the receiver's down-link, never faster than either carries. How messages share
    the links is up to the kind of network, how they begin to that of transport (``world.networks``).

    ``gates`` gives parties a profile that is 1 or 0: while it is 0 nothing of that party moves (its latencies pass);
    its transfers continue afterwards. A party that is ``shut`` neither sends nor receives: such messages are lost.
    ``layer``: how messages begin to move, by default fluid.
    ``concurrency``: the most messages that move from and to the server at a time.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        links: Sequence[Link],
        seed: int,
        recorder: Recorder,
        gates: Mapping[int, Profile] | None = None,
        layer: TransportLayer = FLUID,
        concurrency: int | None = None,
    ) -> None:
        self._world, self._links, self._seed, self._recorder = world, links, seed, recorder
        self._network, self._gates = network, gates or {}
        self._carrier = layer.carrier(network, world, links, self._arrived, concurrency)
        self._carrier.meter = recorder.meter
        self._record, self._latency_over = recorder.event, self._after_latency
        self._paths: list[dict[int, Route]] = [{} for _ in links]  # of each sender to each receiver
        self._profiles: dict[tuple[int, str], Profile] = {}
        self._sent_count: list[dict[str, int]] = [{} for _ in links]
        self._open: dict[Transfer, None] = {}  # in the order sent
        self._shut: set[int] = set()

    def send(self, message: Message, size: int, deliver: Callable[[Message], None]) -> Transfer:
        """Put ``message`` of ``size`` bytes on its way; ``deliver`` is called when its last bit has arrived."""
        sender, receiver, kind = message.sender, message.receiver, message.kind
        path = self._paths[sender].get(receiver) or self._connect(message)
        counted = self._sent_count[sender]
        index = counted[kind] = counted.get(kind, -1) + 1
        transfer = Transfer()  # filled in here: as an __init__ this would take three times as long
        transfer.message, transfer.size, transfer.path, transfer.index = message, size, path, index
        transfer.deliver, transfer.began, transfer.due, transfer.state = deliver, _NAN, False, "latency"
        self._open[transfer] = None
        if self._shut and (sender in self._shut or receiver in self._shut):
            transfer.state = "lost"  # before its latency began: that draw is the next message's
            self._close(transfer, 0, "lost")
            return transfer
        latency = path.latency
        transfer.latency = _, seconds = next(latency.draws) if latency.draws else latency.draw(message.sent)
        if seconds > 0.0:
            transfer.due = True
            self._world.schedule(seconds, self._latency_over, transfer)
        else:
            if path.latency.constant is None:  # a draw of 0 is a draw
                self._record_latency(transfer, "done")
            self._carrier.enter(transfer)
        return transfer

    def send_lost(self, message: Message, size: int) -> Transfer:
        """Account for a message whose sender has crashed since it sent it: it has its draw, and is lost at once."""
        shut, self._shut = self._shut, set()
        transfer = self.send(message, size, _unreachable)
        self._shut = shut
        if self._cut(transfer, "lost"):
            self._carrier.leave(transfer)
        return transfer

    def abandon(self, transfer: Transfer) -> None:
        """Take a message off its link; the bytes already sent count."""
        if transfer.under_way and self._cut(transfer, "abandoned"):
            self._carrier.leave(transfer)

    def lose(self, party: int) -> None:
        """Lose every message under way from or to ``party``; the bytes already sent count."""
        self._cut_all([t for t in self._open if party in (t.path.sender, t.path.receiver)], "lost")
        self._carrier.reset(party)

    def shut(self, party: int) -> None:
        """From now on any message sent from or to ``party`` is lost at once; those under way are not touched."""
        self._shut.add(party)

    def open(self, party: int) -> None:
        """``party`` can send and receive again; nothing if it always could."""
        self._shut.discard(party)

    def close(self) -> None:
        """Record the messages that the end of the run cuts short."""
        self._cut_all(list(self._open), "unfinished")

    def under_way(self) -> Iterator[Message]:
        """The messages that have been sent and have not arrived, in the order sent."""
        return (transfer.message for transfer in self._open)

    def _connect(self, message: Message) -> Route:
        """The route of the first message between two parties."""
        sender, receiver = message.sender, message.receiver
        if not 0 <= receiver < len(self._links) or sender == receiver:
            raise ProtocolError(f"a {message.kind!r} message to party {receiver}", allowed="any other party of the run")
        matrix = self._network.latency
        fixed = 0.0 if matrix is None else matrix.seconds(sender, receiver)
        latency = Latency(self._links, sender, receiver, self._seed, fixed)
        up, down = self._profile(sender, "up"), self._profile(receiver, "down")
        path = self._paths[sender][receiver] = Route.between(sender, receiver, latency, up, down)
        self._carrier.connect(path, up, down)
        return path

    def _profile(self, party: int, direction: Literal["up", "down"]) -> Profile:
        """The capacity of a link, 0 while its party is away; the same object every time."""
        profile = self._profiles.get((party, direction))
        if profile is None:
            profile = capacity_profile(getattr(self._links[party], direction))
            if party in self._gates:
                profile = gated(profile, self._gates[party])
            self._profiles[party, direction] = profile
        return profile

    def _after_latency(self, transfer: Transfer) -> None:
        transfer.due = False
        self._record_latency(transfer, "done")
        self._carrier.enter(transfer)

    def _record_latency(self, transfer: Transfer, outcome: str) -> None:
        message, path, (index, drawn) = transfer.message, transfer.path, transfer.latency
        self._record(
            message.sent, self._world.instant, path.sender, path.latency.purpose, message.round, path.receiver, 0,
            index, drawn, outcome,
        )  # fmt: skip

    def _arrived(self, transfer: Transfer) -> None:
        transfer.state = "delivered"
        message = transfer.message
        del self._open[transfer]
        self._recorder.transfer(message, transfer.index, transfer.began, self._world.instant, transfer.size, "done")
        deliver = transfer.deliver
        deliver(message)

    def _cut_all(self, transfers: list[Transfer], outcome: Cut) -> None:
        """End transfers under way, all before the first gives up its place: none of them takes another's."""
        for transfer in [t for t in transfers if self._cut(t, outcome)]:
            self._carrier.leave(transfer)

    def _cut(self, transfer: Transfer, outcome: Cut) -> bool:
        """End a transfer under way; returns whether it had a place on its links."""
        if transfer.due:  # perhaps at this very instant
            self._world.cancel(transfer)
        on_links = transfer.state != "latency"
        if not on_links:
            self._record_latency(transfer, outcome)
        sent = self._carrier.sent(transfer) if on_links else 0
        transfer.state = outcome
        self._close(transfer, sent, outcome)
        return on_links

    def _close(self, transfer: Transfer, sent: int, outcome: str) -> None:
        del self._open[transfer]
        self._recorder.transfer(transfer.message, transfer.index, transfer.began, self._world.instant, sent, outcome)


def _unreachable(message: Message) -> None:
    raise AssertionError(f"a lost {message.kind!r} message has arrived")


# --- blocks that a message ends ---------------------------------------------------------------------------------------


_FEW = 8


class Scopes:
    """The ``until`` blocks of one party that are open, by task, from the outermost to the innermost."""

    def __init__(self, world: World, mailbox: Mailbox, transport: Transport) -> None:
        self.world, self.mailbox, self.transport = world, mailbox, transport
        self.open: dict[Task, list[Until]] = {}

    def check(self) -> None:
        """Raise ``Abandoned`` if the message of a block of the current task is here."""
        for scope in self.open.get(self.world.current(), ()):
            scope.check()

    def hold(self, transfer: Transfer) -> None:
        """Bind a transfer to the messages of all blocks of the current task."""
        for scope in self.open.get(self.world.current(), ()):
            scope.hold(transfer)


class Until:
    """Runs its body, and abandons it the moment the message arrives: delay, queue, computation, transfer.

    Messages that the body has sent stay bound to the block after the body has ended: a transfer still under way when
    the message arrives is taken off its link. The message itself is not consumed: ``recv`` it afterwards. Coroutines
    that the body has started (``node.start``) are not part of the body, and continue.

    Invariant: the body never runs on past the arrival; a message already here when the block is entered abandons the
    body at its first verb.
    """

    def __init__(self, scopes: Scopes, kind: str, round_: int | None) -> None:
        self._scopes, self._kind, self._round = scopes, kind, round_
        self._task: Task | None = None
        self._watch: ArrivalWatch | None = None
        self._transfers: list[Transfer] = []
        self._tidy_at = _FEW
        self.fired = False

    async def __aenter__(self) -> Until:
        self._task = self._scopes.world.current()
        self._scopes.open.setdefault(self._task, []).append(self)
        if self._scopes.mailbox.has(self._kind, self._round):
            self.fired = True
        else:
            self._watch = self._scopes.mailbox.watch(self._kind, self._round, self._fire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        assert task is not None
        open_here = self._scopes.open[task]
        open_here.remove(self)
        if not open_here:
            del self._scopes.open[task]
        absorbed = isinstance(error, Abandoned) and error.scope is self
        failed = error is not None and not absorbed  # or abandoned from outside
        if self._watch is not None and (failed or not any(transfer.under_way for transfer in self._transfers)):
            self._scopes.mailbox.unwatch(self._watch)  # nothing is left to abandon
        return absorbed

    def hold(self, transfer: Transfer) -> None:
        """Bind a transfer begun in the body to the message."""
        if len(self._transfers) >= self._tidy_at:  # rarely: a body may send to everybody
            self._transfers = [t for t in self._transfers if t.under_way]
            self._tidy_at = 2 * len(self._transfers) + _FEW
        self._transfers.append(transfer)

    def check(self) -> None:
        """Raise ``Abandoned`` if the message is here: called at the start of every verb in the body."""
        if self.fired:
            raise Abandoned(self)

    def ends_with(self, message: Message) -> bool:
        """Whether ``message`` is one that ends the block."""
        return message.kind == self._kind and (self._round is None or message.round == self._round)

    @property
    def names_a_round(self) -> bool:
        """Whether only a message of one round ends the block."""
        return self._round is not None

    def _fire(self) -> None:
        self.fired = True
        for transfer in self._transfers:
            self._scopes.transport.abandon(transfer)
        self._transfers.clear()
        if self._task is not None:
            self._task.interrupt(self)
