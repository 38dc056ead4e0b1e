"""Rounds that all clients begin together; and the reference, in which only the server's work takes time."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, NOBODY, Chunk, Moves, Recurrence, RoundAges, Stretches, Told, undecided
from vflsim.recurrences.program import Program
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import TimedService, of_kinds
from vflsim.recurrences.trail import Now, Trail
from vflsim.recurrences.world import TimedWorld, running
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Activated

BARRIERS = frozenset({"activation", "blinding", "energy", "pauses"})
"""What of a scenario rounds know whose server waits for all clients.

Example: ``vectorised_with = BARRIERS`` in a class whose ``acts`` begin with ``Activated()``.
"""
WITH_EVENTS = BARRIERS | {"events", "sharing"}
"""What they know where their acts are traced."""


class SynchronousRounds:
    """The acts of ``world.round``, round after round: trips to the server and back, and waits for each other.

    What a protocol does before its first round, such as a key agreement, comes with the first chunk. Raises
    ``UndecidedError`` if clients wait for activations, and the acts do not.

    Example::

        rounds = SynchronousRounds(TimedWorld(Synchronous(), setting, seed=0))
        rounds.advance(first=0, count=64).ends.shape  # (64,)
    """

    def __init__(self, world: TimedWorld) -> None:
        self._world = world
        if not any(isinstance(act, Activated) for act in world.round) and any(world.activations()):
            raise undecided("clients wait for activations, which the protocol's acts leave out", 0, 0.0)
        links = world.shared_links
        if links is not None:
            links.check((*world.before, *world.round), bool(world.pauses))
        self._round = Program(world, world.round, links)
        self._now = Now(len(world.clients), world.recorded)
        self._before: tuple[Moves, ...] = ()
        self._spans: tuple[Stretches, ...] = ()
        if world.before:
            played = Program(world, world.before, links).play(0, np.zeros(1, np.int64), self._now)
            self._before, self._spans = played.during, played.spans
        if self._now.trail is not None:
            self._now.trail.early = False

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on."""
        world = self._world
        kinds = world.kind_of(np.arange(first, first + count))
        played = self._round.play(first, kinds, self._now)
        before, self._before = self._before, ()
        spans, self._spans = self._spans + played.spans, ()
        return Chunk(
            first,
            played.ends,
            played.waited,
            played.used,
            played.steps,
            played.during,
            played.after,
            fresh(world, kinds),
            ordered=self._round.waits_for_all,
            before=before,
            steps_during=played.steps_during,
            all_fresh=played.used is not None,
            spans=spans if played.used is None else None,
            course=played.course,
        )


class ServerSteps:
    """Consecutive server steps; client steps and messages take no time."""

    def __init__(self, world: TimedWorld) -> None:
        self._world = world
        (self._step,) = (act for act in world.round if isinstance(act, TimedService) and act.ends)
        self._now = 0.0
        self._trail = Trail(len(world.clients)) if world.recorded else None

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on."""
        rounds = np.arange(first, first + count)
        kinds = self._world.kind_of(rounds)
        drawn = self._step.draw.series.rows(first, count)[:, :, 0]
        seconds, flops = self._step.seconds(drawn, kinds), of_kinds(self._step.flops, kinds)
        ends = running(self._now, seconds[:, 0])
        begins = np.concatenate([[self._now], ends[:-1]])
        facts = None if self._trail is None else self._facts(self._trail, rounds, ends, seconds)
        spans = (Stretches("compute", begins[:, None], ends[:, None], AT_SERVER, flops, seconds, told=facts),)
        self._now = float(ends[-1])
        steps = np.broadcast_to(ends[:, None], (count, len(self._world.clients)))
        ages = fresh(self._world, kinds)
        course = None if self._trail is None else self._trail.course(self._now)
        return Chunk(first, ends, ends, None, steps, (), (), ages, ordered=True, spans=spans, course=course)

    def _facts(self, trail: Trail, rounds: Ints, ends: Floats, seconds: Floats) -> Told:
        draw, steps = self._step.draw, rounds[:, None]
        passing = trail.passing(seconds > 0, ends[:, None], steps, at_server=True)
        for k in range(len(rounds)):
            passing.follow(k)
        drawn = draw.series.rows(int(rounds[0]), len(rounds))[:, draw.place, :1]
        events = steps, passing.begun, passing.ended
        none = np.broadcast_to(-1, steps.shape)
        return Told((draw.series.purpose,), none, NOBODY, draw.numbers(rounds), drawn, *events, counts="round")


def lockstep(world: TimedWorld) -> Recurrence:
    """Return the recurrence of rounds that wait for all clients; without any, of consecutive server steps.

    Example::

        lockstep(TimedWorld(Synchronous(), setting, seed=0)).advance(first=0, count=64).ends.shape  # (64,)
    """
    if all(isinstance(act, TimedService) for act in world.round):
        return ServerSteps(world)
    return SynchronousRounds(world)


def fresh(world: TimedWorld, kinds: Ints) -> RoundAges:
    """Return the ages of rounds that use fresh embeddings of all clients: 0."""
    rows, clients = np.zeros((2, len(kinds), 3), np.int64)
    rows[:, 1], clients[:, 1] = len(world.clients) * world.lengths(kinds), len(world.clients)
    return RoundAges(rows, clients)
