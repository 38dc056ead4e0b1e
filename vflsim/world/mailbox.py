"""A party's mailbox: receives that match by kind, round and sender, and blocks that a message ends."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from vflsim.streams import few
from vflsim.world.kernel import World
from vflsim.world.messages import Message
from vflsim.world.task import Signal


class Wanted(Signal):
    """One receive, and the signal that answers it: ``count`` messages, from distinct ``senders`` if they are given.

    ``turn`` is its number among the receives of the mailbox, ``since`` the time at which it began (s), ``patient`` is
    whether a timeout will end it, ``hung_up`` whether a crash of its only sender has ended it.
    """

    __slots__ = (
        "_mailbox",
        "count",
        "heard",
        "hung_up",
        "kind",
        "met",
        "patient",
        "round",
        "senders",
        "since",
        "timed_out",
        "turn",
    )

    value: list[Message]

    def __init__(
        self, mailbox: Mailbox, kind: str, round_: int | None, senders: frozenset[int] | None, count: int, turn: int
    ) -> None:
        self._world = world = mailbox.world
        self._mailbox, self._waiter, self.value, self.done = mailbox, None, [], False
        self.kind, self.round, self.senders, self.count, self.turn = kind, round_, senders, count, turn
        self.since, self.patient = world.instant, False
        self.timed_out, self.hung_up, self.met = False, False, 0
        self.heard: set[int] = _NOBODY if senders is None else set()

    @property
    def ready(self) -> bool:
        """Whether it can be answered."""
        return self.met >= self.count or self.timed_out

    def matches(self, message: Message) -> bool:
        """Whether the message is one of those waited for."""
        return (self.round is None or message.round == self.round) and (
            self.senders is None or message.sender in self.senders
        )

    def note(self, message: Message) -> bool:
        """Count an arrival, of several of one awaited sender the first; returns whether this receive is ready."""
        if self.round is None or message.round == self.round:
            if self.senders is None:
                self.met += 1
            elif message.sender in self.senders:
                self.heard.add(message.sender)
                self.met = len(self.heard)
        return self.met >= self.count or self.timed_out

    def forsake(self) -> None:
        """Withdraw, and give back what was handed over in the very instant in which the wait was abandoned."""
        self._mailbox.withdraw(self)
        if self.done:
            self._mailbox.give_back(self.value)

    def recount(self, messages: Iterable[Message]) -> None:
        """Count the messages that are here, up to ``count``."""
        self.met = 0
        if self.heard:
            self.heard.clear()
        for message in messages:
            if self.met >= self.count:
                return
            self.note(message)

    def time_out(self) -> None:
        """Stop waiting at the end of this instant, with the messages that have arrived by then."""
        self.timed_out = True
        self._mailbox.collect(self)

    def hang_up(self) -> None:
        """Stop waiting for a sender that has crashed."""
        self.hung_up = True
        self.time_out()

    def forgo(self, sender: int) -> None:
        """No longer wait for ``sender``, unless its message is here."""
        if self.senders is not None and sender in self.senders and sender not in self.heard:
            self.senders -= {sender}
            self.count -= 1
            if self.ready:
                self._mailbox.collect(self)

    def __str__(self) -> str:
        what = f"{self.kind!r}" + (f" of round {self.round}" if self.round is not None else "")
        if self.senders is not None:
            silent = sorted(self.senders - self.heard)
            return f"{what} from " + few(["the server" if s == 0 else f"client {s}" for s in silent])
        return f"{self.count} × {what} ({self.met} here)" if self.count > 1 else what


_NOBODY: set[int] = set()  # of receives that do not ask who has sent


@dataclass(eq=False, slots=True)
class ArrivalWatch:
    """A call to make the moment a message of ``kind`` (and ``round``) arrives."""

    kind: str
    round: int | None
    call: Callable[[], None]


class Mailbox:
    """Messages that have arrived and receives that wait for them.

    Invariants: a message is handed out once, and is either here or with its receiver; a receive resolves at the end of
    the instant, with its messages in (arrival time, party) order; a withdrawn receive takes nothing with it. Rounds
    ascend: a receive of one round drops the messages of its kind and senders that belong to earlier rounds, unless
    another receive waits for them or they come ``in_any_order``.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._messages: dict[str, list[Message]] = {}  # by kind, in (arrival time, party) order
        self._wanted: dict[str, list[Wanted]] = {}
        self._watches: dict[str, list[ArrivalWatch]] = {}
        self._received: dict[str, float] = {}  # when the latest message of a kind that was handed out had arrived
        self.read: dict[int, float] = {}
        """When a message of each sender was handed out last (s), but for those that evaluations waited for."""
        self.in_any_order: set[str] = set()
        """The kinds of messages whose rounds do not ascend: a receive drops none of them."""
        self._ready: list[Wanted] = []  # to be answered as this instant ends
        self._turn = 0

    def deliver(self, message: Message) -> None:
        """Take in a message: it ends ``until`` blocks at once, and is handed out as the instant ends."""
        message.arrived = self.world.instant
        self._put(message)
        if self._watches and (watches := self._watches.get(message.kind)):
            for watch in [w for w in watches if w.round is None or w.round == message.round]:
                if watch in watches:  # the end of an outer block may have withdrawn it
                    watches.remove(watch)
                    watch.call()

    def want(
        self, kind: str, count: int | None, senders: Collection[int] | None = None, round_: int | None = None
    ) -> Wanted:
        """Begin to wait for ``count`` messages, for one from each of ``senders``, or from ``count`` of them."""
        chosen = None if senders is None else frozenset(senders)
        self._turn += 1
        enough = len(chosen or ()) if count is None else count
        wanted = Wanted(self, kind, round_, chosen, enough, self._turn)
        if self._messages.get(kind):
            if round_ is not None:
                self._drop_outdated(wanted, round_)
            wanted.recount(self._messages[kind])
        if kind in self._wanted:
            self._wanted[kind].append(wanted)
        else:
            self._wanted[kind] = [wanted]
        if wanted.met >= wanted.count:
            self.collect(wanted)
        return wanted

    def withdraw(self, wanted: Wanted) -> None:
        """Stop waiting; no message is touched."""
        waiting = self._wanted[wanted.kind]
        if wanted in waiting:
            waiting.remove(wanted)

    def give_back(self, messages: list[Message]) -> None:
        """Take back messages whose receiver was abandoned before it saw them."""
        for message in messages:
            self._put(message)

    def take(self, kind: str, round_: int | None = None) -> list[Message]:
        """Remove and return the messages of ``kind`` that are here (of one round)."""
        return self._remove(kind, lambda message: round_ is None or message.round == round_)

    def has(self, kind: str, round_: int | None) -> bool:
        """Whether such a message is here."""
        return any(round_ is None or message.round == round_ for message in self._messages.get(kind, ()))

    def awaited(self, kind: str, sender: int) -> list[int]:
        """Return the rounds of which a message of ``kind`` from ``sender`` is waited for, and not here."""
        return sorted(
            wanted.round
            for wanted in self._wanted.get(kind, ())
            if wanted.round is not None and wanted.senders is not None and sender in wanted.senders - wanted.heard
        )

    def unread(self) -> Iterator[tuple[Message, float]]:
        """The messages that are here, each with the arrival time (s) of the latest of its kind that was received.

        A message that is earlier was passed over; −1 if none of its kind was received.
        """
        for kind, messages in self._messages.items():
            for message in messages:
                yield message, self._received.get(kind, -1.0)

    def watch(self, kind: str, round_: int | None, call: Callable[[], None]) -> ArrivalWatch:
        """Call ``call`` the moment such a message arrives, once."""
        watch = ArrivalWatch(kind, round_, call)
        self._watches.setdefault(kind, []).append(watch)
        return watch

    def unwatch(self, watch: ArrivalWatch) -> None:
        """No longer make the call; nothing if it has been made."""
        watches = self._watches[watch.kind]
        if watch in watches:
            watches.remove(watch)

    def collect(self, wanted: Wanted) -> None:
        """Answer a receive that is ready as this instant ends, if it still is."""
        if not self._ready:
            at_end = self.world.at_end
            at_end(self._resolve)
        if wanted not in self._ready:
            self._ready.append(wanted)

    def clear(self) -> None:
        """Drop all messages, but for the kinds that an observer waits for, and the calls of blocks that have ended."""
        for kind, messages in self._messages.items():
            if not self._wanted.get(kind):
                messages.clear()
        for watches in self._watches.values():
            watches.clear()

    def _drop_outdated(self, wanted: Wanted, round_: int) -> None:
        if wanted.kind in self.in_any_order:
            return
        others = self._wanted.get(wanted.kind, ())
        self._remove(
            wanted.kind,
            lambda message: (
                0 <= message.round < round_
                and (wanted.senders is None or message.sender in wanted.senders)
                and not any(other.matches(message) for other in others)
            ),
        )

    def _remove(self, kind: str, chosen: Callable[[Message], bool]) -> list[Message]:
        removed: list[Message] = []
        rest: list[Message] = []
        for message in self._messages.get(kind, ()):
            (removed if chosen(message) else rest).append(message)
        if removed:
            self._messages[kind] = rest
            self._recount(kind)
            for message in removed:
                self.read[message.sender] = self.world.instant
        return removed

    def _put(self, message: Message) -> None:
        kind = message.kind
        here = self._messages.get(kind)
        if not here:
            if here is None:
                here = self._messages[kind] = []
            here.append(message)
        elif here[-1].arrived < message.arrived:  # mostly: time has passed
            here.append(message)
        else:
            insort(here, message, key=_order)
        if waiting := self._wanted.get(kind):
            for wanted in waiting:
                if wanted.note(message):
                    self.collect(wanted)

    def _resolve(self) -> None:
        ready, self._ready = self._ready, []
        if len(ready) > 1:
            ready.sort(key=_turn)  # the longest wait is answered first
        answered: list[Wanted] = []
        for wanted in ready:
            waiting = self._wanted[wanted.kind]
            # It may have been withdrawn, and the receives before it may have taken its messages.
            if (wanted.met >= wanted.count or wanted.timed_out) and wanted in waiting:
                waiting.remove(wanted)
                wanted.value, wanted.done = self._pick(wanted), True
                answered.append(wanted)
                if waiting:
                    self._recount(wanted.kind)
        if len(answered) == 1:
            answered[0].wake()  # nothing could come before it
        else:
            for wanted in answered:
                self.world.soon(wanted.wake)

    def _recount(self, kind: str) -> None:
        """Let the receives count anew after some messages were taken."""
        for wanted in self._wanted.get(kind, ()):
            wanted.recount(self._messages[kind])

    def _pick(self, wanted: Wanted) -> list[Message]:
        """Take the messages for a receive out of those that are here."""
        kind, messages = wanted.kind, self._messages.get(wanted.kind, [])
        if wanted.met == len(messages) <= wanted.count:
            picked, self._messages[kind] = messages, []  # mostly: all are for it
        else:
            picked = self._chosen(wanted, messages)
        if wanted._waiter is None or not wanted._waiter.observer:
            read, now = self.read, self.world.instant
            for message in picked:
                read[message.sender] = now
        if picked and picked[-1].arrived > self._received.get(kind, -1.0):
            self._received[kind] = picked[-1].arrived
        return picked

    def _chosen(self, wanted: Wanted, messages: list[Message]) -> list[Message]:
        picked: list[Message] = []
        passed: list[Message] = []
        heard: set[int] = set()
        looked = 0
        for message in messages:
            if len(picked) == wanted.count:
                break
            looked += 1
            if wanted.matches(message) and not (wanted.senders is not None and message.sender in heard):
                heard.add(message.sender)
                picked.append(message)
            else:
                passed.append(message)
        messages[:looked] = passed
        return picked


_turn = attrgetter("turn")


def _order(message: Message) -> tuple[float, int]:
    return message.arrived, message.sender
