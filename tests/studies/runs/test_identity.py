"""The identity of a run: what decides its bytes, and what it reads beside its scenario, by digests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest
from tiny_worlds import raw, tiny

from vflsim.protocols.synchronous import Synchronous
from vflsim.results.store.pages import RunInfo
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.stopping import Stop
from vflsim.studies.runs.identity import UNSEEN, Identity, ends_alike, hindrance, inputs_of, outdated

PLACE = {"time": 10.0, "rounds": 5, "updates": 20, "wall_clock": 1.0}
TARGET = {"test_accuracy": 0.8, "for": "3 evaluations"}


def rules(**said: Any) -> dict[str, Any]:
    return Stop.model_validate(said).plain()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"time": 11}, {"time": 12}),
        ({"time": 11}, {"rounds": 6}),
        ({"rounds": 9}, {"rounds": 6}),  # not yet reached
        ({"rounds": 9, "wall_clock": 2}, {"updates": 21, "wall_clock": 3}),
        ({"epochs": 2}, {"epochs": 2}),
        ({"epochs": 2}, {"epochs": 3}),
        ({"time": 11, "target": TARGET}, {"time": 11}),
        ({"target": TARGET}, {"target": {**TARGET, "test_accuracy": 0.9}}),
        ({"target": {**TARGET, "test_loss": 1}}, {"target": {"test_loss": 0.5, "for": "3 evaluations"}}),
        ({"precision": "2 %"}, {"precision": "1 %"}),
        ({"time": 11, "epsilon": 2}, {"time": 11, "epsilon": 3}),
    ],
)
def test_a_later_end_lets_a_run_continue(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert hindrance(PLACE, rules(**before), rules(**now)) == ""


@pytest.mark.parametrize(
    ("before", "now", "rule"),
    [
        ({"time": 11}, {"time": 10}, "time"),
        ({"time": 11}, {"rounds": 5}, "rounds"),
        ({"time": 11}, {"updates": 20}, "updates"),
        ({"time": 11}, {"wall_clock": 0.5}, "wall_clock"),
        ({"epochs": 2}, {"epochs": 1.5}, "epochs"),
        ({"time": 11}, {"time": 12, "epochs": 9}, "epochs"),
        ({"time": 11}, {"time": 12, "target": TARGET}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "test_accuracy": 0.7}}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "for": "2 evaluations"}}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "test_loss": 1}}, "target"),
        ({"precision": "2 %"}, {"precision": "3 %"}, "precision"),
        ({"precision": "2 %"}, {"precision": {"round_duration": 0.01, "confidence": 0.9}}, "precision"),
        ({"epsilon": 2}, {"epsilon": 1}, "epsilon"),
    ],
)
def test_a_rule_that_may_have_ended_it_does_not(before: dict[str, Any], now: dict[str, Any], rule: str) -> None:
    assert hindrance(PLACE, rules(**before), rules(**now)) == rule


@pytest.mark.parametrize(
    ("before", "now", "alike"),
    [
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 30}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 11}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 10}, False),  # two rules at one instant
        ({"rounds": 5, "time": 20}, {"rounds": 6, "time": 20}, False),
        ({"rounds": 5, "time": 20}, {"time": 20}, False),
        ({"rounds": 5}, {"rounds": 5, "epochs": 1}, False),
    ],
)
def test_a_run_that_one_rule_ended_ends_alike_while_the_others_are_later(
    before: dict[str, Any], now: dict[str, Any], alike: bool
) -> None:
    assert ends_alike("rounds", PLACE, rules(**before), rules(**now)) is alike


class Mine(Synchronous):
    kind: Literal["mine"] = "mine"


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def info(inputs: dict[str, str] | None) -> RunInfo:
    return RunInfo(
        scenario="a", protocol="b", seed=0, status="finished", wall_clock_s=0, participants=(), inputs=inputs
    )


def test_a_trace_counts_for_the_runs_that_read_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("0.001\n0.002\n")
    slow = {"clients": {"upload_delay": {"kind": "empirical", "file": str(trace), "unit": "s"}}}
    scenario = load(raw(timing=slow))
    assert inputs_of(scenario, "synchronous") == {str(trace): digest(trace)}
    before = inputs_of(scenario, "synchronous")
    trace.write_text("0.001\n0.0025\n")
    assert outdated(info(before), inputs_of(scenario, "synchronous")) == ("trace.csv has changed since",)
    assert outdated(info(None), before) == ("trace.csv may have changed since",)
    assert outdated(info(before), before) == ()


def test_a_scenario_without_files_has_no_inputs() -> None:
    assert inputs_of(tiny(), "synchronous") == {}
    assert outdated(info(None), {}) == ()


def test_code_of_ones_own_counts_for_its_protocol_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny().with_protocols({"mine": Mine()})
    found = inputs_of(scenario, "mine")
    assert found[__file__] == digest(Path(__file__))
    assert str(Path(__file__).parents[2] / "support" / "tiny_worlds.py") not in found  # of another folder
    assert inputs_of(scenario, "synchronous") == {}
    monkeypatch.setattr(Mine, "__module__", "a_console")
    (reason,) = outdated(info({"a_console": UNSEEN}), inputs_of(scenario, "mine"))
    assert reason == "a_console is defined in a notebook or a console, whose changes nobody can see"


def with_trace(trace: Path, **changes: Any) -> Scenario:
    slow = {"clients": {"upload_delay": {"kind": "empirical", "file": str(trace), "unit": "s"}}}
    return load(raw(timing=slow, **changes))


def test_equal_identities_are_those_of_runs_with_equal_bytes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("0.001\n0.002\n")

    def digest_of(timing_only: bool = False, **changes: Any) -> str:
        return Identity(with_trace(trace, **changes), "synchronous", timing_only).digest

    before = digest_of()
    both = {"synchronous": {"kind": "synchronous"}, "other": {"kind": "asynchronous"}}
    same = [digest_of(name="another"), digest_of(seeds=[4]), digest_of(protocols=both)]
    assert {before, *same} == {before}
    others = [digest_of(timing_only=True), digest_of(stop={"rounds": 9}), digest_of(evaluate={"every": "3 rounds"})]
    trace.write_text("0.001\n0.0025\n")
    others.append(digest_of())
    assert len({before, *others}) == 1 + len(others)


def test_a_checkpoint_belongs_to_what_the_run_does_before_its_end(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("0.001\n0.002\n")

    def course(**changes: Any) -> dict[str, str]:
        return dict(Identity(with_trace(trace, **changes), "synchronous", False).course)

    before = course()
    assert course(stop={"rounds": 9}) == before
    assert course(evaluate={"every": "3 rounds"})["scenario"] != before["scenario"]
    trace.write_text("0.001\n0.0025\n")
    assert course()["scenario"] == before["scenario"]
    assert course()["files"] != before["files"]
