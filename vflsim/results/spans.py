"""Sets of times as disjoint intervals in ascending order; among them, when parties are down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vflsim.timing.floats import Floats


@final
@dataclass(frozen=True, eq=False)
class Spans:
    """Disjoint intervals [start, end) in seconds, ascending; none is empty and no two touch."""

    starts: Floats
    ends: Floats

    @classmethod
    def union(cls, starts: Floats, ends: Floats) -> Spans:
        """Make the union of intervals, in any order, overlapping or not."""
        lasting = ends > starts
        order = np.argsort(starts[lasting], kind="stable")
        begins, reach = starts[lasting][order], np.maximum.accumulate(ends[lasting][order])
        if not len(begins):
            return cls(begins, reach)
        opens = np.concatenate([[True], begins[1:] > reach[:-1]])
        return cls(begins[opens], reach[np.concatenate([opens[1:], [True]])])

    @classmethod
    def joined(cls, spans: Iterable[Spans]) -> Spans:
        """Make the union of several."""
        both = list(spans)
        return cls.union(np.concatenate([s.starts for s in both]), np.concatenate([s.ends for s in both]))

    def between(self, starts: Floats, ends: Floats) -> Floats:
        """Return the covered seconds from each of ``starts`` to its end."""
        return self.before(ends) - self.before(starts)

    def before(self, times: Floats) -> Floats:
        """Return the covered seconds before each of ``times`` (any shape)."""
        if not len(self.starts):
            return np.zeros_like(times)
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        covered = np.repeat(np.cumsum(self.ends - self.starts), 2)
        covered[0::2] -= self.ends - self.starts
        return np.interp(times, edges, covered)

    def minus(self, other: Spans) -> Spans:
        """Return these times without those of ``other``."""
        cuts = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        left, right = cuts[:-1], cuts[1:]
        kept = self._cover(left) & ~other._cover(left)
        return Spans.union(left[kept], right[kept])

    def _cover(self, times: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        at = np.searchsorted(self.starts, times, side="right") - 1
        ends = np.concatenate([self.ends, [-np.inf]])  # index −1 is for times before the first interval
        covered: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = times < ends[at]
        return covered


def downtime(parties: NDArray[Any], starts: Floats, ends: Floats) -> dict[int, Spans]:
    """Return when each party is down, given its outages among those of all, in any order."""
    return {
        int(party): Spans.union(starts[own], ends[own]) for party in np.unique(parties) for own in [parties == party]
    }
