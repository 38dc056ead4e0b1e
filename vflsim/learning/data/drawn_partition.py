"""Parties that differ in how much their features matter, or in how far their features correlate.

Source: Wu, Hou and He, VertiBench, ICLR 2024: importance (Sec. 4.1) and inter-party correlation (Sec. 4.2). The search
for parties of a given correlation is ours: theirs is a genetic algorithm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Parts = list[npt.NDArray[np.intp]]
"""The indices of the features of each party, ascending."""

_ROWS = 10_000
"""Most rows that correlations come from, evenly spread: ranks of more change little."""
_SWAPS = 20_000
"""Swaps tried, times features: wide tables try fewer, because each costs more."""
_FEWEST, _MOST = 200, 600
_ROUNDING = 1e-9
"""A change of Icor that rounding alone may cause."""
_STEPS = 32


def by_importance(features: int, parts: int, alpha: float, rng: np.random.Generator) -> Parts:
    """Deal features to parties with probabilities from a symmetric Dirichlet distribution.

    A small ``alpha`` leaves most features to few parties, a large one gives all alike. Every party has one feature
    beforehand, drawn without regard to these probabilities. ``parts`` is at most ``features``.
    """
    chances = rng.dirichlet(np.full(parts, alpha))
    owner = rng.choice(parts, size=features, p=chances)
    owner[rng.permutation(features)[:parts]] = np.arange(parts)
    return [np.flatnonzero(owner == party) for party in range(parts)]


def rank_correlation(values: npt.NDArray[np.floating]) -> Floats:
    """Compute Spearman's correlation of the columns of (rows, features).

    A missing value counts as its column's median. A constant column correlates with nothing, not even with itself.
    """
    from scipy.stats import rankdata  # slow to import

    some = np.array(values[:: max(1, len(values) // _ROWS)], np.float64)
    some = np.where(np.isnan(some), np.nanmedian(some, axis=0, keepdims=True), some)
    ranks = rankdata(some, axis=0) - (len(some) + 1) / 2
    lengths = np.linalg.norm(ranks, axis=0)
    ranks = np.divide(ranks, lengths, out=np.zeros_like(ranks), where=lengths > 0)
    return np.asarray(ranks.T @ ranks)


def multi_way_correlation(block: Floats) -> float:
    """Return Mcor of the correlations between two parties' features: 0 for independent, 1 for identical ones.

    The standard deviation of the d singular values ÷ √d (VertiBench, Eq. 4). With one singular value there is no
    deviation; it is that value then, the correlation itself.
    """
    size = min(block.shape)
    if size == 1:
        return float(np.linalg.norm(block) / np.sqrt(max(block.shape)))
    return float(np.std(np.linalg.svd(block, compute_uv=False), ddof=1) / np.sqrt(size))


def by_correlation(correlation: Floats, sizes: Sequence[int], beta: float, rng: np.random.Generator) -> Parts:
    """Deal features so that Icor lies at ``beta`` between the least (0) and the greatest (1) that the search finds.

    With 0 each party holds features that correlate among themselves, with 1 every party holds some of each kind.
    ``sizes``: how many features each party gets. Start from the order of a hierarchical clustering, cut into parties or
    dealt to them in turn; then swap features while that helps.
    """
    if len(sizes) == 1:
        return [np.arange(sizes[0])]
    order = _clustered(correlation)
    apart, mixed = _in_runs(order, sizes), _in_turn(order, sizes)
    if beta == 1:
        return _climbed(_Split(correlation, mixed), rng, lambda icor: -icor).parts
    least = _climbed(_Split(correlation, apart), rng, lambda icor: icor)
    if beta == 0:
        return least.parts
    greatest = _climbed(_Split(correlation, mixed), rng, lambda icor: -icor)
    goal = beta * greatest.icor + (1 - beta) * least.icor
    between = min(_between(correlation, least.parts, greatest.parts, rng), key=lambda split: abs(split.icor - goal))
    return _climbed(between, rng, lambda icor: abs(icor - goal)).parts


class _Split:
    """Parties' features, and Mcor of each two of them. Invariant: ``scores`` are those of ``parts``."""

    def __init__(self, correlation: Floats, parts: Parts) -> None:
        self._correlation = correlation
        self.parts = [np.sort(part) for part in parts]
        self.scores = np.zeros((len(parts), len(parts)))
        for one, other in itertools.combinations_with_replacement(range(len(parts)), 2):
            self._score(one, other)

    @property
    def icor(self) -> float:
        """How much more parties correlate with each other than within themselves, on average.

        The mean over parties i, and over the others j, of Mcor(i, j) − Mcor(i, i) (VertiBench, Eq. 5). One party: 0.
        """
        count = len(self.parts)
        if count == 1:
            return 0.0
        within = float(np.trace(self.scores))
        return (float(self.scores.sum()) - within) / (count * (count - 1)) - within / count

    def swapped(self, one: int, other: int, first: int, second: int) -> _Split:
        """Return the split in which two parties have exchanged the features at two places."""
        split = object.__new__(_Split)
        split._correlation, split.parts, split.scores = self._correlation, list(self.parts), self.scores.copy()
        one_part, other_part = self.parts[one].copy(), self.parts[other].copy()
        one_part[first], other_part[second] = other_part[second], one_part[first]
        split.parts[one], split.parts[other] = np.sort(one_part), np.sort(other_part)
        for party in range(len(self.parts)):
            split._score(one, party)
            if party != one:
                split._score(other, party)
        return split

    def _score(self, one: int, other: int) -> None:
        block = self._correlation[np.ix_(self.parts[one], self.parts[other])]
        self.scores[one, other] = self.scores[other, one] = multi_way_correlation(block)


def _climbed(split: _Split, rng: np.random.Generator, cost: Callable[[float], float]) -> _Split:
    """Swap features of two parties at random, and keep each swap that lowers the cost of Icor.

    Swaps of features that are alike change it by rounding alone, which differs between processors.
    """
    features = len(split._correlation)
    best = cost(split.icor)
    for _ in range(min(max(_SWAPS // features, _FEWEST), _MOST)):
        one, other = rng.choice(len(split.parts), 2, replace=False)
        first, second = (int(rng.integers(len(split.parts[party]))) for party in (one, other))
        candidate = split.swapped(int(one), int(other), first, second)
        if (value := cost(candidate.icor)) < best - _ROUNDING:
            split, best = candidate, value
    return split


def _clustered(correlation: Floats) -> npt.NDArray[np.intp]:
    from scipy.cluster.hierarchy import leaves_list, linkage  # slow to import
    from scipy.spatial.distance import squareform

    if len(correlation) < 3:
        return np.arange(len(correlation))
    distance = np.clip(1 - np.abs(correlation), 0, None)
    np.fill_diagonal(distance, 0)
    return np.asarray(leaves_list(linkage(squareform(distance, checks=False), "average")), np.intp)


def _in_runs(order: npt.NDArray[np.intp], sizes: Sequence[int]) -> Parts:
    return np.split(order, np.cumsum(sizes)[:-1])


def _in_turn(order: npt.NDArray[np.intp], sizes: Sequence[int]) -> Parts:
    """Deal features one by one to the parties in turn, as long as they have room."""
    places = sorted((place, party) for party, size in enumerate(sizes) for place in range(size))
    owner = np.array([party for _, party in places])
    return [order[owner == party] for party in range(len(sizes))]


def _between(correlation: Floats, start: Parts, end: Parts, rng: np.random.Generator) -> Iterator[_Split]:
    """Yield splits on the way from one to another: some features, more and more, are where the other has them."""
    features = len(correlation)
    owner = np.empty((2, features), np.intp)
    for side, parts in enumerate((start, end)):
        for party, part in enumerate(parts):
            owner[side, part] = party
    sizes = [len(part) for part in start]
    moved = rng.permutation(features)
    for count in np.unique(np.linspace(0, features, _STEPS + 1).round().astype(int)):
        wish = owner[0].copy()
        wish[moved[:count]] = owner[1, moved[:count]]
        yield _Split(correlation, _with_room(wish, moved, sizes))


def _with_room(wish: npt.NDArray[np.intp], order: npt.NDArray[np.intp], sizes: Sequence[int]) -> Parts:
    """Give each feature to the party wished, in this order, or to the first that has room where that one has none."""
    room, late = list(sizes), list[int]()
    parts: list[list[int]] = [[] for _ in sizes]
    for feature in order:
        if room[wish[feature]]:
            room[wish[feature]] -= 1
            parts[wish[feature]].append(int(feature))
        else:
            late.append(int(feature))
    for feature in late:
        party = next(party for party, places in enumerate(room) if places)
        room[party] -= 1
        parts[party].append(feature)
    return [np.array(part, np.intp) for part in parts]
