"""Rounds that all clients begin together, their acts one after the other; and those of the server alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vflsim.recurrences.ages import UsedAges
from vflsim.recurrences.chunk import Chunk, undecided
from vflsim.recurrences.first_answers import Latecomers
from vflsim.recurrences.played_rounds import PlayedRounds
from vflsim.recurrences.recorded_rounds import RecordedRounds
from vflsim.recurrences.shared_links import SharedLinks
from vflsim.recurrences.timed_acts import (
    Timed,
    TimedAnswers,
    TimedDelay,
    TimedSending,
    TimedService,
    TimedTurns,
    TimedWork,
)
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.arrivals import ActivationProcess
from vflsim.tracing.acts import Activated, ClientSleep, ClientsWait, Late, ServerWaits

_PAUSABLE = Activated | TimedWork | TimedDelay | ClientSleep | TimedService | TimedSending | TimedAnswers | ServerWaits
"""The acts of rounds in which clients may pause."""


class Program:
    """The acts of a round, one after the other: each party's times follow from its own acts and its waits.

    ``shared`` are the links that messages share. ``late`` are the clients for whom the server may not wait; without
    them, they wait for each other first. Raises ValueError for acts that do not say whose work may be late, or what
    becomes of it.
    """

    def __init__(
        self, world: TimedWorld, acts: Timed, shared: SharedLinks | None = None, late: Latecomers | None = None
    ) -> None:
        self._world, self._acts, self._shared = world, acts, shared
        late = late or Latecomers(len(world.clients))
        self._late = None if _waits_for_all(acts, late.gathered) else late
        self._steps = sum(_steps(act) for act in acts)
        self._processes: list[ActivationProcess | None] = []
        if world.pauses and not (self._late is None and all(isinstance(act, _PAUSABLE) for act in acts)):
            raise undecided("clients pause while others wait for them one by one", 0, 0.0)
        if any(isinstance(act, Activated) for act in acts):
            self._processes = world.activations()

    def play(self, first: int, count: int, now: Now) -> Chunk:
        """Play ``count`` rounds from ``first`` on. Raises ``UndecidedError``."""
        rounds = PlayedRounds if now.trail is None else RecordedRounds
        answers = any(isinstance(act, TimedAnswers) for act in self._acts)
        orders = self._world.orders[self._acts is not self._world.before] if answers else ()
        kinds = self._world.kind_of(np.arange(first, first + count))
        chunk = rounds(self._world, first, kinds, now, self._steps, self._processes, self._shared, orders)
        chunk.late = self._late
        plays = [play for act in self._acts for play in chunk.plays(act)]
        links = self._world.shared_links
        if links is not None and links.serial:
            plays = [each for play in plays for each in (play, lambda *_: now.sending.note(now.clients))]
        for k, kind in enumerate(kinds.tolist()):
            for play in plays:
                play(k, kind)
        now.clients, now.arrives = now.clients.copy(), now.arrives.copy()  # not views of what the chunk leaves
        if chunk.pending is not None:
            now.given = chunk.pending.there(len(kinds) - 1, np.empty_like(now.clients))
        return chunk.played()


def _steps(act: object) -> int:
    if isinstance(act, TimedTurns):
        return sum(_steps(inner) for inner in act.acts)
    return int(isinstance(act, TimedWork) and act.steps)


def _waits_for_all(acts: Timed, gathered: bool) -> bool:
    """Return whether the server waits for all clients. Raises ValueError if nothing says what becomes of late ones."""
    counts = [place for place, act in enumerate(acts) if isinstance(act, ServerWaits) and act.count is not None]
    if not counts:
        return True
    (place,) = counts[:1]
    ready = [act for act in acts[:place] if isinstance(act, ClientsWait)]
    late = [act for act in acts[place:] if isinstance(act, TimedAnswers) and act.late is not None]
    if len(counts) > 1 or len(ready) != gathered or len(late) != 1:
        raise ValueError(
            f"a round has {len(counts)} ServerWaits(count=…), {len(ready)} ClientsWait() before the first one, and "
            f"{len(late)} ToClients(…, late=…) after it; allowed: one of each"
        )
    return False


BARRIERS = frozenset({"activation", "blinding", "energy", "pauses"})
"""What of a scenario rounds know whose server waits for all clients.

Example: ``vectorised_with = BARRIERS`` in a class whose ``acts`` begin with ``Activated()``.
"""
WITH_EVENTS = BARRIERS | {"events", "sharing"}
"""What they know where their acts are traced."""


class SynchronousRounds:
    """The acts of ``world.round``, round after round: trips to the server and back, and waits for each other.

    What a protocol does before its first round, such as a key agreement, comes with the first chunk. In rounds of the
    server's work alone (the reference) clients step as it ends, and wait for nothing. Where acts are traced and the
    server does not wait for all, ``late`` says what becomes of the others' work: it waits for the first answers, or
    with a ``deadline`` for so many seconds, and with a ``table`` uses what the others have sent before. Raises
    ``UndecidedError`` if clients wait for activations, and the acts do not.

    Example::

        rounds = SynchronousRounds(TimedWorld(Synchronous(), setting, seed=0))
        rounds.advance(first=0, count=64).ends.shape  # (64,)
    """

    def __init__(
        self, world: TimedWorld, late: Late | None = None, deadline: float | None = None, table: bool = False
    ) -> None:
        few = None if late is None else Latecomers(len(world.clients), UsedAges(world, table), deadline)
        acts = (replace(act, late=act.late or late) if isinstance(act, TimedAnswers) else act for act in world.round)
        self._clients = len(world.clients)
        self._alone = all(isinstance(act, TimedService) for act in world.round)
        links = None if self._alone else world.shared_links
        if not self._alone and not any(isinstance(act, Activated) for act in world.round) and any(world.activations()):
            raise undecided("clients wait for activations, which the protocol's acts leave out", 0, 0.0)
        if links is not None:
            links.check((*world.before, *world.round), bool(world.pauses))
        self._round = Program(world, tuple(acts), links, few)
        self._now = Now(self._clients, world.recorded)
        if self._alone:
            self._now.clients.fill(np.inf)  # nobody waits for them
        self._before = Program(world, world.before, links).play(0, 1, self._now) if world.before else None
        if self._now.trail is not None:
            self._now.trail.early = False

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on."""
        chunk, before = self._round.play(first, count, self._now), self._before
        if self._alone:
            chunk = replace(chunk, steps=np.broadcast_to(chunk.ends[:, None], (count, self._clients)))
        if before is None or first > 0:
            return chunk
        spans = None if chunk.spans is None or before.spans is None else before.spans + chunk.spans
        return replace(chunk, before=before.during, spans=spans)
