"""A party's mailbox: receives that match by kind, round and sender, and blocks that a message ends."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from vflsim.world.kernel import Moment, Signal, World
from vflsim.world.messages import Message


@dataclass(eq=False, slots=True)
class Wanted:
    """One receive that waits: ``count`` messages, or one from each of ``senders``."""

    signal: Signal
    kind: str
    round: int | None
    senders: frozenset[int] | None
    count: int
    turn: int
    """How many receives of the mailbox began before it."""
    timed_out: bool = False
    met: int = 0
    heard: set[int] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether it can be answered."""
        return self.met >= self.count or self.timed_out

    def matches(self, message: Message) -> bool:
        """Whether the message is one of those waited for."""
        return (self.round is None or message.round == self.round) and (
            self.senders is None or message.sender in self.senders
        )

    def note(self, message: Message) -> None:
        """Count an arrival; of several messages of one awaited sender the first counts."""
        if self.matches(message):
            if self.senders is None:
                self.met += 1
            else:
                self.heard.add(message.sender)
                self.met = len(self.heard)

    def recount(self, messages: Iterable[Message]) -> None:
        """Count what is here, up to what is enough."""
        self.met = 0
        self.heard.clear()
        for message in messages:
            if self.met >= self.count:
                return
            self.note(message)

    def __str__(self) -> str:
        what = f"{self.kind!r}" + (f" of round {self.round}" if self.round is not None else "")
        if self.senders is not None:
            silent = sorted(self.senders - self.heard)
            return f"{what} from " + ", ".join("the server" if s == 0 else f"client {s}" for s in silent)
        return f"{self.count} × {what} ({self.met} here)" if self.count > 1 else what


@dataclass(eq=False, slots=True)
class Watch:
    """A call to make the moment a message of ``kind`` (and ``round``) arrives."""

    kind: str
    round: int | None
    call: Callable[[], None]


class Mailbox:
    """Messages that have arrived and receives that wait for them.

    Invariants: a message is handed out once, and is either here or with its receiver; a receive resolves at the end of
    the instant, with its messages in (arrival time, party) order; a withdrawn receive takes nothing with it.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._messages: dict[str, list[Message]] = {}  # by kind, in (arrival time, party) order
        self._wanted: dict[str, list[Wanted]] = {}
        self._watches: dict[str, list[Watch]] = {}
        self._collecting = False
        self._turn = 0

    def deliver(self, message: Message) -> None:
        """A message arrives: it ends the blocks it makes useless at once, and is handed out as the instant ends."""
        message.arrived = self._world.now()
        self._put(message)
        watches = self._watches.get(message.kind, [])
        for watch in [w for w in watches if w.round is None or w.round == message.round]:
            if watch in watches:  # the end of an outer block may have withdrawn it
                watches.remove(watch)
                watch.call()

    def want(self, kind: str, count: int, senders: Collection[int] | None = None, round_: int | None = None) -> Wanted:
        """Begin to wait for ``count`` messages, or for one from each of ``senders``."""
        chosen = None if senders is None else frozenset(senders)
        self._turn += 1
        enough = count if chosen is None else len(chosen)
        wanted = Wanted(self._world.signal(), kind, round_, chosen, enough, self._turn)
        wanted.signal.about = wanted
        wanted.recount(self._messages.get(kind, ()))
        self._wanted.setdefault(kind, []).append(wanted)
        self._collect_if_ready(wanted)
        return wanted

    def time_out(self, wanted: Wanted) -> None:
        """Stop waiting at the end of this instant, with whatever has arrived by then."""
        wanted.timed_out = True
        self._collect_if_ready(wanted)

    def withdraw(self, wanted: Wanted) -> None:
        """Stop waiting; no message is touched."""
        waiting = self._wanted[wanted.kind]
        if wanted in waiting:
            waiting.remove(wanted)

    def give_back(self, messages: list[Message]) -> None:
        """Messages handed to a receiver that was abandoned before it saw them."""
        for message in messages:
            self._put(message)

    def take(self, kind: str, round_: int | None = None, before: int | None = None) -> list[Message]:
        """Remove and return what has arrived of ``kind`` (of one round, or of rounds ``before`` a number)."""
        taken: list[Message] = []
        kept: list[Message] = []
        for message in self._messages.get(kind, ()):
            meant = (round_ is None or message.round == round_) and (before is None or message.round < before)
            (taken if meant else kept).append(message)
        if taken:
            self._messages[kind] = kept
            self._recount(kind)
        return taken

    def has(self, kind: str, round_: int | None) -> bool:
        """Whether such a message is here."""
        return any(round_ is None or message.round == round_ for message in self._messages.get(kind, ()))

    def watch(self, kind: str, round_: int | None, call: Callable[[], None]) -> Watch:
        """Call ``call`` the moment such a message arrives, once."""
        watch = Watch(kind, round_, call)
        self._watches.setdefault(kind, []).append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """No longer make the call; nothing if it has been made."""
        watches = self._watches[watch.kind]
        if watch in watches:
            watches.remove(watch)

    def _put(self, message: Message) -> None:
        insort(self._messages.setdefault(message.kind, []), message, key=_order)
        for wanted in self._wanted.get(message.kind, ()):
            wanted.note(message)
            self._collect_if_ready(wanted)

    def _collect_if_ready(self, wanted: Wanted) -> None:
        if wanted.ready and not self._collecting:
            self._collecting = True
            self._world.after(0.0, self._resolve, Moment.COLLECT)

    def _resolve(self) -> None:
        self._collecting = False
        ready = [wanted for waiting in self._wanted.values() for wanted in waiting if wanted.ready]
        for wanted in sorted(ready, key=lambda wanted: wanted.turn):  # whoever has waited longest goes on first
            if wanted.ready:  # those before it may have taken what it counted on
                self._wanted[wanted.kind].remove(wanted)
                wanted.signal.set(self._pick(wanted))
                self._recount(wanted.kind)

    def _recount(self, kind: str) -> None:
        """Some messages have been taken: they no longer count."""
        for wanted in self._wanted.get(kind, ()):
            wanted.recount(self._messages[kind])

    def _pick(self, wanted: Wanted) -> list[Message]:
        picked: list[Message] = []
        passed: list[Message] = []
        heard: set[int] = set()
        messages = self._messages.setdefault(wanted.kind, [])
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


def _order(message: Message) -> tuple[float, int]:
    return message.arrived, message.sender
