"""Activation: immediate, or a Poisson process whose arrivals do not care what the client does."""

import math
from itertools import accumulate
from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from vflsim.streams import BLOCK
from vflsim.timing.activation import ACTIVATIONS, ActivationKind, AnyActivation, Immediate, Poisson
from vflsim.timing.delays import Exponential
from vflsim.timing.sampler import Sampler

RATE = 2.0


def arrivals(count, seed=0, party=1):
    gaps = Sampler(Exponential(mean=1 / RATE), seed, party, "activation")
    return list(accumulate(gaps.draw(k) for k in range(count)))


def process(busy="skip", seed=0, party=1):
    return Poisson(rate=RATE, busy=busy).process(seed, party)


def test_the_table_and_the_field_list_the_same_kinds():
    assert get_args(ActivationKind) == ACTIVATIONS


def test_immediate_has_no_process():
    assert TypeAdapter(AnyActivation).validate_python("immediate") == Immediate()
    assert Immediate().process(0, 1) is None


@pytest.mark.parametrize("busy", ["skip", "queue"])
def test_a_client_that_is_always_free_gets_every_arrival(busy):
    ticking, now, got = process(busy), 0.0, []
    for _ in range(200):
        activation = ticking.next(now)
        got.append(activation)
        now = activation.time
    assert [a.time for a in got] == arrivals(200)
    assert [a.index for a in got] == list(range(200))
    gaps = Sampler(Exponential(mean=1 / RATE), 0, 1, "activation")
    assert [a.drawn for a in got] == [gaps.draw(k) for k in range(200)]


def test_skip_loses_what_came_while_busy():
    times, ticking, now = arrivals(500), process("skip"), 0.0
    while now < times[300]:
        activation = ticking.next(now)
        assert activation.time == min(t for t in times if t > now)
        assert times[activation.index] == activation.time
        now = activation.time + 1.3  # busy for longer than the mean gap


def test_skip_takes_an_arrival_strictly_after_now():
    times = arrivals(5)
    assert process("skip").next(times[2]).index == 3
    assert process("skip").next(np.nextafter(times[2], 0)).index == 2


def test_queue_keeps_what_came_while_busy():
    times, ticking = arrivals(20), process("queue")
    late = [ticking.next(times[9]) for _ in range(10)]
    assert [a.time for a in late] == times[:10]
    assert ticking.next(times[9]).time == times[10]


def test_no_arrival_is_given_out_twice_even_if_the_clock_lags_behind_it():
    ticking = process("skip")
    first = ticking.next(0.0)
    assert ticking.next(np.nextafter(first.time, 0)).index == first.index + 1


@pytest.mark.parametrize("busy", ["skip", "queue"])
def test_an_abandoned_wait_gives_its_activation_back(busy):
    ticking = process(busy)
    ticking.next(0.0)
    waited_for = ticking.next(0.0)
    ticking.put_back(waited_for)
    assert ticking.next(0.0) == waited_for
    assert ticking.next(0.0).index == waited_for.index + 1


@pytest.mark.parametrize("busy", ["skip", "queue"])
@pytest.mark.parametrize("first_back", [0, 1])
def test_two_waits_that_are_both_abandoned_give_both_activations_back(busy, first_back):
    ticking, times = process(busy), arrivals(4)
    waited_for = [ticking.next(0.0), ticking.next(0.0)]
    ticking.put_back(waited_for[first_back])
    ticking.put_back(waited_for[1 - first_back])
    assert [ticking.next(0.0).time for _ in range(4)] == times


def test_an_activation_given_back_is_not_given_out_with_those_that_others_still_wait_for():
    ticking, times = process(), arrivals(3)
    mine, _others = ticking.next(0.0), ticking.next(0.0)
    ticking.put_back(mine)
    assert [ticking.next(0.0).time for _ in range(2)] == [times[0], times[2]]


def test_an_activation_given_back_is_lost_if_it_finds_the_client_busy():
    ticking, times = process("skip"), arrivals(3)
    ticking.put_back(ticking.next(0.0))
    assert ticking.next(times[0]).time == times[1]
    queueing = process("queue")
    queueing.put_back(queueing.next(0.0))
    assert queueing.next(times[1]).time == times[0]


def test_a_long_skip_lands_on_the_same_arrival_as_one_by_one():
    times = arrivals(40 * BLOCK)
    between = (times[900] + times[901]) / 2
    for now in (times[BLOCK - 1], np.nextafter(times[BLOCK], 0), times[7 * BLOCK], times[-5], between):
        found = process("skip").next(now)
        assert (found.time, found.index) == next((t, k) for k, t in enumerate(times) if t > now)


def test_arrivals_are_a_function_of_seed_and_party_and_not_of_the_policy():
    assert process("skip").next(0.0) == process("queue").next(0.0)
    firsts = {process(seed=s, party=m).next(0.0).time for s in range(3) for m in range(1, 4)}
    assert len(firsts) == 9


def test_counts_in_windows_are_poisson():
    # 2000 windows of 1 s, expected count 2: a chi-square test at level 0.001, seed fixed
    times = np.array(arrivals(5000, seed=8))
    counts = np.histogram(times[times < 2000], bins=2000, range=(0, 2000))[0]
    observed = np.bincount(np.minimum(counts, 6), minlength=7)
    expected = 2000 * np.append(stats.poisson(RATE).pmf(range(6)), stats.poisson(RATE).sf(5))
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"kind": "poisson"}, "Field required"),
        ({"kind": "poisson", "rate": 0}, "above 0"),
        ({"kind": "poisson", "rate": "2 s"}, "unit 's'.*/s, Hz, /min"),
        ({"kind": "poisson", "rate": 1e-320}, "no possible gap"),
        ({"kind": "poisson", "rate": 1e308}, "at most 1e\\+06 /s"),
        ({"kind": "schedule", "times": [0], "period": 1e-300}, "at least 1e-06"),
        ({"kind": "poisson", "rate": 1, "busy": "wait"}, "'skip' or 'queue'"),
        ("poisson", "Field required"),
        ("sometimes", "'immediate', 'poisson', 'varying_poisson', 'schedule'"),
    ],
)
def test_bad_activations_are_refused(bad, says):
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(AnyActivation).validate_python(bad)


# --- schedule ---------------------------------------------------------------------------------------------------------


ANY = TypeAdapter(AnyActivation)


def schedule(**how):
    return ANY.validate_python({"kind": "schedule", **how})


def taken(made, count, work=0.0):
    """When a client that works ``work`` s each time is activated."""
    ticking, now, found = made.process(0, 1), 0.0, []
    while len(found) < count and (activation := ticking.next(now)) is not None:
        found.append(max(now, activation.time))
        now = found[-1] + work
    return found


def test_every_time_counts_once_and_then_there_are_no_more():
    assert taken(schedule(times=[0, "1500 ms", 4]), 9) == [0, 1.5, 4]


def test_a_period_repeats_them_for_ever():
    assert taken(schedule(times=[0, 1.5, 4], period=5), 7) == [0, 1.5, 4, 5, 6.5, 9, 10]
    far = schedule(times=[1, 2], period=10).process(0, 1).next(12_345.0)
    assert (far.time, far.index) == (12_351, 2470)


def test_those_that_find_the_client_busy_are_lost_or_wait():
    times = [1, 2, 3, 7]
    assert taken(schedule(times=times, busy="skip"), 9, work=1.5) == [1, 3, 7]
    assert taken(schedule(times=times, busy="queue"), 9, work=1.5) == [1, 2.5, 4, 7]


def test_one_at_the_very_end_of_the_work_finds_the_client_busy_but_for_the_start():
    assert taken(schedule(times=[0, 2, 4]), 9, work=2.0) == [0, 4]


def test_two_at_once_are_two_for_a_queue():
    assert taken(schedule(times=[1, 1, 2], busy="queue"), 9) == [1, 1, 2]
    assert taken(schedule(times=[1, 1, 2], busy="skip"), 9) == [1, 2]


def test_nothing_is_drawn():
    ticking = schedule(times=[1, 2]).process(0, 1)
    assert math.isnan(ticking.next(0.0).drawn)
    assert schedule(times=[1, 2]) == schedule(times=[1, 2])


def test_a_wait_that_was_abandoned_gives_the_last_one_back():
    ticking = schedule(times=[1]).process(0, 1)
    ticking.put_back(ticking.next(0.0))
    assert ticking.next(0.5).time == 1
    assert ticking.next(0.5) is None


@pytest.mark.parametrize(
    "text", ["0\n1.5\n4\n", "time\n0\n1.5\n4", "# s\r\n0\r\n\r\n1.5\r\n4e0\r\n", "\ufeff0\n1.5\n4\n"]
)
def test_a_file_of_one_number_a_line(tmp_path, text):
    file = tmp_path / "times.csv"
    file.write_bytes(text.encode())
    assert taken(schedule(file=str(file)), 9) == [0, 1.5, 4]


@pytest.mark.parametrize("array", [np.array([0, 1.5, 4]), np.array([[0], [1.5], [4]]), np.array([0, 1, 4], np.int32)])
def test_a_file_of_an_array(tmp_path, array):
    np.save(tmp_path / "times.npy", array)
    assert taken(schedule(file=str(tmp_path / "times.npy")), 9) == array.ravel().tolist()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no numbers; allowed: the column time"),
        ("time\n", "holds no numbers"),
        ("1\n2;3\n", "times.csv:2: '2;3' is not the column time; allowed: numbers"),
        ("1,2\n", "times.csv:1: 2 columns; allowed: the column time"),
        ("1\n3\n2\n", r"times.csv: out of order: 2 \(number 3\); allowed: finite times from 0 s on that ascend"),
        ("-1\n3\n", r"out of order: -1 \(number 1\)"),
        ("1\ninf\n", r"out of order: inf \(number 2\)"),
        ("1\nnan\n", r"out of order: nan \(number 2\)"),
    ],
)
def test_a_file_that_is_no_schedule_is_refused_with_its_place(tmp_path, text, says):
    file = tmp_path / "times.csv"
    file.write_text(text)
    with pytest.raises(ValidationError, match=says):
        schedule(file=str(file))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (np.zeros((2, 2)), r"an array of shape \(2, 2\)"),
        (np.array(["a"]), "type <U1"),
        (np.array([None, {}], dtype=object), "objects are refused, they could run code"),
        (np.array([1j]), "complex128"),
    ],
)
def test_an_array_that_is_no_schedule_is_refused_and_never_unpickled(tmp_path, content, says):
    np.save(tmp_path / "times.npy", content, allow_pickle=True)
    with pytest.raises(ValidationError, match=says):
        schedule(file=str(tmp_path / "times.npy"))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "exactly one of times and file"),
        ({"times": [1], "file": "x"}, "exactly one of times and file"),
        ({"times": []}, "at least 1 item"),
        ({"times": [2, 1]}, r"times: out of order: 1 \(number 2\)"),
        ({"times": [-1]}, "at least 0"),
        ({"times": [1, 5], "period": 5}, "a period of 5 s ends before the last time, 5 s"),
        ({"file": "/no/such/times.csv"}, "cannot read '/no/such/times.csv': No such file or directory"),
        ({"times": [1], "busy": "wait"}, "'skip' or 'queue'"),
    ],
)
def test_what_cannot_be_is_refused(how, says):
    with pytest.raises(ValidationError, match=says):
        schedule(**how)
