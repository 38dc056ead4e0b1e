"""The order in which events of one time are dealt with: that of the world's calendar."""

import numpy as np
import pytest

from vflsim.recurrences.chunk import EventCourse
from vflsim.recurrences.trail import Trail
from vflsim.simulation.vectorised.events import LATER, EventOrder


def column(*values: float) -> np.ndarray:
    return np.array([values], float)


def whole(*values: int) -> np.ndarray:
    return np.array([values])


def settled(trail: Trail, clients: int, before: float = 9.0) -> EventOrder:
    order = EventOrder(clients)
    course = trail.course(before)
    assert isinstance(course, EventCourse)
    order.add(course)
    order.settle(before, np.empty(0, int))
    return order


def test_what_was_scheduled_first_comes_first_at_one_time() -> None:
    trail, steps = Trail(2), whole(5)
    late = trail.events(column(1.0), whole(2), steps, None)
    early = trail.events(column(1.0), whole(1), steps, None)
    after = trail.events(column(1.0), early, steps, None)  # in 0 s
    ranks = settled(trail, 2).rank(np.concatenate([early, late, after]).ravel())
    assert ranks.tolist() == sorted(ranks.tolist())


@pytest.mark.parametrize("singly", [False, True])
def test_a_party_gets_all_its_messages_with_the_last_or_each_with_the_first(singly: bool) -> None:
    trail, steps = Trail(2), whole(5, 6, 7)
    first, other, last = trail.events(column(1.0, 1.0, 1.0), whole(0, 0, 0), steps, None)[0]
    (server,), (client,) = (trail.collections(column(1.0), singly=each).ravel() for each in (singly, False))
    trail.join(np.array([server, server]), np.array([first, last]))
    trail.join(np.array([client]), np.array([other]))
    ranks = settled(trail, 2).rank(np.array([server, client]))
    assert (ranks[0] < ranks[1]) == singly


def test_what_one_party_begins_in_no_time_comes_before_the_next_party_gets_its_messages() -> None:
    trail = Trail(2)
    arrived = trail.events(column(1.0, 1.0), whole(0, 0), whole(5, 6), None)
    collected = trail.collections(column(1.0, 1.0))
    trail.join(collected[0], arrived[0])
    begun = trail.events(column(1.0), collected[:, :1], whole(7), None)
    ranks = settled(trail, 2).rank(np.concatenate([collected[0, :1], begun[0], collected[0, 1:]]))
    assert ranks.tolist() == sorted(ranks.tolist())


def test_events_have_no_rank_before_all_earlier_ones_are_known() -> None:
    trail = Trail(1)
    events = trail.events(column(1.0, 2.0), whole(0, 0), whole(5, 6), None)
    ranks = settled(trail, 1, before=2.0).rank(events.ravel())
    assert ranks[0] < LATER
    assert ranks[1] == LATER
