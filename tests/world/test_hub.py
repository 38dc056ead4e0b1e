"""A link that transfers share, by itself: what happens at one instant has no order."""

from __future__ import annotations

from itertools import permutations

import pytest

from vflsim.world.hub import Hub
from vflsim.world.transfers import Transfer


def transfer(place: int, size: int) -> Transfer:
    made = Transfer()
    made.place, made.size = place, size
    return made


@pytest.mark.parametrize("order", [*permutations(["through", "one", "two"])])
def test_what_comes_and_goes_at_one_instant_has_no_order(order: tuple[str, ...]) -> None:
    hub, first, one, two = Hub(3.0), transfer(0, 7), transfer(1, 11), transfer(2, 13)
    hub.enter(first, 1, 0.7, 0.1)
    hub.share(0.1)
    now = hub.due
    for what in order:
        if what == "through":
            assert hub.through(now) == [first]
        else:
            hub.enter({"one": one, "two": two}[what], {"one": 2, "two": 3}[what], 0.7, now)
    hub.share(now)
    assert hub.due == now + 88 / 0.7  # as if the link had never been used before
    assert hub.left(one, now) == 88.0
    assert hub.left(two, now) == 104.0


def test_a_transfer_that_leaves_in_the_instant_it_came_leaves_nothing() -> None:
    hub, one, two = Hub(8.0), transfer(0, 1), transfer(1, 1)
    hub.enter(one, 1, 8.0, 0.0)
    hub.enter(two, 1, 8.0, 0.0)
    assert hub.left(two, 0.0) == 8.0
    hub.leave(two, 0.0)
    hub.share(0.0)
    assert (hub.due, hub.left(two, 0.0)) == (1.0, None)
