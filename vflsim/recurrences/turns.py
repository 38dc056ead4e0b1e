"""Acts of one client after the other: every time of a round follows from the one before it, across the clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, EventFacts, Moves, Stretches
from vflsim.recurrences.shared_links import SharedLinks
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import (
    Draw,
    Timed,
    TimedAnswers,
    TimedSending,
    TimedService,
    TimedWork,
    Way,
    of_kinds,
)
from vflsim.timing.floats import Floats


class TurnByTurn:
    """The turns of all clients in n rounds. A turn is a chain of activities, whose ``ends`` are (n, M, activities).

    ``steps`` are the activities that count as client steps. ``drawn`` gives a draw of every client in every round
    (n, M), ``served`` those of the server (n, each).
    """

    def __init__(
        self,
        acts: Timed,
        shape: tuple[int, int],
        kinds: Ints,
        drawn: Callable[[Draw], Floats],
        served: Callable[[Draw], Floats],
    ) -> None:
        self._kinds, self._taken = kinds, list[Floats]()
        self._ways: list[tuple[bool, Way, int]] = []
        self.steps: list[int] = []
        self._works: list[tuple[int, bool, Floats | None]] = []
        """The computations: their place, whether the server does them, and their operations (n, M)."""
        self._delays = list[int]()
        self.facts: dict[int, EventFacts] = {}
        """What events tell of activities, by their place, where they are recorded."""
        for act in acts:
            if isinstance(act, TimedService):
                self._works.append((len(self._taken), True, of_kinds(act.flops, kinds)))
                self._taken.append(act.seconds(served(act.draw), kinds))
            elif isinstance(act, TimedWork):
                self._works.append((len(self._taken), False, of_kinds(act.flops, kinds)))
                if act.steps:
                    self.steps.append(len(self._taken))
                self._taken.append(act.seconds(drawn(act.draw), kinds))
            elif isinstance(act, TimedSending):
                self._delays.append(len(self._taken))
                self._taken.append(drawn(act.delay))
                self._move(act.way, drawn, upward=True)
            else:
                assert isinstance(act, TimedAnswers), "a turn has no waits of its own"
                self._move(act.way, drawn, upward=False)
        self.seconds = np.empty((*shape, len(self._taken)))
        for place, taken in enumerate(self._taken):
            self.seconds[:, :, place] = taken
        self.ends, self.begins = np.empty_like(self.seconds), np.empty_like(self.seconds)
        self._sums = np.empty(1 + shape[1] * len(self._taken))

    def _move(self, way: Way, drawn: Callable[[Draw], Floats], upward: bool) -> None:
        self._taken.append(drawn(way.latency))
        self._ways.append((upward, way, len(self._taken)))
        self._taken.append(way.seconds[self._kinds])

    def play(self, k: int, start: float) -> tuple[float, Floats]:
        """Play round k from ``start`` on; return when the last turn ends, and when each client's does (M,)."""
        sums = self._sums
        sums[0] = start
        sums[1:] = self.seconds[k].ravel()
        np.add.accumulate(sums, out=sums)  # one by one from the left, as the clock goes
        self.begins[k], self.ends[k] = (each.reshape(self.ends.shape[1:]) for each in (sums[:-1], sums[1:]))
        return float(sums[-1]), self.ends[k, :, -1]

    def moves(self, links: SharedLinks | None) -> list[Moves]:
        """Return the transfers of all turns, over ``links`` that are shared, if they are."""
        transfers = []
        for upward, way, place in self._ways:
            sizes = way.sizes[self._kinds]
            began, ends = self.ends[:, :, place - 1], self.ends[:, :, place]
            moves = Moves("up" if upward else "down", began, ends, sizes, sizes, way.rates, facts=self.facts.get(place))
            transfers.append(moves if links is None else replace(moves, profiles=links.shares(moves, way, self._kinds)))
        return transfers

    def spans(self, after: bool) -> list[Stretches]:
        """Return what the server and the clients do besides in all turns, in the rounds or ``after`` them."""
        clients, begins, ends = np.arange(self.ends.shape[1]), self.begins, self.ends
        computing = [
            Stretches(
                "compute", begins[:, :, place], ends[:, :, place], AT_SERVER if served else clients, flops,
                self.seconds[:, :, place], after, self.facts.get(place),
            )
            for place, served, flops in self._works
        ]  # fmt: skip
        radio = [
            Stretches("radio", begins[:, :, place], ends[:, :, place], clients, facts=self.facts.get(place))
            for place in self._delays
        ]
        return computing + radio
