"""Max–min fair rates, against plain progressive filling in exact fractions, and by their own definition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from fluid import filled
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.world.hub import max_min

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
