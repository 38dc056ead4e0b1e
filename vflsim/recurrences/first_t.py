"""t-synchronous with ``cancel``: a step uses the first t embeddings; its broadcast cancels all unfinished work."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.ages import TableAges
from vflsim.recurrences.chunk import Bools, Moves
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.first_answers import first_of
from vflsim.recurrences.racing import Heat, Racing, undetermined
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats


class FirstOfAll(Racing):
    """Every client begins a round when it is free; every begun activity consumes its draw.

    A client whose gradient arrives before it has finished its previous step skips the round.
    """

    def __init__(self, world: TimedWorld, t: int) -> None:
        super().__init__(world, TableAges(world))
        self._t = t

    def choose(self, arrives: Floats) -> tuple[float, Bools]:
        """Choose the first t."""
        return first_of(arrives, self._t)

    def settle(self, heat: Heat, up: Moves, place: int) -> None:
        """Settle the round: the gradient ends delay, computation and transfer."""
        heard, done = heat.heard, heat.in_time
        stages = (
            (heat.free, self.trip.embed.draw.series.stage),
            (heat.embedded, self.trip.up.delay.series.stage),
            (heat.uploaded, self.up.latency.series.stage),
        )
        undecidable = any(undetermined(began, heard, ~done, stage) for began, stage in stages)
        if undecidable or np.any(~done & (heat.arrives == heard)):
            raise undecided("a gradient arrives as its client begins another activity", heat.number, heat.end)
        sent = done | (heat.uploaded < heard)
        self.embeds += done | (heat.free < heard)
        self.uploads += done | (heat.embedded < heard)
        self.sends += sent
        delivered = done | (heat.arrives < heard)
        up.began[place] = heat.began
        up.ends[place] = np.where(delivered, heat.arrives, np.where(sent, heard, np.inf))
        cut = sent & ~delivered & (heat.began < heard)
        up.counted[place] = np.where(delivered, up.sizes[place], 0)
        if cut.any():
            moves = Moves("up", up.began[place], up.ends[place], up.sizes[place], up.counted[place], up.rates)
            up.counted[place, cut] = moves.only(cut).through(heard[cut])
        self.free = np.maximum(heat.free, heard)
