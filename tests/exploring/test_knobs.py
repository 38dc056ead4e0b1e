"""Positions of knobs: read in the words of scenarios, refused with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from vflsim.errors import ScenarioError
from vflsim.exploring.knobs import PLAYED, Knobs, as_said, bandwidth_text, complaints, read, seconds_text
from vflsim.exploring.server import controls
from vflsim.timing.delays import AnyDelay, Delay, Exponential
from vflsim.vocabulary.quantities import BitsPerSecond, Seconds

SECONDS, RATE = TypeAdapter[float](Seconds), TypeAdapter[float](BitsPerSecond)
DELAY = TypeAdapter[Delay](AnyDelay)


def test_quantities_are_read_with_their_units() -> None:
    said = {"bandwidth": "100 Mbps", "latency": "5 ms", "delay": {"kind": "exponential", "mean": "2 s"}}
    knobs = read(Knobs, {"clients": 28, "stragglers": 7, **said})
    assert (knobs.clients, knobs.bandwidth, knobs.latency) == (28, 1e8, 0.005)
    assert knobs.delay == Exponential(mean=2.0)
    assert knobs.batch is None


@pytest.mark.parametrize(
    ("said", "knob", "words"),
    [
        ({"clientz": 3}, None, ["there is no key 'clientz'", "did you mean 'clients'?"]),
        ({"clients": 0}, "clients", ["clients: 0 is out of range", "at least 1"]),
        ({"clients": 257}, "clients", ["allowed: 1 to 256"]),
        ({"t": "two"}, "t", ["t: the symbol 'two' is not known"]),
        ({"network": "carrier pigeons"}, "network", ["dedicated, fifo, fair"]),
        ({"bandwidth": "0 Mbps"}, "bandwidth", ["above 0"]),
        ({"latency": "-1 ms"}, "latency", ["at least 0"]),
        ({"stragglers": 2, "delay": {"kind": "pareto", "shape": -1, "mean": 1}}, "delay", ["delay.shape: -1"]),
        ({"stragglers": 2, "delay": {"kind": "uniform", "low": 2, "high": 1}}, "delay", ["allowed: low < high"]),
        ({"stragglers": 2}, "stragglers", ["stragglers and delay together"]),
        ([], None, ["a mapping"]),
    ],
)
def test_a_wrong_position_is_refused_with_its_knob(said: Any, knob: str | None, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(Knobs, said)
    (problem,) = complaints(caught.value)
    assert problem["knob"] == knob
    assert all(word in problem["text"] for word in words)


@pytest.mark.parametrize(
    "delay",
    [
        {"kind": "empirical", "file": "/etc/passwd"},
        {"kind": "module", "path": "os:system"},
        {"kind": "mixture", "parts": [1, 2], "weights": [1, 1]},
    ],
)
def test_no_delay_reads_a_file_or_imports_a_module(delay: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=f"there is no kind '{delay['kind']}' here"):
        read(Knobs, {"stragglers": 1, "delay": delay})


def test_every_problem_is_told_beside_its_knob() -> None:
    with pytest.raises(ScenarioError) as caught:
        read(Knobs, {"t": 0, "K": -1, "latency": "5 parsec"})
    assert sorted(problem["knob"] for problem in complaints(caught.value)) == ["K", "latency", "t"]


@given(st.floats(0, 1e6))
def test_seconds_keep_every_digit(seconds: float) -> None:
    assert SECONDS.validate_python(seconds_text(seconds)) == seconds


@given(st.floats(1e3, 1e13))
def test_bandwidths_keep_every_digit(rate: float) -> None:
    assert RATE.validate_python(bandwidth_text(rate)) == rate


def test_texts_of_quantities_are_short() -> None:
    assert [seconds_text(each) for each in (2.0, 0.005, 1e-6, 0.0)] == ["2 s", "5 ms", "1 us", "0 s"]
    assert [bandwidth_text(each) for each in (1e8, 1e9, float("inf"))] == ["100 Mbps", "1 Gbps", "unlimited"]


@pytest.mark.parametrize("kind", PLAYED, ids=lambda each: each.__name__)
def test_each_kind_begins_with_parameters_that_make_a_delay_of_the_same_mean(kind: type[Delay]) -> None:
    name, offered = str(kind.model_fields["kind"].default), controls()
    shares = {"mean": 1.0, "half": 0.5, "quarter": 0.25, "more": 1.5}
    begin = {key: shares.get(str(value), value) for key, value in offered["kinds"][name].items()}
    assert begin.keys() <= offered["parameters"].keys()
    delay = DELAY.validate_python({"kind": name, **begin})
    assert delay.expectation() == pytest.approx(1.0, rel=1e-4)  # normal: truncated at 0
    assert DELAY.validate_python(as_said(delay)) == delay
    assert read(Knobs, {"stragglers": 1, "delay": as_said(delay)}).delay == delay


def test_every_knob_has_a_control() -> None:
    offered = controls()
    assert offered["numbers"].keys() | {"delay", "network"} == set(Knobs.model_fields)
    parameters = {key for each in PLAYED for key in each.model_fields} - {"kind"}
    assert offered["parameters"].keys() == parameters
