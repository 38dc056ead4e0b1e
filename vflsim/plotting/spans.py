"""Sets of times: when something was the case, as disjoint intervals in ascending order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from vflsim.results.statistics import Floats


@final
@dataclass(frozen=True, eq=False)
class Spans:
    """Disjoint intervals [start, end) in ascending order, seconds; none of them is empty and no two touch."""

    starts: Floats
    ends: Floats

    @classmethod
    def union(cls, starts: Floats, ends: Floats) -> Spans:
        """All times that at least one of the intervals (in any order, overlapping or not) covers."""
        lasting = ends > starts
        order = np.argsort(starts[lasting], kind="stable")
        begins, reach = starts[lasting][order], np.maximum.accumulate(ends[lasting][order])
        if not len(begins):
            return cls(begins, reach)
        opens = np.concatenate([[True], begins[1:] > reach[:-1]])
        return cls(begins[opens], reach[np.concatenate([opens[1:], [True]])])

    def before(self, times: Floats) -> Floats:
        """How many of the seconds before each of ``times`` (any shape) are covered."""
        if not len(self.starts):
            return np.zeros_like(times)
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        covered = np.repeat(np.cumsum(self.ends - self.starts), 2)
        covered[0::2] -= self.ends - self.starts
        return np.interp(times, edges, covered)

    def minus(self, other: Spans) -> Spans:
        """The times of these that are not of the other."""
        cuts = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        left, right = cuts[:-1], cuts[1:]
        kept = self._cover(left) & ~other._cover(left)
        return Spans.union(left[kept], right[kept])

    def _cover(self, times: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        at = np.searchsorted(self.starts, times, side="right") - 1
        ends = np.concatenate([self.ends, [-np.inf]])  # the last one is for times before the first interval
        covered: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = times < ends[at]
        return covered
