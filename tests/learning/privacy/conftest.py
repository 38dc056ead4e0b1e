from collections.abc import Iterator
from functools import lru_cache

import pytest

from vflsim.learning.privacy import accounting


@pytest.fixture
def few_orders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Account samples with orders of up to 64, which decide here; the highest order alone takes most of the time."""
    cached = accounting.sampled_epsilon_of, accounting.sampled_noise_multiplier_for
    monkeypatch.setattr(accounting, "ORDERS", tuple(range(2, 65)))
    monkeypatch.setattr(accounting, "_divergence", lru_cache(accounting._divergence.__wrapped__))
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()
