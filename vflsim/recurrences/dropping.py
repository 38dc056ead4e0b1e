"""Drop stragglers: a round ends without the clients that are not among the fastest, or miss the deadline."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.ages import ClientAges
from vflsim.recurrences.chunk import Bools, Moves
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.first_answers import first_of
from vflsim.recurrences.racing import Heat, Racing
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats


class Dropping(Racing):
    """A client finishes its work, then joins the current round: the one after the latest end that it has heard of.

    Give exactly one of ``fastest`` (a number of clients) and ``deadline`` (seconds from a round's start).
    """

    def __init__(self, world: TimedWorld, fastest: int | None, deadline: float | None) -> None:
        super().__init__(world, ClientAges(world))
        self._fastest, self._deadline = fastest, deadline
        clients = len(world.clients)
        self._joined = np.full(clients, -1.0)  # when each client began its latest round
        self._used = np.zeros(clients, bool)  # whether that round used the client

    def choose(self, arrives: Floats) -> tuple[float, Bools]:
        """Choose the fastest clients, or those that meet the deadline, but at least the first."""
        if self._fastest is not None:
            return first_of(arrives, self._fastest)
        assert self._deadline is not None
        limit, last = self.end + self._deadline, float(arrives.max())
        used = arrives <= limit
        return (min(last, limit), used) if used.any() else first_of(arrives, 1)

    def settle(self, heat: Heat, up: Moves, place: int) -> None:
        """Let clients join the round and finish their uploads if they are free before they hear of its end."""
        heard = heat.heard
        if np.any(heard <= self._joined):
            raise undecided("a gradient overtakes the one before it", heat.number, heat.end)
        tied = (heat.free == heard) & ~heat.in_time
        if np.any(tied & (self._used | (heard == heat.waited))):
            raise undecided("a client is free as it hears that a round is over", heat.number, heat.end)
        joined = heat.in_time | (heat.free < heard)
        for count in (self.embeds, self.uploads, self.sends):
            count += joined
        self._joined = np.where(joined, heat.free, self._joined)
        self._used = np.where(joined, heat.used, self._used)
        up.began[place] = heat.began
        up.ends[place] = np.where(joined, heat.arrives, np.inf)
        up.counted[place] = up.sizes[place]
        self.free = np.where(joined, np.maximum(heat.uploaded, heard), heat.free)
