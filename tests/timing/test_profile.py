"""Piecewise-constant functions of time, against exact fractions and by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.timing import profile as profiles
from vflsim.timing.profile import Flat, Profile, StepProfile, gated, lowest

INF = math.inf
BUMPY = StepProfile([0, 1, 3], [2.0, 0.0, 5.0])  # 2 until 1, nothing until 3, then 5 for ever
AGAIN = StepProfile([0, 1, 3], [2.0, 0.0, 5.0], period=4)  # 7 a period


def slowly(times, values, period, cell: int) -> int:
    """The value in a sixteenth of a second, by looking at every step."""
    inside = cell / 16 if period is None else (cell / 16) % period
    return [v for start, v in zip(times, values, strict=True) if start <= inside][-1]


class Alternating(Profile):
    """On for one second, off for the next: a profile that says no more than it must."""

    def value(self, t: float) -> float:
        return float(t // 1 % 2 == 0)

    def next_change(self, t: float) -> float:
        return t // 1 + 1


def test_a_flat_profile_is_a_division() -> None:
    flat = Flat(8.0)
    assert (flat.value(3.0), flat.next_change(3.0)) == (8.0, INF)
    assert flat.finish(1.5, 20.0) == 1.5 + 20.0 / 8.0
    assert flat.amount(1.0, 3.5) == 20.0
    assert flat.amount(3.0, 1.0) == 0.0


@pytest.mark.parametrize(
    "never", [Flat(0.0), StepProfile([0, 5], [3.0, 0.0]), StepProfile([0, 1], [0.0, 0.0], period=2)]
)
def test_what_stays_at_zero_never_finishes(never) -> None:
    assert never.finish(6.0, 1.0) == never.finish(6.0, 0.0) == INF


def test_an_unlimited_value_lets_anything_through_at_once() -> None:
    assert Flat(INF).finish(3.0, 1e300) == 3.0
    steps = StepProfile([0, 2, 4], [1.0, INF, 0.0])
    assert [steps.finish(t, 9.0) for t in (0.0, 1.0, 3.0, 4.0)] == [2.0, 2.0, 3.0, INF]
    assert steps.amount(0.0, 2.0) == 2.0
    assert steps.amount(0.0, 2.5) == INF


@pytest.mark.parametrize(
    ("t", "value", "change"), [(0, 2, 1), (0.5, 2, 1), (1, 0, 3), (2.9, 0, 3), (3, 5, 4), (4, 2, 5)]
)
def test_steps_hold_from_their_time_on(t, value, change) -> None:
    assert (AGAIN.value(t), AGAIN.next_change(t)) == AGAIN.piece(t) == (value, change)
    if t < 4:
        assert BUMPY.piece(t) == (value, INF if t == 3 else change)


@pytest.mark.parametrize(
    ("start", "amount", "end", "again"),
    [
        (0, 1, 0.5, 0.5),
        (0, 2, 1, 1),
        (0, 3, 3.2, 3.2),
        (1, 0, 3, 3),
        (0, 0, 0, 0),
        (2, 5, 4, 4),
        (2, 6, 4.2, 4.5),
        (3.5, 2.5 + 2 + 1, 4.6, 7.2),
        (0, 7000, 1402.6, 4000),
        (0.5, 7000, 1402.8, 4000.5),
    ],
)
def test_what_is_through_when(start, amount, end, again) -> None:
    assert BUMPY.finish(start, amount) == pytest.approx(end, rel=1e-15)
    assert AGAIN.finish(start, amount) == pytest.approx(again, rel=1e-15)
    assert BUMPY.amount(start, end) == pytest.approx(amount, rel=1e-12)
    assert AGAIN.amount(start, again) == pytest.approx(amount, rel=1e-12)


rates = st.sampled_from([0, 0, 1, 2, 3, 7, 10])
gaps = st.lists(st.integers(1, 16).map(lambda n: n / 8), min_size=1, max_size=6)
starts = st.integers(0, 300).map(lambda n: n / 16)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(gaps=gaps, data=st.data(), repeated=st.booleans(), start=starts, span=starts, amount=st.integers(1, 300))
def test_steps_agree_with_exact_integration(gaps, data, repeated, start, span, amount) -> None:
    values = data.draw(st.lists(rates, min_size=len(gaps), max_size=len(gaps)))
    times = [sum(gaps[:k]) for k in range(len(gaps))]
    period = sum(gaps) if repeated else None
    steps = StepProfile(times, values, period)

    # All numbers are multiples of 1/16, so that the exact integral is a sum over sixteenths.
    def integral(begin: float, end: float) -> float:
        return sum(slowly(times, values, period, cell) for cell in range(int(begin * 16), int(end * 16))) / 16

    assert steps.value(start) == slowly(times, values, period, int(start * 16))
    assert steps.amount(start, start + span) == pytest.approx(integral(start, start + span), rel=1e-12)
    end = steps.finish(start, float(amount))
    if end < 80:
        below = math.floor(end * 16) / 16
        assert integral(start, max(below, start)) <= amount <= integral(start, below + 1 / 16)
        assert steps.amount(start, end) == pytest.approx(amount, rel=1e-12)
    elif end == INF:
        assert sum(values) == 0 if repeated else values[-1] == 0


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    period=st.floats(0.01, 10), parts=st.lists(st.floats(0.01, 0.99), max_size=3, unique=True), start=st.floats(0, 1e6)
)
def test_changes_are_met_one_by_one_whatever_the_rounding(period, parts, start) -> None:
    times = sorted({0.0, *(part * period for part in parts)})
    steps = StepProfile(times, [float(k) for k in range(len(times))], period)
    met = [start]
    for _ in range(12):
        met.append(steps.next_change(met[-1]))
    if len(times) == 1:
        assert met[1] == INF
        return
    for before, after in pairwise(met):
        assert before < after
        assert steps.value(before) == steps.value(math.nextafter(after, 0.0))
    values = [steps.value(t) for t in met]
    assert [(b - a) % len(times) for a, b in pairwise(values)] == [1] * 12


@pytest.mark.parametrize("period", [0.1, 0.3, 1 / 3, 0.7, 2.4])
def test_a_repetition_begins_exactly_where_the_one_before_ends(period) -> None:
    steps = StepProfile([0, period / 2], [1.0, 2.0], period)
    for turn in range(1, 2000):
        begins = turn * period
        assert steps.value(begins) == 1
        assert steps.piece(math.nextafter(begins, 0.0)) == (2, begins)


def test_steps_without_a_change_are_no_changes() -> None:
    assert StepProfile([0, 1, 2], [3.0, 3.0, 4.0]).next_change(0.0) == 2
    assert StepProfile([0, 1], [3.0, 3.0], period=2).next_change(0.0) == INF


@pytest.mark.parametrize(
    ("times", "values", "period", "says"),
    [
        ([], [], None, "0 times and 0 values"),
        ([0], [1, 2], None, "1 times and 2 values"),
        ([1, 2], [1, 2], None, "the first time is 1"),
        ([0, 2, 2], [1, 2, 3], None, "time 2 follows 2"),
        ([0, math.nan], [1, 2], None, "time nan follows 0"),
        ([0, 2], [1, 2], 2, "time 2 follows 2"),
        ([0, 2], [1, -2], None, "a value of -2"),
        ([0, 2], [math.nan, 2], 3, "a value of nan"),
        ([0, 2], [1, 2], INF, "a period of inf"),
    ],
)
def test_steps_that_make_no_sense_are_refused(times, values, period, says) -> None:
    with pytest.raises(ValueError, match=says):
        StepProfile(times, values, period)


def test_the_lowest_of_several_changes_with_each() -> None:
    both = lowest(BUMPY, AGAIN, Flat(4.0))
    assert [both.value(t) for t in (0, 1, 3, 4, 5, 7)] == [2, 0, 4, 2, 0, 4]
    assert [both.next_change(t) for t in (0, 1, 3, 4)] == [1, 3, 4, 5]
    assert both.finish(0, 2 + 4 + 2 + 1) == 7.25
    assert both.amount(0, 7.25) == 9


def test_flat_profiles_are_folded() -> None:
    assert repr(lowest(Flat(3.0), Flat(2.0))) == "Flat(2.0)"
    assert repr(lowest()) == "Flat(inf)"
    assert lowest(BUMPY, Flat(INF), BUMPY) is BUMPY


def test_a_gate_lets_nothing_through_while_it_is_shut() -> None:
    through = gated(BUMPY, Alternating())
    assert [through.value(t) for t in (0, 0.5, 1, 2, 3, 4, 5)] == [2, 2, 0, 0, 0, 5, 0]
    assert through.finish(0, 2 + 5 + 5) == 7  # 2 by 1, 5 from 4 to 5, 5 from 6 to 7
    assert through.finish(2, 0) == 4
    assert through.amount(0, 6.5) == 2 + 5 + 2.5
    unlimited = gated(Flat(INF), Alternating())
    assert [unlimited.finish(t, 1e9) for t in (0.5, 1.5)] == [0.5, 2.0]


def test_gates_that_never_move_are_folded() -> None:
    assert gated(BUMPY, Flat(1.0)) is BUMPY
    assert repr(gated(BUMPY, Flat(0.0))) == "Flat(0.0)"


def test_two_profiles_that_never_meet_are_found_out(monkeypatch) -> None:
    monkeypatch.setattr(profiles, "NEVER_AFTER", 100)
    odd = StepProfile([0, 1], [0.0, 1.0], period=2)
    even = StepProfile([0, 1], [1.0, 0.0], period=2)
    assert lowest(odd, even).finish(0.0, 1.0) == INF
    assert lowest(odd, Alternating()).finish(0.0, 0.0) == INF


def test_what_is_held_at_zero_by_one_profile_does_not_change_with_the_others(monkeypatch) -> None:
    """So a link at 0 for ever is known at once to be so, however often its parties come and go."""
    monkeypatch.setattr(profiles, "NEVER_AFTER", 3)
    dries_up = StepProfile([0, 2], [1.0, 0.0])
    for both in (lowest(dries_up, Alternating()), gated(dries_up, Alternating())):
        assert [both.piece(t) for t in (0, 1, 2, 2.5)] == [(1, 1), (0, 2), (0, INF), (0, INF)]
        assert both.next_change(2) == both.finish(2, 0.0) == both.finish(0, 1.5) == INF
    away = StepProfile([0, 1, 9], [1.0, 0.0, 1.0])
    assert lowest(away, Alternating()).piece(2.5) == (0, 9)
    assert gated(Alternating(), away).piece(2.5) == (0, 9)
