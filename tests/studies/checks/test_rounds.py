"""Rounds that settings make impossible are refused before a study, and rounds without a closed form are simulated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import data_of, tiny

import vflsim
from vflsim.analysis.findings import ClosedForm, NoClosedForm, Simulated
from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.vectorised import obstacles
from vflsim.streams import few
from vflsim.studies.checks.estimates import expectation
from vflsim.studies.checks.rounds import analyse, analyse_or_simulate, simulated
from vflsim.studies.study import run_study
from vflsim.timing.profile import Flat, StepProfile

BASE = """\
name: base
data: {name: digits}
partition: {clients: 60, by: columns}
models:
  client: {kind: linear, embedding: 8}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 32
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  clients:
    - {select: all, compute: 2 ms}
    - {select: 2..N}
protocols: {wait: {kind: synchronous}}
stop: {rounds: 3}
"""
DRY = [["0 s", "1 Mbps"], ["3 ms", 0]]
DOWN = {"kind": "intervals", "down": [["1 ms", "inf"]], "interrupted": "lost"}
FAILS = {"kind": "failure", "at": "1 ms", "repair": "never", "interrupted": "resumed"}

CASES = [
    pytest.param({"link": {"up": DRY}}, "link.up", "nothing leaves client 2", id="capacity up"),
    pytest.param({"link": {"down": DRY}}, "link.down", "nothing reaches client 2", id="capacity down"),
    pytest.param({"availability": DOWN}, "availability", "down for good from 0.001 s on: client 2", id="intervals"),
    pytest.param({"availability": FAILS}, "availability", "down for good from 0.001 s on: client 2", id="failure"),
    pytest.param(
        {"activation": {"kind": "schedule", "times": ["1 ms"]}},
        "activation",
        "no activation comes after 0.001 s for client 2",
        id="activation",
    ),
]


def scenario(said: dict[str, Any], **others: Any) -> Any:
    key, value = next(iter(said.items()))
    return load(BASE, {f"timing.clients.1.{key}": value, **others})


@pytest.mark.parametrize(("said", "key", "says"), CASES)
def test_check_names_the_setting_that_makes_rounds_impossible(said: dict[str, Any], key: str, says: str) -> None:
    made = scenario(said)
    with pytest.raises(ScenarioError) as caught:
        expectation(made, "wait", ScenarioData(made).of(made.training))
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert f"timing.clients.1.{key}: wait cannot complete" in text
    assert says in text
    assert "client 2, client 3, client 4 and 56 more" in text
    assert text.count("client ") <= 4


@pytest.mark.parametrize(("said", "key", "says"), [CASES[0], *CASES[2:4]])
def test_a_study_whose_first_round_is_impossible_writes_nothing(
    said: dict[str, Any], key: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=f"{key}.*its first round"):
        run_study(scenario(said), tmp_path / "out", timing_only=True)
    assert not (tmp_path / "out").exists()


def test_a_study_that_some_seed_can_begin_is_run(tmp_path: Path) -> None:
    """A client that fails at a random time: in some runs before, in others after the first round."""
    fails = {"kind": "failure", "at": {"kind": "exponential", "mean": "6 ms"}, "repair": "never", "interrupted": "lost"}
    made = load(
        BASE, {"timing.clients.1": {"select": "2", "availability": fails}, "seeds": "0:8", "stop": {"rounds": 1}}
    )
    study = run_study(made, tmp_path / "out", timing_only=True)
    assert 0 < len(study.failures) < 8
    shutil.rmtree(tmp_path / "out")


def test_a_protocol_that_does_without_those_who_are_gone_is_run(tmp_path: Path) -> None:
    one = {"timing.clients.1": {"select": "2", "availability": DOWN}}
    made = load(BASE, {**one, "protocols": {"ignore": {"kind": "ignore", "exclude": "2"}}})
    assert not run_study(made, tmp_path / "out", timing_only=True).failures


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a"], "a"), (list("abcd"), "a, b, c, d"), (list("abcde"), "a, b, c and 2 more")],
)
def test_a_message_names_a_handful(names: list[str], said: str) -> None:
    assert few(names) == said


@pytest.mark.parametrize(
    ("profile", "since"),
    [
        (Flat(1.0), float("inf")),
        (Flat(0.0), 0.0),
        (StepProfile([0.0, 2.0], [1.0, 0.0]), 2.0),
        (StepProfile([0.0, 2.0], [0.0, 1.0]), float("inf")),
        (StepProfile([0.0, 2.0], [1.0, 0.0], period=3.0), float("inf")),
    ],
)
def test_a_profile_knows_when_it_ends(profile: Flat | StepProfile, since: float) -> None:
    assert profile.dry_from() == since


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
