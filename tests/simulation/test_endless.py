"""Runs that no stop rule could ever end are stopped, with an error that says what is not counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from tiny_worlds import WORLDS, data_of, metrics, run, tiny, world

from vflsim.errors import NoProgressError
from vflsim.learning.execution.operations import Operation
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.vafl import Asynchronous
from vflsim.scenario.models import Scenario
from vflsim.setting import Learners, Setting, split_learners
from vflsim.simulation import standstill as endless
from vflsim.simulation.build import Parties
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.standstill import EndlessRule, awaited_by
from vflsim.stopping import Stop

NOISE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 3, "delta": 1e-5}


def uncounted(operation: Any) -> Any:
    operation.counts = None
    return operation


def forgetful(setting: Setting, seed: int, table: bool, what: tuple[str, ...]) -> Learners[Any, Any]:
    """The usual learners, whose steps count as nothing."""
    learners = split_learners(setting, seed, table)
    for learner in (learners.server, *learners.clients.values()):
        for method in what:
            if (made := getattr(learner, method, None)) is not None:
                setattr(learner, method, lambda *args, made=made: uncounted(made(*args)))
    return learners


class Forgetful(Synchronous):
    """Synchronous, but a forgotten ``counts`` for each of ``steps``."""

    kind: Literal["forgetful"] = "forgetful"  # type: ignore[assignment]
    steps: tuple[str, ...] = ("server_step", "client_step")

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        return forgetful(setting, seed, False, self.steps)


class ForgetfulTable(Asynchronous):
    kind: Literal["forgetful_table"] = "forgetful_table"  # type: ignore[assignment]

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        return forgetful(setting, seed, True, ("server_step", "client_step"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "SERVER_COMPUTATIONS", 20)
    monkeypatch.setattr(endless, "SERVER_COMPUTATIONS_A_CLIENT", 5)
    monkeypatch.setattr(endless, "CLIENT_COMPUTATIONS", 20)
    monkeypatch.setattr(endless, "COMPUTATIONS_OF_ALL", 100)


def world_of(stop: dict[str, Any], every: str = "4 rounds", **more: Any) -> Scenario:
    return tiny("synchronous", stop=stop, evaluate={"every": every}, **more)


def failed(scenario: Scenario, protocol: Any, **more: Any) -> Outcome:
    outcome = run_protocol(scenario.with_protocols({"it": protocol}), "it", 0, data_of(scenario), **more)
    assert isinstance(outcome.error, NoProgressError)
    return outcome


ENDLESS: dict[str, tuple[dict[str, Any], str]] = {
    "rounds": ({"rounds": 5}, "4 rounds"),
    "epochs": ({"epochs": 2}, "4 rounds"),
    "precision": ({"precision": "1 %"}, "4 rounds"),
    "updates": ({"updates": 50}, "4 rounds"),
    "rounds, updates": ({"rounds": 5, "updates": 50}, "4 rounds"),
    "target": ({"target": {"test_accuracy": 0.9}}, "4 rounds"),
    "target ": ({"target": {"test_accuracy": 0.9}}, "4 updates"),
    "target  ": ({"target": {"test_accuracy": 0.9}}, "1 s"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rule", ENDLESS)
def test_a_run_in_which_nothing_counts_ends_with_an_error(rule: str) -> None:
    error = str(failed(world_of(*ENDLESS[rule]), Forgetful()).error)
    assert f"stop: {rule.strip()} cannot end this run of Forgetful" in error
    assert 'counts="round"' in error or 'counts="update"' in error
    assert "stop: {time: 600 s}" in error


def test_the_error_names_party_class_operations_and_numbers() -> None:
    error = failed(world_of({"rounds": 5}), Forgetful()).error
    assert error is not None
    assert error.where.startswith("server at ")
    assert "no round was counted in 41 computations of the server (server_step)" in error.what
    assert error.allowed == "a round within 40 computations of the server, and 500 of all parties"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("protocol", [Forgetful(), ForgetfulTable()], ids=["all", "one by one"])
def test_in_both_worlds_and_whatever_the_server_waits_for(kind: str, protocol: Any) -> None:
    failed(world_of({"rounds": 5}), protocol, world=world(kind))


def test_without_training_too() -> None:
    failed(world_of({"rounds": 5}), Forgetful(), timing_only=True)


def test_a_failed_run_keeps_its_tables() -> None:
    outcome = failed(world_of({"rounds": 5}), Forgetful())
    assert outcome.info.status == "failed"
    assert outcome.tables.events is not None
    assert len(outcome.tables.events) > 100


STILL_END: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "by time": ({"rounds": 5, "time": "3 s"}, ("server_step", "client_step")),
    "by the wall clock": ({"rounds": 5, "wall_clock": "0.3 s"}, ("server_step", "client_step")),
    "by rounds": ({"rounds": 30, "updates": 10_000}, ("client_step",)),
    "by updates": ({"rounds": 10_000, "updates": 100}, ("server_step",)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", STILL_END)
def test_a_run_that_another_rule_ends_goes_on_to_its_end(how: str) -> None:
    stop, steps = STILL_END[how]
    scenario = world_of(stop).with_protocols({"it": Forgetful(steps=steps)})
    assert run(scenario, "it", timing_only=True).info.stop_reason == how.removeprefix("by ").replace(
        "the wall ", "wall_"
    )


def test_a_target_is_reached_by_rounds_alone_where_updates_are_not_counted() -> None:
    scenario = world_of({"target": {"test_loss": 2.25}}).with_protocols({"it": Forgetful(steps=("client_step",))})
    outcome = run(scenario, "it")
    assert (outcome.info.stop_reason, metrics(outcome)["updates"].iloc[-1]) == ("target", 0)


def test_a_budget_that_nobody_spends_ends_with_an_error() -> None:
    class Silent(Forgetful):
        kind: Literal["silent"] = "silent"  # type: ignore[assignment]

        def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
            learners = super().learners(setting, seed)
            for learner in learners.clients.values():
                made = learner.embed
                learner.embed = lambda *args, made=made: without_commit(made(*args))
            return learners

    def without_commit(operation: Any) -> Any:
        operation.commit = None
        return operation

    scenario = tiny({"it": {"kind": "synchronous", "mechanism": NOISE}}, stop={"epsilon": 1e9})
    entry = scenario.protocols["it"].model_copy(update={"protocol": Silent(steps=())})
    silent = scenario.model_copy(update={"protocols": {"it": entry}})
    error = run_protocol(silent, "it", 0, data_of(scenario), timing_only=True).error
    assert isinstance(error, NoProgressError)
    assert "no release was counted" in error.what


# --- the rule by itself -----------------------------------------------------------------------------------------------


def rule(stop: Stop, clients: int = 2) -> tuple[EndlessRule, Any]:
    recorder = SimpleNamespace(current_round=0, updates=0)
    parties = SimpleNamespace(shared=SimpleNamespace(recorder=recorder), clients=range(clients), protocol=recorder)
    return EndlessRule(cast(Parties, parties), stop.each(), "rounds", []), recorder


def work(party: int, kind: str = "work") -> Operation[None]:
    return Operation(kind, party, lambda: None, None)


def test_client_steps_while_the_server_waits_are_no_standstill() -> None:
    it, recorder = rule(Stop(rounds=5))
    for _ in range(299):  # 100 computations of each of 3 parties
        it.add(work(1))
    recorder.current_round = 1
    for _ in range(301):
        it.add(work(1))
    with pytest.raises(NoProgressError, match="since round 1"):
        it.add(work(1))


def test_evaluations_are_no_standstill_and_every_round_starts_anew() -> None:
    it, recorder = rule(Stop(rounds=5))
    for k in range(20):
        recorder.current_round = k
        for _ in range(30):
            it.add(work(0))
            it.add(work(0, "evaluate"))


def test_server_computations_while_clients_wait_are_no_standstill_of_updates() -> None:
    it, _ = rule(Stop(updates=5))
    for _ in range(300):
        it.add(work(0))
    with pytest.raises(NoProgressError, match="no update was counted"):
        it.add(work(0))


@pytest.mark.parametrize(
    ("stop", "every", "awaited"),
    [
        ({"rounds": 1}, "rounds", {"round"}),
        ({"epochs": 1}, "rounds", {"round"}),
        ({"precision": 0.1}, "rounds", {"round"}),
        ({"updates": 1}, "rounds", {"update"}),
        ({"target": {"test_accuracy": 0.9}}, "rounds", {"round"}),
        ({"target": {"test_accuracy": 0.9}}, "updates", {"update"}),
        ({"target": {"test_accuracy": 0.9}}, "seconds", {"round", "update"}),
        ({"rounds": 1, "updates": 1}, "rounds", {"round", "update"}),
    ],
)
def test_what_has_to_be_counted_for_the_stop_rules(stop: dict[str, Any], every: Any, awaited: set[str]) -> None:
    scenario = tiny("synchronous", stop=stop, evaluate={"every": f"1 {every}".replace("seconds", "s")})
    assert awaited_by(scenario.stop.each(), scenario.evaluate.every.unit) == awaited


def test_a_budget_awaits_releases() -> None:
    assert awaited_by(Stop(epsilon=1).each(), "rounds") == {"release"}


def test_time_and_wall_clock_end_every_run() -> None:
    assert rule(Stop(rounds=1))[0].needed
    assert not rule(Stop(rounds=1, time=5.0))[0].needed
    assert not rule(Stop(rounds=1, wall_clock=5.0))[0].needed
