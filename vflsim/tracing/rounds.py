"""A trace cut into what comes before the first round, and a round: what every later one repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vflsim.streams import few, party_name
from vflsim.tracing.node import Untraceable
from vflsim.tracing.notes import Fork, Note, Notes, Reception, Row, Sending, Wait, Work, follows, signature
from vflsim.tracing.recording import RunNotes


@dataclass(frozen=True, slots=True)
class TracePart:
    """What the server does, in order, and each client: without forks, and without rows of tables."""

    server: Sequence[Note]
    clients: Mapping[int, Sequence[Note]]


@dataclass(frozen=True, slots=True)
class Statement:
    """What parties do ``before`` the first round, and in each ``round``. ``rows``: what the server records first."""

    before: TracePart
    round: TracePart
    rows: Sequence[Row]


def statement(recording: RunNotes, by_hand: bool = False) -> Statement:
    """Cut a recording. Raises ``Untraceable`` with the reason if rounds do not repeat, or depend on times.

    ``by_hand``: a recurrence by hand knows what depends on times.

    Example::

        parts = statement(record(Synchronous(), setting, 0, Batch(0, np.arange(4))))
        len(parts.round.clients[1]), len(parts.before.server)  # (5, 0)
    """
    if recording.reasons and not by_hand:
        raise Untraceable(few(recording.reasons, "; "))
    for party, notes in recording.beside:
        if not all(isinstance(note, Reception) for note in notes):  # one that only waits may answer late messages
            raise Untraceable(f"{party_name(party)} does something beside its main line ({named(notes)})")
    rows, server = _without_rows(recording.server)
    before, round_ = _cut(in_order(server), "the server")
    awaited = [note for note in (*before, *round_) if isinstance(note, Reception) and not note.of_all]
    if awaited and not by_hand:
        limit = "for some time" if awaited[0].patient else f"for {awaited[0].count} of {len(awaited[0].senders)}"
        raise Untraceable(f"the server waits {limit} ({awaited[0].kind!r} messages): who that is depends on times")
    ends = sum(isinstance(note, Work) and note.operation.counts == "round" for note in round_)
    if ends != 1 or any(isinstance(note, Work) and note.operation.counts == "round" for note in before):
        raise Untraceable(f"what the server repeats has {ends} steps that end a round; allowed: one")
    cuts: dict[object, tuple[int, int]] = {}
    first: dict[int, Sequence[Note]] = {}
    again: dict[int, Sequence[Note]] = {}
    for client, notes in recording.clients.items():
        key = signature(notes)
        line = in_order(notes)
        if key not in cuts:
            start, part = _cut(line, party_name(client))
            cuts[key] = len(start), len(part)
        start_length, length = cuts[key]
        first[client], again[client] = line[:start_length], line[start_length : start_length + length]
    return Statement(TracePart(before, first), TracePart(round_, again), rows)


def _without_rows(notes: Notes) -> tuple[list[Row], Notes]:
    """Return the rows with which the notes begin, and the other notes."""
    count = next((place for place, note in enumerate(notes) if not isinstance(note, Row)), len(notes))
    rows = [note for note in notes[:count] if isinstance(note, Row)]
    return rows, notes[count:]


def _cut(notes: Sequence[Note], who: str) -> tuple[Sequence[Note], Sequence[Note]]:
    """Return what comes first, and what repeats from then on: at least twice."""
    if any(isinstance(note, Row) for note in notes):
        raise Untraceable(f"{who} records rows in the course of the run")
    best: tuple[int, int] | None = None
    for length in range(1, len(notes) // 2 + 1):
        start = len(notes) - length
        while start > 0 and follows(notes[start - 1], notes[start - 1 + length]):
            start -= 1
        if len(notes) - start >= 2 * length and (best is None or start < best[0]):
            best = start, length
    if best is None and notes:
        raise Untraceable(f"the rounds of {who} are not alike ({named(notes)})")
    start, length = best or (0, 0)
    return notes[:start], notes[start : start + length]


def in_order(notes: Sequence[Note]) -> list[Note]:
    """Put what is done beside each other into one order that takes the same times.

    Sendings without a delay take no time, so they come first; one computation may follow; then all wait. Raises
    ``Untraceable`` if something has a delay, if what comes after a wait would not wait for the others, or if several
    computations would wait for each other.
    """
    ordered: list[Note] = []
    for note in notes:
        if isinstance(note, Fork):
            ordered += _joined([in_order(branch) for branch in note.branches])
        else:
            ordered.append(note)
    return ordered


def _joined(branches: list[list[Note]]) -> Iterator[Note]:
    branches = [branch for branch in branches if branch]
    if len(branches) <= 1:
        yield from (note for branch in branches for note in branch)
        return
    working = [branch for branch in branches if any(isinstance(note, Work | Wait) for note in branch)]
    if len(working) > 1:
        raise Untraceable(f"a party computes or waits several times beside each other ({named(working[1])})")
    if any(isinstance(note, Sending) and note.delayed for branch in branches for note in branch):
        raise Untraceable("a party sends something after its upload delay beside something else")
    rest = [[*branch] for branch in branches]
    ahead = 0
    for branch in rest:
        ahead = 0 if branch in working else ahead
        while branch and isinstance(branch[0], Sending):
            ahead += branch not in working
            yield branch.pop(0)
    for kind in (Work | Wait, Reception):
        for branch in rest:
            while branch and isinstance(branch[0], kind):
                note = branch.pop(0)
                if isinstance(note, Work):
                    yield replace(note, ahead=ahead)
                    ahead = 0
                else:
                    yield replace(note, how="beside") if isinstance(note, Reception) else note
    if leftovers := [branch for branch in rest if branch]:
        raise Untraceable(f"a party goes on with one thing before it has got the others ({named(leftovers[0])})")


def named(notes: Sequence[Note]) -> str:
    """Name some notes in words."""
    return few([_named(note) for note in notes])


def _named(note: Note) -> str:
    if isinstance(note, Work):
        return note.operation.kind
    if isinstance(note, Sending):
        return f"sends {note.message.kind!r}"
    if isinstance(note, Reception):
        return f"waits for {note.kind!r}"
    return type(note).__name__.lower()
