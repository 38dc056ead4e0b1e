"""Rounds that all clients begin together; and the reference, in which only the server's work takes time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vflsim.recurrences.chunk import Chunk, undecided
from vflsim.recurrences.program import Program
from vflsim.recurrences.timed import TimedService
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.tracing.acts import Activated

BARRIERS = frozenset({"activation", "blinding", "energy", "pauses"})
"""What of a scenario rounds know whose server waits for all clients.

Example: ``vectorised_with = BARRIERS`` in a class whose ``acts`` begin with ``Activated()``.
"""
WITH_EVENTS = BARRIERS | {"events", "sharing"}
"""What they know where their acts are traced."""


class SynchronousRounds:
    """The acts of ``world.round``, round after round: trips to the server and back, and waits for each other.

    What a protocol does before its first round, such as a key agreement, comes with the first chunk. In rounds of the
    server's work alone (the reference) clients step as it ends, and wait for nothing. Raises ``UndecidedError`` if
    clients wait for activations, and the acts do not.

    Example::

        rounds = SynchronousRounds(TimedWorld(Synchronous(), setting, seed=0))
        rounds.advance(first=0, count=64).ends.shape  # (64,)
    """

    def __init__(self, world: TimedWorld) -> None:
        self._clients = len(world.clients)
        self._alone = all(isinstance(act, TimedService) for act in world.round)
        links = None if self._alone else world.shared_links
        if not self._alone and not any(isinstance(act, Activated) for act in world.round) and any(world.activations()):
            raise undecided("clients wait for activations, which the protocol's acts leave out", 0, 0.0)
        if links is not None:
            links.check((*world.before, *world.round), bool(world.pauses))
        self._round = Program(world, world.round, links)
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
