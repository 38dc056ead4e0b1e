"""A party's mailbox: receives that match by kind, round and sender, and blocks that a message ends."""

from __future__ import annotations

from collections.abc import Callable, Collection
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
    timed_out: bool = False
    met: int = 0
    heard: set[int] = field(default_factory=set)

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

    def __str__(self) -> str:
        what = f"{self.kind!r}" + (f" of round {self.round}" if self.round is not None else "")
        if self.senders is not None:
            silent = sorted(self.senders - self.heard)
            return f"{what} from " + ", ".join("the server" if s == 0 else f"client {s}" for s in silent)
        return f"{self.count} × {what} ({self.met} here)" if self.count > 1 else what


class Mailbox:
    """Messages that have arrived and receives that wait for them.

    Invariants: a message is handed out once, and is either here or with its receiver; a receive resolves at the end of
    the instant, with its messages in (arrival time, party) order; a withdrawn receive takes nothing with it.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._messages: dict[str, list[Message]] = {}
        self._wanted: dict[str, list[Wanted]] = {}
        self._watchers: list[tuple[str, int | None, Callable[[], None]]] = []
        self._collecting = False

    def deliver(self, message: Message) -> None:
        """A message arrives: it ends the blocks it makes useless at once, and is handed out at the end of the instant."""
        message.arrived = self._world.now()
        self._messages.setdefault(message.kind, []).append(message)
        for wanted in self._wanted.get(message.kind, ()):
            wanted.note(message)
            if wanted.met >= wanted.count:
                self._collect()
        for kind, round_, abandon in [w for w in self._watchers if w[0] == message.kind]:
            if round_ is None or round_ == message.round:
                self._watchers.remove((kind, round_, abandon))
                abandon()

    def want(self, kind: str, count: int, senders: Collection[int] | None = None, round_: int | None = None) -> Wanted:
        """Begin to wait for ``count`` messages, or for one from each of ``senders``."""
        chosen = None if senders is None else frozenset(senders)
        wanted = Wanted(self._world.signal(), kind, round_, chosen, count if chosen is None else len(chosen))
        wanted.signal.about = lambda: str(wanted)
        for message in self._messages.get(kind, ()):
            wanted.note(message)
        self._wanted.setdefault(kind, []).append(wanted)
        if wanted.met >= wanted.count:
            self._collect()
        return wanted

    def time_out(self, wanted: Wanted) -> None:
        """Stop waiting at the end of this instant, with whatever has arrived by then."""
        wanted.timed_out = True
        self._collect()

    def withdraw(self, wanted: Wanted) -> None:
        """Stop waiting; no message is touched."""
        waiting = self._wanted[wanted.kind]
        if wanted in waiting:
            waiting.remove(wanted)

    def give_back(self, messages: list[Message]) -> None:
        """Messages handed to a receiver that was abandoned before it saw them."""
        for message in messages:
            self._messages.setdefault(message.kind, []).append(message)
            for wanted in self._wanted.get(message.kind, ()):
                wanted.note(message)
                if wanted.met >= wanted.count:
                    self._collect()

    def take(self, kind: str, round_: int | None = None, before: int | None = None) -> list[Message]:
        """Remove and return what has arrived of ``kind`` (of one round, or of rounds ``before`` a number)."""
        here = self._messages.get(kind, [])

        def meant(message: Message) -> bool:
            return (round_ is None or message.round == round_) and (before is None or message.round < before)

        taken = [message for message in here if meant(message)]
        if taken:
            self._messages[kind] = [message for message in here if not meant(message)]
        return sorted(taken, key=_order)

    def has(self, kind: str, round_: int | None) -> bool:
        """Whether such a message is here."""
        return any(round_ is None or message.round == round_ for message in self._messages.get(kind, ()))

    def watch(self, kind: str, round_: int | None, abandon: Callable[[], None]) -> None:
        """Call ``abandon`` the moment such a message arrives."""
        self._watchers.append((kind, round_, abandon))

    def unwatch(self, abandon: Callable[[], None]) -> None:
        """No longer call ``abandon``."""
        self._watchers = [w for w in self._watchers if w[2] is not abandon]

    def _collect(self) -> None:
        if not self._collecting:
            self._collecting = True
            self._world.after(0.0, self._resolve, Moment.COLLECT)

    def _resolve(self) -> None:
        self._collecting = False
        for kind, waiting in self._wanted.items():
            for wanted in list(waiting):
                if wanted.met >= wanted.count or wanted.timed_out:
                    waiting.remove(wanted)
                    wanted.signal.set(self._pick(kind, wanted))
                    for other in waiting:  # what was taken no longer counts for them
                        other.met, other.heard = 0, set()
                        for message in self._messages.get(kind, ()):
                            other.note(message)

    def _pick(self, kind: str, wanted: Wanted) -> list[Message]:
        picked: list[Message] = []
        heard: set[int] = set()
        for message in sorted(self._messages.get(kind, ()), key=_order):
            if len(picked) < wanted.count and wanted.matches(message):
                if wanted.senders is not None and message.sender in heard:
                    continue
                heard.add(message.sender)
                picked.append(message)
        chosen = set(map(id, picked))
        self._messages[kind] = [message for message in self._messages.get(kind, ()) if id(message) not in chosen]
        return picked


def _order(message: Message) -> tuple[float, int]:
    return message.arrived, message.sender
