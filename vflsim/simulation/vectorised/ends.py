"""The end of a run by the earliest of its stop rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vflsim.recurrences.chunk import Chunk
from vflsim.recurrences.errors import undecided
from vflsim.stopping.end_rule import EndRule
from vflsim.stopping.stretch import End, Stretch
from vflsim.timing.floats import Floats


class EarliestEnd:
    """Looks for the end of a run, chunk by chunk."""

    def __init__(self, rules: Sequence[EndRule]) -> None:
        order = {"time": 1, "update": 2}  # each looks whether it precedes the earliest end so far
        self._rules = sorted(rules, key=lambda rule: order.get(rule.by, 0))
        self.used = 0
        """The embeddings that the server has used in the rounds so far."""
        self._before = 0.0

    def find(self, chunk: Chunk, updates: int, waiting: Floats) -> End | None:
        """Return the end of the run if it falls into ``chunk``.

        ``updates`` counts the client steps before the chunk's first round began; ``waiting`` are the times of later
        steps from earlier rounds. Raises ``UndecidedError``.
        """
        stretch, found = Stretch(chunk, self.used, self._before, updates, waiting), None
        for rule in self._rules:
            found = rule.in_chunk(stretch, found)
        self.used, self._before = int(stretch.used_by[-1]), float(chunk.ends[-1])
        return found


def never_still(chunk: Chunk, before: float, rounds: int) -> None:
    """Raise ``UndecidedError`` if one of the first ``rounds`` takes no time: the event path may report no progress."""
    durations = np.diff(chunk.ends[:rounds], prepend=before)
    still = np.flatnonzero(~(durations > 0))
    if len(still):
        place = int(still[0])
        raise undecided("a round takes no time", chunk.first + place, float(chunk.ends[place]))
