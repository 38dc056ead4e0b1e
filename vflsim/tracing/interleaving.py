"""From what server and clients do, the acts of a round in one order, as recurrences play them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vflsim.streams import SERVER
from vflsim.tracing.acts import (
    Act,
    Activated,
    Acts,
    ClientDelay,
    ClientSleep,
    ClientWork,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToServer,
)
from vflsim.tracing.node import Untraceable
from vflsim.tracing.notes import AwaitedActivation, How, Note, Reception, Sending, Wait, Work, signature
from vflsim.tracing.recording import TracePart, named


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The server sends every client such a message, by client."""

    each: Mapping[int, Sending]

    @property
    def kind(self) -> str:
        """The kind of the messages."""
        return next(iter(self.each.values())).message.kind


@dataclass(frozen=True, slots=True)
class ClientTurns:
    """The server deals with one client after the other: by client, what it does, and the message that ends the turn."""

    each: Mapping[int, Sequence[Work | Sending | Reception]]


ServerNote = Work | Reception | Broadcast | ClientTurns
_Doing = tuple[Note, frozenset[int] | None]
"""A note of one client, and the clients that do this; None: all."""


def interleaved(part: TracePart) -> dict[int, Acts]:
    """Return the acts of each client and of the server. Clients that do the same have equal acts; one stands for them.

    Raises ``Untraceable`` with the reason if no order of acts takes the same times.
    """
    if not part.clients:
        served = (ServerWork(note.operation) for note in part.server if isinstance(note, Work))
        acts = tuple(served)
        if len(acts) < len(part.server):
            raise Untraceable(f"a server without clients does more than compute ({named(part.server)})")
        return {SERVER: acts}
    served_ = grouped(part.server, [*part.clients])
    doing = _aligned(part.clients)
    return {client: _Order(client, notes).of(served_) for client, notes in doing.items()}


def grouped(notes: Sequence[Note], clients: list[int]) -> list[ServerNote]:
    """Return what the server does with messages to all clients, waits for all, and turns as one thing each."""
    groups: list[ServerNote] = []
    place = 0
    while place < len(notes):
        note = notes[place]
        turns = _turns(notes[place:], clients)
        if turns is not None:
            groups.append(turns[0])
            place += turns[1]
        elif isinstance(note, Work):
            if note.ahead % len(clients):
                raise Untraceable(f"the server begins to work between messages that it sends at once ({named([note])})")
            groups.append(replace(note, ahead=note.ahead // len(clients)))
            place += 1
        elif isinstance(note, Sending):
            each = notes[place : place + len(clients)]
            sent = {to.message.receiver: to for to in each if isinstance(to, Sending) and not to.delayed}
            if sorted(sent) != sorted(clients) or len({to.message.kind for to in sent.values()}) > 1:
                raise Untraceable(f"the server does not send all clients the same kind of message ({named(each)})")
            groups.append(Broadcast(sent))
            place += len(clients)
        elif isinstance(note, Reception):
            each = notes[place : place + len(clients)]
            from_each = [one.senders for one in each if isinstance(one, Reception) and one.kind == note.kind]
            if len(clients) > 1 and sorted(from_each) == [(client,) for client in sorted(clients)]:
                how: How = "each" if note.how == "beside" else "singly"
                groups.append(Reception(note.kind, note.round, tuple(clients), len(clients), note.patient, how))
                place += len(clients)
            elif set(note.senders) == set(clients):
                groups.append(note)
                place += 1
            else:
                raise Untraceable(f"the server waits for some of the clients ({named([note])})")
        else:
            raise Untraceable(f"the server waits for times ({named([note])})")
    return groups


def _turns(notes: Sequence[Note], clients: list[int]) -> tuple[ClientTurns, int] | None:
    """Return the turns with which the notes begin, and the number of notes that these are."""
    end = next((place for place, note in enumerate(notes) if isinstance(note, Reception)), None)
    if end is None or len(clients) < 2:
        return None
    length = end + 1
    blocks = [notes[place * length : (place + 1) * length] for place in range(len(clients))]
    each: dict[int, Sequence[Work | Sending | Reception]] = {}
    for client, block in zip(clients, blocks, strict=True):
        turn = [note for note in block if isinstance(note, Work | Sending | Reception)]
        to = [note.message.receiver for note in turn if isinstance(note, Sending)]
        last = turn[-1] if turn else None
        if len(turn) < length or to != [client] or not isinstance(last, Reception) or last.senders != (client,):
            return None
        each[client] = turn
    return ClientTurns(each), length * len(clients)


def _aligned(clients: Mapping[int, Sequence[Note]]) -> dict[int, list[_Doing]]:
    """Return what every client does, where all do the same but for computations that some leave out."""
    keys = {client: signature(notes) for client, notes in clients.items()}
    fullest = max(clients, key=lambda client: len(clients[client]))
    whole, key = clients[fullest], keys[fullest]
    places: dict[object, list[int | None]] = {}
    for client, pattern in keys.items():
        if pattern not in places:
            places[pattern] = _matched(pattern, key, clients[client])
    by = [
        frozenset(client for client, pattern in keys.items() if places[pattern][place] is not None)
        for place in range(len(whole))
    ]
    doings = {}
    for client, notes in clients.items():
        mine = places[keys[client]]
        doings[client] = [
            (whole[place] if (at := mine[place]) is None else notes[at], some if len(some) < len(clients) else None)
            for place, some in enumerate(by)
        ]
    return doings


def _matched(pattern: tuple[object, ...], whole: tuple[object, ...], notes: Sequence[Note]) -> list[int | None]:
    """Return the place in a client's notes of each note of the client that does most; None where it leaves it out."""
    places: list[int | None] = []
    next_ = 0
    for place, note in enumerate(whole):
        rests = len(whole) - place, len(pattern) - next_
        alike = next_ < len(pattern) and _what(pattern[next_]) == _what(note)
        if alike and (rests[0] == rests[1] or not isinstance(notes[next_], Work) or pattern[next_] == note):
            places.append(next_)
            next_ += 1
        else:
            places.append(None)
    if next_ < len(pattern):
        raise Untraceable(f"clients do different things ({named(notes)})")
    return places


def _what(signature_: object) -> object:
    """Return what of a signature is alike for clients with other models: its kind."""
    return signature_[0] if isinstance(signature_, tuple) and signature_ else signature_


def _waits_for_the_end(acts: Sequence[Act]) -> bool:
    """Return whether clients wait for a message that the server sends after the step that ends a round."""
    ends = [place for place, act in enumerate(acts) if isinstance(act, ServerWork) and act.operation.counts == "round"]
    first = next((act for act in acts if not isinstance(act, ServerWork | Activated)), None)
    return not ends or isinstance(first, ToClients | None) or any(isinstance(act, ToClients) for act in acts[ends[0] :])


class _Order:
    """Plays one client's notes and the server's against each other.

    Invariants: a client has sent what the server waits for; it waits for what the server sends.
    """

    def __init__(self, client: int, notes: list[_Doing]) -> None:
        self._client, self._notes, self._place = client, notes, 0
        self._sent: list[str] = []
        self._busy = True
        self._acts: list[Act] = []

    def of(self, served: Sequence[ServerNote]) -> Acts:
        """Return the acts."""
        self._go_on()
        for note in served:
            if isinstance(note, Work):
                self._acts.append(ServerWork(note.operation, note.ahead))
            elif isinstance(note, Reception):
                self._heard(note)
            elif isinstance(note, Broadcast):
                self._take_up(note.each[self._client])
            else:
                self._take_turn(note.each[self._client])
        if self._place < len(self._notes) or self._sent:
            rest = [note for note, _ in self._notes[self._place :]]
            raise Untraceable(
                f"a client {named(rest)}, which the server does not answer"
                if rest
                else f"the server does not wait for {self._sent[0]!r} messages in the round in which clients send them"
            )
        if not _waits_for_the_end(self._acts):
            raise Untraceable("clients begin another round before the server has ended one")
        return tuple(self._acts)

    def _go_on(self) -> None:
        while self._place < len(self._notes):
            note, by = self._notes[self._place]
            if isinstance(note, Reception):
                return
            self._acts.append(self._act(note, by))
            self._place += 1

    def _act(self, note: Note, by: frozenset[int] | None) -> Act:
        if isinstance(note, Work):
            self._busy = True
            return ClientWork(note.operation, by)
        if isinstance(note, AwaitedActivation):
            self._busy = True
            return Activated()
        if isinstance(note, Wait):
            self._busy = True
            if note.seconds is not None:
                return ClientSleep(note.seconds)
            return ClientDelay(note.purpose, note.factor, note.round)
        if isinstance(note, Sending):
            if note.message.receiver != SERVER:
                raise Untraceable(f"clients send each other {note.message.kind!r} messages")
            if not note.delayed:
                raise Untraceable(f"clients send {note.message.kind!r} messages without their upload delay")
            self._sent.append(note.message.kind)
            self._busy = False
            return ToServer(note.message)
        raise Untraceable(f"a client does what no recurrence knows ({named([note])})")

    def _heard(self, note: Reception) -> None:
        if self._sent != [note.kind]:
            raise Untraceable(f"the server waits for {note.kind!r} messages, and clients have sent {self._sent}")
        self._sent = []
        self._acts.append(ServerWaits(None if note.of_all else note.count, note.how))

    def _take_up(self, note: Sending) -> None:
        """The client takes up the message at once if all that it has done since is to wait for it."""
        where = self._notes[self._place][0] if self._place < len(self._notes) else None
        if not isinstance(where, Reception) or where.kind != note.message.kind:
            raise Untraceable(f"the server sends {note.message.kind!r} messages, for which clients do not wait")
        self._place += 1
        self._acts.append(ToClients(note.message, note.passed_on, busy=self._busy))
        self._busy = False
        self._go_on()

    def _take_turn(self, notes: Sequence[Work | Sending | Reception]) -> None:
        outer, self._acts = self._acts, []
        for note in notes:
            if isinstance(note, Work):
                self._acts.append(ServerWork(note.operation))
            elif isinstance(note, Sending):
                self._take_up(note)
            elif self._sent != [note.kind]:
                raise Untraceable(f"the server waits for a client's {note.kind!r}, and it has sent {self._sent}")
        self._sent = []
        inner = tuple(self._acts)
        if not isinstance(inner[-1], ToServer) or any(isinstance(act, ToClients) and act.busy for act in inner):
            raise Untraceable("clients work on while others have their turns")
        self._acts = [*outer, InTurn(inner)]
