"""A link that transfers share, by itself: what happens at one instant has no order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from fluid import filled
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.world.hub import Hub, max_min
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


# --- processor sharing ------------------------------------------------------------------------------------------------


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


# --- max min ----------------------------------------------------------------------------------------------------------


INF = math.inf


def rates(flows, capacity) -> list[float]:
    first, second = np.array(flows, np.intp).reshape(-1, 2).T
    return max_min(first, second, np.array(capacity, float)).tolist()


@pytest.mark.parametrize(
    ("flows", "capacity", "expected"),
    [
        pytest.param([], [1.0], [], id="no flow"),
        pytest.param([(0, 1)], [5.0, 3.0], [3.0], id="one flow gets the slower of its links"),
        pytest.param([(0, 1)] * 4, [8.0, INF], [2.0] * 4, id="equals share equally"),
        pytest.param([(0, 2), (1, 2)], [1.0, 9.0, 6.0], [1.0, 5.0], id="what one cannot use another gets"),
        # Bertsekas & Gallager's kind of example: link 2 (1) halves its two flows, the third takes the rest of link 0.
        pytest.param([(0, 2), (1, 2), (0, 3)], [1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5], id="three of a kind"),
        pytest.param([(0, 2), (1, 2), (0, 3)], [2.0, 1.0, 1.0, 9.0], [0.5, 0.5, 1.5], id="one after another"),
        pytest.param([(0, 1), (0, 2)], [4.0, 0.0, 9.0], [0.0, 4.0], id="a link that carries nothing"),
        pytest.param([(0, 1), (0, 2)], [INF, INF, 3.0], [INF, 3.0], id="a flow without any limit"),
        pytest.param([(0, 1), (0, 1), (0, 2)], [INF, INF, 3.0], [INF, INF, 3.0], id="two flows without any limit"),
    ],
)
def test_rates_worked_out_by_hand(flows, capacity, expected) -> None:
    assert rates(flows, capacity) == expected


links = st.integers(1, 5).flatmap(
    lambda parties: st.tuples(
        st.lists(st.tuples(st.integers(0, parties - 1), st.integers(parties, 2 * parties - 1)), max_size=24),
        st.lists(st.sampled_from([0, 1, 1, 2, 3, 5, 10, 1000, INF]), min_size=2 * parties, max_size=2 * parties),
    )
)


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(case=links)
def test_rates_agree_with_plain_progressive_filling(case) -> None:
    flows, capacity = case
    assert rates(flows, capacity) == pytest.approx([float(rate) for rate in filled(flows, capacity)], rel=1e-12)


wide = st.integers(2, 12).flatmap(
    lambda parties: st.tuples(
        st.lists(
            st.tuples(st.integers(0, parties - 1), st.integers(parties, 2 * parties - 1)), min_size=1, max_size=90
        ),
        st.lists(st.floats(1e-3, 1e12), min_size=2 * parties, max_size=2 * parties),
    )
)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(case=wide)
def test_no_link_is_over_capacity_and_every_flow_has_a_bottleneck(case) -> None:
    flows, capacity = case
    found = rates(flows, capacity)
    pairs = list(zip(flows, found, strict=True))
    on = {link: [rate for flow, rate in pairs if link in flow] for link in range(len(capacity))}
    for link, crossing in on.items():
        assert math.fsum(crossing) <= capacity[link] * (1 + 1e-12)
    for flow, rate in zip(flows, found, strict=True):
        assert any(
            math.fsum(on[link]) >= capacity[link] * (1 - 1e-12) and rate >= max(on[link]) * (1 - 1e-12) for link in flow
        )


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(case=wide, data=st.data())
def test_neither_order_nor_scale_matters(case, data) -> None:
    flows, capacity = case
    found = rates(flows, capacity)
    order = data.draw(st.permutations(range(len(flows))))
    assert rates([flows[k] for k in order], capacity) == pytest.approx([found[k] for k in order], rel=1e-12)
    assert rates(flows, [c * 2.0**20 for c in capacity]) == [rate * 2.0**20 for rate in found]


@pytest.mark.parametrize("parties", [10, 40])
def test_everybody_to_everybody_over_unequal_links(parties) -> None:
    capacity = np.random.default_rng(5).lognormal(18, 1, 2 * parties).round().tolist()
    flows = [(a, parties + b) for a in range(parties) for b in range(parties) if a != b]
    assert rates(flows, capacity) == pytest.approx([float(rate) for rate in filled(flows, capacity)], rel=1e-12)


def test_a_thousand_unequal_senders_to_one_receiver() -> None:
    capacity = [1e9, *np.random.default_rng(6).lognormal(14, 2, 1000).round()]
    flows = [(1 + client, 0) for client in range(1000)]
    level = sorted(capacity[1:])
    # By hand: the slow ones get what they have, the others an equal part of the rest.
    left, fair = Fraction(10**9), Fraction(0)
    for k, own in enumerate(level):
        fair = left / (1000 - k)
        if own >= fair:
            break
        left -= Fraction(own)
    assert rates(flows, capacity) == pytest.approx([min(own, float(fair)) for own in capacity[1:]], rel=1e-12)
