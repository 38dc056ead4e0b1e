"""Arrivals at a rate that changes in time: thinning against the integrated rate."""

import math
from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import integrate, stats

from vflsim.errors import RunError
from vflsim.streams import BLOCK, Uniforms
from vflsim.timing import arrivals as rates
from vflsim.timing.activation import AnyActivation
from vflsim.timing.arrivals import RATES, AnyRate, RateKind
from vflsim.timing.delays import Exponential
from vflsim.timing.sampler import Sampler

ANY = TypeAdapter(AnyActivation)
STEPS = [[0, "2 /s"], ["3 s", "9 /s"], ["4 s", 0.5]]
VARYING = {
    "steps": STEPS,
    "periodic": {"kind": "steps", "steps": STEPS, "period": "6 s"},
    "with a silence": {"kind": "steps", "steps": [[0, 5], [1, 0]], "period": 2.5},
    "sinusoid": {"kind": "sinusoid", "mean": "3 /s", "amplitude": "2.5 /s", "period": "7 s"},
}


def process(rate, seed=0, party=1, busy="skip"):
    return ANY.validate_python({"kind": "varying_poisson", "rate": rate, "busy": busy}).process(seed, party)


def arrivals(ticking, count):
    """The first arrivals, for a client that is always free."""
    found, now = [], 0.0
    while len(found) < count and (activation := ticking.next(now)) is not None:
        found.append(activation)
        now = activation.time
    return found


def expected_count(name, t):
    """The integral of the rate from 0 to t, written out from the definitions."""
    if name == "sinusoid":
        return 3 * t + 2.5 * 7 / (2 * math.pi) * (1 - math.cos(2 * math.pi * t / 7))
    if name == "with a silence":
        turns, rest = divmod(t, 2.5)
        return 5 * turns + 5 * min(rest, 1)
    turns, rest = divmod(t, 6) if name == "periodic" else (0, t)
    within = 2 * min(rest, 3) + 9 * min(max(rest - 3, 0), 1) + 0.5 * max(rest - 4, 0)
    return turns * (6 + 9 + 1) + within


@pytest.mark.parametrize("name", VARYING)
def test_gaps_measured_by_the_integrated_rate_are_those_of_a_poisson_process_of_rate_one(name):
    """Time change: Λ(t_k) − Λ(t_{k−1}) are independent and exponential with mean 1; KS at level 1e-3, seed fixed."""
    times = [activation.time for activation in arrivals(process(VARYING[name], seed=4), 4000)]
    gaps = np.diff([expected_count(name, t) for t in times], prepend=0.0)
    assert stats.kstest(gaps, stats.expon.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 3.3 / math.sqrt(len(gaps))


@pytest.mark.parametrize("name", VARYING)
def test_the_rate_is_the_derivative_of_its_integral(name):
    rate = TypeAdapter(AnyRate).validate_python(VARYING[name])
    grid = np.linspace(0, 20, 40_001)
    values = rate.at(grid)
    assert values.max() <= rate.highest()
    assert integrate.trapezoid(values, grid) == pytest.approx(expected_count(name, 20.0), rel=1e-3)


def test_candidates_and_lots_are_the_streams_of_the_party():
    highest = 9.0
    gaps = Sampler(Exponential(mean=1 / highest), 2, 3, "activation")
    candidates = np.cumsum([gaps.draw(k) for k in range(4 * BLOCK)])
    lots = np.concatenate([Uniforms(2, 3, "activation.accept").block(k) for k in range(4)])
    level = np.select([candidates < 3, candidates < 4], [2.0, 9.0], 0.5)
    expected = candidates[lots * highest < level]
    assert [a.time for a in arrivals(process(STEPS, 2, 3), len(expected))] == expected.tolist()


def test_arrivals_are_numbered_and_know_the_gap_since_the_one_before():
    found = arrivals(process(STEPS), 300)
    assert [a.index for a in found] == list(range(300))
    assert np.diff([a.time for a in found], prepend=0.0).tolist() == [a.drawn for a in found]


def test_skipping_or_queueing_changes_no_arrival():
    times = [a.time for a in arrivals(process(STEPS), 200)]
    late = process(STEPS).next(times[120])
    assert (late.time, late.index) == (times[121], 121)
    queueing = process(STEPS, busy="queue")
    assert [queueing.next(times[120]).time for _ in range(200)] == times


def test_a_rate_of_zero_for_ever_ends_the_process():
    ticking = process([[0, 3], [2, 0]])
    found = arrivals(ticking, 1000)
    assert 0 < len(found) < 30
    assert found[-1].time < 2
    assert ticking.next(2.0) is None


def test_rates_too_far_apart_are_an_error_and_no_endless_search(monkeypatch):
    monkeypatch.setattr(rates, "REJECTED_IN_A_ROW", 1000)
    with pytest.raises(RunError, match=r"candidates in a row up to .* s were no activation of client-1"):
        arrivals(process([[0, 1000], [1, 1e-9]]), 10_000)


def test_the_table_and_the_field_list_the_same_kinds():
    assert get_args(RateKind) == RATES


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([], "at least 1 item"),
        ([[1, 2]], "ascend from 0 s"),
        ([[0, 2], [0, 3]], "ascend from 0 s"),
        ([[0, 0]], "a highest rate of 0 /s"),
        ([[0, -1]], "at least 0"),
        ([[0, "2 s"]], "unit 's'"),
        ({"kind": "steps", "steps": [[0, 1], [5, 2]], "period": 5}, "ascend from 0 s"),
        ({"kind": "sinusoid", "mean": 1, "amplitude": 2, "period": 1}, "would make the rate negative"),
        ({"kind": "sinusoid", "mean": 0, "amplitude": 0, "period": 1}, "above 0"),
        ({"mean": 1}, "kind"),
    ],
)
def test_what_cannot_be_is_refused(bad, says):
    with pytest.raises(ValidationError, match=says):
        process(bad)
