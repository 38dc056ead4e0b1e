"""Transfers that share one link, against the closed forms of processor sharing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from vflsim.world.hub import Hub
from vflsim.world.transfers import Transfer

MEAN = 1e6
"""Mean size of the transfers that are drawn (bytes)."""


def ends(capacity: float, own: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """When transfers end that begin at once, each through a link of its own and all through one of ``capacity``."""
    hub, made = Hub(capacity), [Transfer() for _ in own]
    for place, (transfer, rate, size) in enumerate(zip(made, own, sizes, strict=True)):
        transfer.place, transfer.size = place, size
        hub.enter(transfer, place, rate, 0.0)
    found = [0.0] * len(made)
    hub.share(0.0)
    while any(end == 0.0 for end in found):
        now = hub.due
        for transfer in hub.through(now):
            found[transfer.place] = now
        hub.share(now)
    return found


@pytest.mark.parametrize("many", [1, 2, 7, 100, 1000])
def test_equals_at_once_end_together(many: int) -> None:
    assert ends(8e6, [16e6] * many, [1000] * many) == pytest.approx([1000 * many / 1e6] * many, rel=1e-14)
    assert ends(8e6, [4e3] * many, [1000] * many) == pytest.approx([max(2.0, 1000 * many / 1e6)] * many, rel=1e-14)


def test_unlike_own_links_leave_to_others_what_they_cannot_use() -> None:
    # In bytes/s: a moves at 1; b and c share 9, at 3 (its link) and 6. At 2 c is through, at 4 b, at 8 a.
    assert ends(80.0, [8.0, 24.0, 64.0], [8, 12, 12]) == [8.0, 4.0, 2.0]


@pytest.mark.parametrize(("many", "cap"), [(10, 100.0), (10, 0.25), (40, 0.1)])
def test_mean_ends_of_exponential_sizes(many: int, cap: float) -> None:
    """With n left the link moves min(n cap, 1) of its capacity, so the next end is MEAN / that away, on average."""
    generator, capacity = np.random.default_rng(0), 8 * MEAN
    drawn = np.array([
        ends(capacity, [cap * capacity] * many, generator.exponential(MEAN, many).astype(int).tolist())
        for _ in range(400)
    ])  # fmt: skip
    departures = np.cumsum([1 / min(left * cap, 1.0) for left in range(many, 0, -1)])
    for seen, expected in ((drawn.max(axis=1), departures[-1]), (drawn.mean(axis=1), departures.mean())):
        assert abs(seen.mean() - expected) < 4 * seen.std(ddof=1) / len(seen) ** 0.5


def test_mean_ends_of_exponential_sizes_through_two_unlike_links() -> None:
    """Two transfers at rates .25 and .75 of the link: one is through at 1, the first with .25.

    The first then needs 4 more if it is left, since its own link holds it; the second needs 1.
    """
    generator, capacity = np.random.default_rng(1), 8 * MEAN
    own = [0.25 * capacity, 2 * capacity]
    drawn = np.array([ends(capacity, own, generator.exponential(MEAN, 2).astype(int).tolist()) for _ in range(2000)])
    for seen, expected in ((drawn[:, 0], 4.0), (drawn[:, 1], 1 + 0.25)):
        assert abs(seen.mean() - expected) < 4 * seen.std(ddof=1) / len(seen) ** 0.5
