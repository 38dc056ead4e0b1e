"""Activations at times written down, inline or in a file."""

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from vflsim.timing.activation import AnyActivation

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
