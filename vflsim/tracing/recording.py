"""Run a protocol's coroutines once, on recording nodes; cut what they note into what comes first, and a round."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from vflsim.errors import VflsimError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.learning.learners.watch import from_outside
from vflsim.learning.models.build import drawing_apart
from vflsim.setting import BatchPlan, Learners, Setting
from vflsim.streams import SERVER, few, party_name
from vflsim.tracing.node import TRACED, RecordingNode, RoundCounts, Untraceable
from vflsim.tracing.notes import Fork, Note, Notes, Reception, Row, Sending, Wait, Work, follows, signature
from vflsim.vocabulary.imported import origin
from vflsim.vocabulary.on_demand import torch
from vflsim.world.encrypting_node import encrypting
from vflsim.world.node import Node
from vflsim.world.party import Draws, Party, PartyClock, RunContext
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld
from vflsim.world.wire import Wires

Makes: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]
"""Makes a party's coroutine, given its node."""
ROUNDS, ROUNDS_FROM_OUTSIDE = 3, 30
"""The rounds of a trace: two that follow each other alike, and one more; of protocols from outside many more, which may
count rounds for themselves."""
_PARTY_ROUNDS = 4_000
"""Rounds of all parties together up to which there are so many."""


class Traceable(Protocol):
    """What a trace needs of a protocol."""

    async def server(self, node: Any) -> None:
        """Run the server."""

    async def client(self, node: Any) -> None:
        """Run one client."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the learners of a run."""

    def batch_plan(self) -> BatchPlan:
        """Return the mini-batches of its rounds."""


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What all parties note in some rounds, in order; ``beside``: of what they have started and do not wait for.

    ``reasons`` say why times might change what they do. ``by_number``: clients ask for their number.
    """

    server: Notes
    clients: Mapping[int, Notes]
    beside: Sequence[tuple[int, Notes]]
    reasons: tuple[str, ...]
    by_number: bool


class _Alike(BatchSequence):
    """Batches that are all like one."""

    def __init__(self, sequence: BatchSequence, batch: Batch, origin: int) -> None:
        self.__dict__.update(vars(sequence))
        self.origin, self._one = origin, replace(batch, origin=origin)

    def batch(self, k: int) -> Batch:
        return replace(self._one, index=k)


def record(
    protocol: Traceable,
    setting: Setting,
    seed: int,
    batch: Batch,
    clients: Sequence[int] | None = None,
    late: int | None = None,
    rounds: int | None = None,
    coroutines: tuple[Makes, Makes] | None = None,
    placed: bool = True,
    shuffles: str = "",
) -> RunNotes:
    """Return what a protocol's parties do in its first ``rounds`` rounds (None: a few), on batches like ``batch``.

    ``clients``: those that take part; None: all. ``late``: a client that is, wherever the server need not wait
    for all. ``coroutines`` take the place of the protocol's, the server's first: the trace ends with it. ``placed``:
    the nodes of a reference are those on which some verbs are free. ``shuffles``: the kind of messages that waits
    give in the order of ``shuffled``. Raises ``Untraceable`` with the reason.

    Example::

        notes = record(Synchronous(), setting, 0, Batch(0, np.arange(4)))
        [type(note).__name__ for note in notes.clients[1][:3]]  # ['AwaitedActivation', 'Work', 'Sending']
    """
    learners = protocol.learners(setting, seed)
    taking_part = tuple(learners.clients) if clients is None else tuple(clients)
    world = VirtualWorld(TimingOnlyExecutor())
    recorder = RoundCounts()
    plan = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
    if rounds is None:
        many = min(ROUNDS_FROM_OUTSIDE, _PARTY_ROUNDS // (1 + len(taking_part)))
        rounds = max(ROUNDS, many) if from_outside(protocol) else ROUNDS
    shared = RunContext(
        world,
        Transport(world, setting.network, [timing.link for timing in setting.timings], seed, recorder),
        recorder,
        Wires(setting.codec, world.executor, seed),
        taking_part,
        _Alike(plan, batch, batch.origin),
        protocol=type(protocol).__name__,
    )
    nodes = dict[int, RecordingNode]()
    for party in (*taking_part, SERVER):
        sequence = _Alike(plan, batch, party) if setting.training.batches == "own" else shared.sequence
        timing = setting.timings[party]
        state = Party(party, shared, PartyClock(timing.compute, timing.upload_delay), Draws(seed, party), sequence)
        learner = learners.clients[party] if party else learners.server
        nodes[party] = RecordingNode(state, learner, rounds, late, shuffles)
    for party, node in nodes.items():
        serve, take_part = coroutines or (protocol.server, protocol.client)
        party_node = _placed(protocol, node) if placed else encrypting(node)
        world.spawn(take_part(party_node) if party else _to_its_end(serve, party_node, world), party_name(party), party)
    outside = from_outside(protocol)
    try:
        with drawing_apart(setting.device):  # code from outside may draw
            before = _drawn() if outside else ()
            world.run()
            draws = outside and _drawn() != before
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, Untraceable):
            raise cause from None
        what = error.what if isinstance(error, VflsimError) else f"{type(error).__name__}: {error}"
        raise Untraceable(f"{what} ({origin(cause)})") from error
    finally:
        world.close()
    reasons = dict.fromkeys(reason for node in nodes.values() for reason in node.reasons)
    if draws:
        reasons[f"{type(protocol).__name__} draws random numbers"] = None
    return RunNotes(
        nodes[SERVER].notes,
        {client: nodes[client].notes for client in taking_part},
        [(party, notes) for party, node in nodes.items() for notes in node.beside],
        tuple(reasons),
        any(nodes[client].asked_for_its_number for client in taking_part),
    )


def _drawn() -> tuple[object, ...]:
    _, key, *rest = np.random.get_state()
    return random.getstate(), np.asarray(key).tobytes(), rest, torch.get_rng_state().numpy().tobytes()


async def _to_its_end(serve: Makes, node: Node[Any], world: VirtualWorld) -> None:
    await serve(node)
    world.finish(TRACED)


def _placed(protocol: Any, node: RecordingNode) -> Node[Any]:
    """Return the node that a party gets: of a reference, one on which some verbs are free."""
    placed, party_node = getattr(protocol, "placed", None), encrypting(node)
    return party_node if placed is None else placed(party_node)


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
    if ends != 1:
        raise Untraceable(f"what the server repeats has {ends} steps that end a round; allowed: one")
    if any(isinstance(note, Work) and note.operation.counts == "round" for note in before):
        raise Untraceable("the server ends a round before it begins to repeat itself")
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
