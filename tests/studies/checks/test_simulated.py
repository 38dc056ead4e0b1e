"""The mean round of protocols without a closed form: an interval of simulated rounds, by arrays or event by event."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_worlds import data_of, tiny

import vflsim
from vflsim.analysis.findings import ClosedForm, NoClosedForm, Simulated
from vflsim.simulation.vectorised import obstacles
from vflsim.studies.checks.closed_forms import analyse, analyse_or_simulate, simulated

CLIENTS = {"select": "all", "upload_delay": {"kind": "exponential", "mean": 0.2}}
ALIKE: dict[str, Any] = {"clients": CLIENTS, "server": {"compute": 0.08}}
NONE = NoClosedForm("round duration", "nobody knows")


def world(protocol: dict[str, Any], **changes: Any) -> Any:
    more = {"stop": {"rounds": 3}, "evaluate": {"every": "3 rounds"}, "record": "rounds"}
    return tiny({"it": protocol}, timing={**ALIKE, **changes}, **more)


@pytest.mark.parametrize("path", ["arrays", "events"])
def test_the_interval_is_about_the_mean_of_the_closed_form(path: str) -> None:
    some = world({"kind": "t_synchronous", "t": 2})
    exact = analyse(some, "it", data_of(some)).round
    assert isinstance(exact, ClosedForm)
    if path == "events":  # the limit is never met, but arrays know none
        some = world({"kind": "t_synchronous", "t": 2}, server={"compute": 0.08, "concurrency": 9})
    assert (obstacles(some, "it") == []) == (path == "arrays")
    found = simulated(some, "it", data_of(some), NONE)
    assert isinstance(found, Simulated)
    half = (found.mean.high - found.mean.low) / 2
    assert abs(found.mean.low + half - exact.mean.low) < 2 * half  # 3.9 standard errors
    assert half < 0.05 * exact.mean.low
    assert (found.reason, found.unit) == ("nobody knows", "s")


def test_rounds_without_a_closed_form_are_simulated_and_others_are_not() -> None:
    dropping = world({"kind": "ignore", "fastest": 2})
    found = analyse_or_simulate(dropping, "it", data_of(dropping)).round
    assert isinstance(found, Simulated)
    assert "before it joins again" in found.reason
    waiting = world({"kind": "synchronous"})
    assert isinstance(analyse_or_simulate(waiting, "it", data_of(waiting)).round, ClosedForm)


def test_a_frame_has_the_interval_and_the_reason() -> None:
    (row,) = vflsim.analyze(world({"kind": "ignore", "fastest": 2})).frame.to_dict("records")
    assert row["known"] == "simulated"
    assert 0 < row["mean"] < row["mean_upper"]
    assert "before it joins again" in row["reason"]


def test_a_run_that_fails_leaves_the_reason_alone() -> None:
    some = world({"kind": "synchronous"}, clients={"select": "all", "activation": {"kind": "schedule", "times": [1.0]}})
    found = analyse_or_simulate(some, "it", data_of(some)).round
    assert isinstance(found, NoClosedForm)
