"""Availability: profiles of 1 and 0 against closed forms, and times written down."""

import math
from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from vflsim.errors import RunError
from vflsim.timing import availability
from vflsim.timing.availability import AVAILABILITIES, Alternating, Always, AnyAvailability, AvailabilityKind, Failure
from vflsim.timing.sampler import Sampler

ANY = TypeAdapter(AnyAvailability)


def said(**how):
    return ANY.validate_python({"interrupted": "lost", **how})


def changes(profile, count):
    """The first times at which a profile changes, from 0 on, with the values from there on."""
    time, found = 0.0, []
    while len(found) < count and time < math.inf:
        if not found or profile.value(time) != found[-1][1]:
            found.append((time, profile.value(time)))
        time = profile.next_change(time)
    return found


def test_the_table_and_the_field_list_the_same_kinds():
    assert get_args(AvailabilityKind) == AVAILABILITIES


def test_who_is_always_there_has_no_profile():
    assert ANY.validate_python("always") == Always()
    assert Always().profile(0, 1) is None


@pytest.mark.parametrize("starts", ["up", "down"])
def test_alternating_periods_are_the_draws_of_their_laws_one_after_another(starts):
    up, down = {"kind": "exponential", "mean": 3}, {"kind": "uniform", "low": 1, "high": 2}
    made = said(kind="alternating", up=up, down=down, starts=starts)
    laws = [("up", made.up), ("down", made.down)]
    draws = [Sampler(law, 5, 2, f"availability.{name}") for name, law in laws]
    t, expected = 0.0, []
    for turn in range(300):
        which = turn % 2 if starts == "up" else 1 - turn % 2
        expected.append((t, 1.0 - which))
        t += draws[which].draw(turn // 2)
    assert changes(made.profile(5, 2), 300) == expected


def test_asking_far_ahead_or_back_changes_nothing():
    made = said(kind="alternating", up={"kind": "exponential", "mean": 1}, down={"kind": "exponential", "mean": 1})
    one, other = made.profile(0, 1), made.profile(0, 1)
    times = np.random.default_rng(1).uniform(0, 500, 400)
    one.value(500.0)
    assert [one.piece(t) for t in times] == [other.piece(t) for t in times]
    assert changes(made.profile(0, 2), 5) != changes(made.profile(0, 1), 5) != changes(made.profile(1, 1), 5)


@pytest.mark.parametrize(
    ("up", "down"),
    [
        ({"kind": "exponential", "mean": 3}, {"kind": "exponential", "mean": 1}),
        ({"kind": "uniform", "low": 0, "high": 2}, {"kind": "lognormal", "mean": 2, "sigma": 0.5}),
        (2, {"kind": "exponential", "mean": 0.5}),
    ],
)
def test_the_fraction_of_time_up_is_that_of_renewal_theory(up, down):
    """E[up] / (E[up] + E[down]): the time-average over n cycles is normal around it (renewal–reward)."""
    made = said(kind="alternating", up=up, down=down)
    horizon, cycle = 40_000.0, made.up.expectation() + made.down.expectation()
    expected = made.up.expectation() / cycle
    found = made.profile(11, 1).amount(0.0, horizon) / horizon
    spread = (1 - expected) ** 2 * made.up.variance() + expected**2 * made.down.variance()  # of up - p·cycle, a cycle
    deviation = math.sqrt(spread / cycle / horizon)
    assert abs(found - expected) < 3.9 * deviation + cycle / horizon  # two-sided level 1e-4
    assert deviation < 0.01


def test_work_that_stands_still_while_down_takes_its_time_divided_by_the_fraction_up():
    made = said(kind="alternating", up={"kind": "exponential", "mean": 2}, down={"kind": "exponential", "mean": 1})
    assert made.profile(3, 1).finish(0.0, 20_000.0) == pytest.approx(30_000, rel=0.03)


def test_being_up_at_a_time_has_the_probability_of_a_two_state_markov_chain():
    """P(up at t) = μ/(λ+μ) + λ/(λ+μ) e^-(λ+μ)t for exponential periods; 4000 parties, level 1e-4."""
    made = said(kind="alternating", up={"kind": "exponential", "mean": 2}, down={"kind": "exponential", "mean": 1})
    for t in (0.3, 1.0, 5.0):
        up = sum(made.profile(0, party).value(t) for party in range(1, 4001))
        expected = 2 / 3 + math.exp(-1.5 * t) / 3
        assert stats.binomtest(int(up), 4000, expected).pvalue > 1e-4


def test_a_period_of_no_time_is_passed_over():
    up = {"kind": "constant", "value": 1}
    profile = said(kind="alternating", up=up, down=0).profile(0, 1)
    assert all(profile.value(t) == 1 for t in (0.0, 1.0, 1.5, 7.0))
    assert profile.finish(0.5, 10.0) == 10.5


def test_a_failure_with_repair_and_without():
    repaired, never = said(kind="failure", at=3, repair="2 s"), said(kind="failure", at=3, repair="never")
    assert changes(repaired.profile(0, 1), 9) == [(0, 1), (3, 0), (5, 1)]
    assert changes(never.profile(0, 1), 9) == [(0, 1), (3, 0)]
    assert never.profile(0, 1).finish(0.0, 3.5) == math.inf
    assert changes(said(kind="failure", at=0, repair=1).profile(0, 1), 9) == [(0, 0), (1, 1)]
    assert changes(said(kind="failure", at=0, repair="never").profile(0, 1), 9) == [(0, 0)]
    assert changes(said(kind="failure", at=4, repair=0).profile(0, 1), 9) == [(0, 1)]


def test_failure_times_are_drawn_for_each_party():
    made = Failure(at={"kind": "exponential", "mean": 5}, repair=None, interrupted="lost")
    ats = [made.profile(2, party).next_change(0.0) for party in range(1, 2001)]
    assert stats.kstest(ats, stats.expon(scale=5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"down": [[1, 2], [3, "inf"]]}, [(0, 1), (1, 0), (2, 1), (3, 0)]),
        ({"down": [[0, "500 ms"], [2, 3], [3, 4]]}, [(0, 0), (0.5, 1), (2, 0), (4, 1)]),
        ({"down": [[1, 2]], "period": 5}, [(0, 1), (1, 0), (2, 1), (6, 0), (7, 1), (11, 0)]),
        ({"down": [[0, 1], [4, 5]], "period": 5}, [(0, 0), (1, 1), (4, 0), (6, 1), (9, 0), (11, 1)]),
    ],
)
def test_intervals_are_what_was_written_down(how, expected):
    assert changes(said(kind="intervals", **how).profile(0, 1), 6) == expected


@pytest.mark.parametrize("header", ["", "from,to\n", "# comment\nfrom, to\n"])
def test_intervals_from_a_file_are_those_written_inline(tmp_path, header):
    file = tmp_path / "down.csv"
    file.write_text(f"{header}1,2.5\n\n4,inf\n")
    made = said(kind="intervals", file=str(file))
    assert changes(made.profile(0, 1), 9) == [(0, 1), (1, 0), (2.5, 1), (4, 0)]
    assert not made.recurs
    assert said(kind="intervals", down=[[1, 2]], period=3).recurs


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"kind": "alternating", "up": 1, "down": 1, "interrupted": "paused"}, "'lost' or 'resumed'"),
        ({"kind": "alternating", "up": 0, "down": 1}, "never be there; allowed: a mean above 0 s"),
        ({"kind": "alternating", "up": "1 ns", "down": "1 ns"}, "at least 1e-06 s"),
        ({"kind": "alternating", "up": 1, "down": 1, "starts": "off"}, "'up' or 'down'"),
        ({"kind": "failure", "at": 1}, "repair"),
        ({"kind": "failure", "at": -1, "repair": 1}, "at least 0"),
        ({"kind": "intervals"}, "exactly one of down and file"),
        ({"kind": "intervals", "down": []}, "at least 1"),
        ({"kind": "intervals", "down": [[1, 2]], "file": "x.csv"}, "exactly one of down and file"),
        ({"kind": "intervals", "down": [[2, 1]]}, r"down: \[2, 1\] \(number 1\); allowed: 0 ≤ from < to"),
        ({"kind": "intervals", "down": [[1, 1]]}, "0 ≤ from < to"),
        ({"kind": "intervals", "down": [[1, 3], [2, 4]]}, "down from 2 s before 3 s is over"),
        ({"kind": "intervals", "down": [[1, "inf"], [2, 4]]}, "down from 2 s before inf s is over"),
        ({"kind": "intervals", "down": [[1, 6]], "period": 5}, "ends before the last outage, 6 s"),
        ({"kind": "intervals", "down": [[0, "inf"]]}, "would never be there"),
        ({"kind": "intervals", "down": [[0, 2], [2, 5]], "period": 5}, "would never be there"),
        ({"kind": "intervals", "file": "/no/such/file.csv"}, "cannot read '/no/such/file.csv': No such file"),
        ("sometimes", "'always', 'alternating', 'failure', 'intervals'"),
    ],
)
def test_what_cannot_be_is_refused(bad, says):
    whole = {"interrupted": "lost", **bad} if isinstance(bad, dict) else bad
    with pytest.raises(ValidationError, match=says):
        ANY.validate_python(whole)


@pytest.mark.parametrize("kind", ["alternating", "failure", "intervals"])
def test_what_becomes_of_work_in_flight_must_be_said(kind):
    how = {"alternating": {"up": 1, "down": 1}, "failure": {"at": 1, "repair": 1}, "intervals": {"down": [[1, 2]]}}
    with pytest.raises(ValidationError, match="interrupted"):
        ANY.validate_python({"kind": kind, **how[kind]})


def test_a_long_horizon_costs_memory_for_what_was_asked_only():
    profile = Alternating(up={"kind": "exponential", "mean": 1}, down=1, interrupted="lost")  # type: ignore[arg-type]
    made = profile.profile(0, 1)
    made.value(10.0)
    assert len(made._changes) < 40


def test_turns_without_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activity of 10^20 s would meet 10^19 outages: an error, not a run that never ends."""
    monkeypatch.setattr(availability, "MOST_TURNS", 1000)
    profile = Alternating(up=10, down=1, interrupted="resumed").profile(0, 1)  # type: ignore[arg-type]
    assert profile.finish(0.0, 100.0) < 200
    with pytest.raises(RunError, match=r"up and down 1,000 times by 5500 s"):
        profile.finish(0.0, 1e20)
