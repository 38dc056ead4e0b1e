"""Caches of many parties at once against the cache of one: the same exchanges, taken in the same order."""

import random

import numpy as np
import pytest

from vflsim.protocols.celu_vfl import MessageCache
from vflsim.recurrences.caching import Caches

PARTIES = 5


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("uses", [1, 2, 5])
def test_each_party_takes_what_its_own_cache_would_give_it(size: int, uses: int) -> None:
    pick, together = random.Random(size * uses), Caches(size, uses, PARTIES)
    alone = [MessageCache[int](size, uses) for _ in range(PARTIES)]
    taken = 0
    for exchange in range(60):
        for _ in range(pick.randint(0, 4)):
            whose = np.array([pick.random() < 0.6 for _ in range(PARTIES)]) & together.ready
            found = together.take(whose)
            for party in np.flatnonzero(whose).tolist():
                assert alone[party].take() == found[party]
            taken += int(whose.sum())
        together.put(exchange)
        for cache in alone:
            cache.put(exchange, exchange)
    while together.ready.any():
        found = together.take(together.ready.copy())
        assert {cache.take() for cache in alone} <= {None, *found.tolist()}
    assert [cache.take() for cache in alone] == [None] * PARTIES
    assert (taken > 0) == (uses > 1)
