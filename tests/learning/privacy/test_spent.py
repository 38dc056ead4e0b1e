"""The ε that runs spend: a column of their metrics, a stop rule, a plan; in both worlds, and with every protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from kept_runs import assert_interruptions_change_no_byte
from thorough import in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, WORLDS, data_of, events, metrics, rounds, run, tiny

from vflsim.errors import BudgetError, ScenarioError
from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.accounting import Released, epsilon_of, noise_multiplier_for, sampled_epsilon_of
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import obstacles
from vflsim.studies.checks.data import read_and_check

NOISE = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "noise_multiplier": 2.0}
TIMING = {**RANDOM_TIMING, "network": "dedicated"}
"""So that queries are answered beside steps."""
INSTANT = {"clients": [{"select": "all", "compute": "2 ms"}]}
"""Uploads without delay: what follows a computation happens at the same instant."""


def protected(protocol: Mapping[str, Any] | str, **mechanism: Any) -> dict[str, Any]:
    said = {"kind": protocol} if isinstance(protocol, str) else dict(protocol)
    return {"dp": {**said, "mechanism": {**NOISE, **mechanism}}}


def world(protocol: Mapping[str, Any] | str = "synchronous", secret: bool = False, **changes: Any) -> Scenario:
    """One protected protocol; 90 rows in batches of 20, five an epoch."""
    said = protected(protocol, **({"batches": "secret"} if secret else {}))
    settings = {
        "training__sampling": "uniform" if secret else "shuffled",
        "timing": TIMING,
        "stop": {"rounds": 12},
        **changes,
    }
    return tiny(said, **settings)


def released_rows(outcome: Outcome) -> int:
    assert outcome.info.privacy is not None
    return outcome.info.privacy.rows_released


@pytest.mark.parametrize("kind", WORLDS)
def test_the_column_is_that_of_the_epochs_so_far(kind: str) -> None:
    outcome = run(world(), kind=kind)
    table = metrics(outcome)
    assert table["round"].tolist() == [0, 4, 8, 12]
    epochs = [0, 1, 2, 3]  # 4, 8 and 12 rounds begin one, two and three epochs of five
    assert table["epsilon"].tolist() == [epsilon_of(2.0, 1e-5, n) for n in epochs]
    assert outcome.info.privacy is not None
    assert table["epsilon"].iloc[-1] == outcome.info.privacy.epsilon_run
    assert "knows which samples are in a batch" in outcome.info.privacy.adversary
    assert outcome.info.privacy.amplification_by_subsampling == "none"


@pytest.mark.parametrize("kind", WORLDS)
def test_secret_batches_spend_what_their_number_costs(kind: str) -> None:
    outcome = run(world(secret=True), kind=kind)
    expected, one_more = (
        [sampled_epsilon_of(2.0, 1e-5, Released(0, ((20 / 90, 1, n),) if n else ())) for n in counts]
        for counts in ((0, 4, 8, 12), (1, 5, 9, 13))
    )
    found = metrics(outcome)["epsilon"].tolist()
    # In real time a client may release its next batch before it answers the evaluation; a run ends at the last step.
    allowed = [{n, more} if kind == "real" else {n} for n, more in zip(expected, one_more, strict=True)]
    assert all(epsilon in each for epsilon, each in zip(found[:-1], allowed, strict=False))
    assert len(found) == 4
    assert found[-1] == expected[-1]
    facts = outcome.info.privacy
    assert facts is not None
    assert (facts.batches, facts.epsilon_run) == (12, expected[-1])
    assert "does not know which samples" in facts.adversary
    assert facts.amplification_by_subsampling == "uniform batches without replacement"
    assert "12 mini-batches of a client" in facts.sentence()
    assert facts.epsilon_client == epsilon_of(2.0, 1e-5, 240)


def test_a_protocol_without_mechanism_has_no_such_column_and_neither_has_timing_alone() -> None:
    scenario = tiny({"plain": {"kind": "synchronous"}, **protected("synchronous")})
    assert "epsilon" not in metrics(run(scenario, "plain"))
    assert "epsilon" not in metrics(run(scenario, "dp", timing_only=True))
    assert list(metrics(run(scenario, "dp")).drop(columns="epsilon")) == list(metrics(run(scenario, "plain")))


PROTOCOLS: dict[str, dict[str, Any]] = {
    "sync": {"kind": "synchronous"},
    "async": {"kind": "asynchronous", "max_staleness": 3},
    "t-sync": {"kind": "t_synchronous", "t": 2, "first_fill": "upload"},
    "t-cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("secret", [False, True], ids=["known", "secret"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_run_ends_within_its_budget_and_timing_alone_ends_with_it(name: str, secret: bool) -> None:
    limit = 5.0 if name != "t-sync" or not secret else 8.0  # a first fill is no sample
    scenario = world(PROTOCOLS[name], secret, stop={"rounds": 400, "epsilon": limit}, evaluate={"every": "50 rounds"})
    outcome = run(scenario)
    assert outcome.info.stop_reason == "epsilon"
    spent = metrics(outcome)["epsilon"]
    assert spent.is_monotonic_increasing
    facts = outcome.info.privacy
    assert facts is not None
    assert spent.iloc[-1] == facts.epsilon_run <= limit
    if not secret:
        assert facts.epsilon_run == epsilon_of(2.0, 1e-5, facts.releases)
        assert epsilon_of(2.0, 1e-5, facts.releases + 1) > limit
    alone = run(scenario, timing_only=True)
    assert alone.info.stop_reason == "epsilon"
    assert rounds(alone).equals(rounds(outcome))
    assert events(alone).equals(events(outcome))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_release_that_ends_a_run_is_unfinished_and_nothing_of_it_is_sent(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Releases] = []

    def releases(*args: Any) -> Releases:
        made.append(Releases(*args))
        return made[-1]

    monkeypatch.setattr("vflsim.learning.learners.party.Releases", releases)
    outcome = run(world(PROTOCOLS[name], stop={"rounds": 400, "epsilon": 3.0}, timing=INSTANT), kind=kind)
    assert outcome.info.stop_reason == "epsilon"
    table = events(outcome)
    releasing = table[table["kind"].isin(["compute.embed", "compute.answer", "compute.first_fill"])]
    outcomes = releasing["outcome"].value_counts()
    # In real time, threads also compute releases that are abandoned meanwhile. They count, to be on the safe side.
    spare = outcomes.get("abandoned", 0) + outcomes["unfinished"] if kind == "real" else 0
    assert (
        outcomes["done"]
        <= sum(each.times for each in made[: len(outcome.info.participants)])
        <= outcomes["done"] + spare
    )
    assert outcomes["unfinished"] >= 1
    uploads = table["kind"].isin(["upload", "upload.answer", "upload.first_fill"]).sum()
    sent = table["kind"].isin(["transfer.embedding", "transfer.answer", "transfer.first_fill"]).sum()
    assert sent <= uploads <= outcomes["done"]


def test_the_vectorised_path_leaves_budgets_to_the_event_path() -> None:
    scenario = world(stop={"rounds": 40, "epsilon": 3}, record="rounds")
    assert [problem.key for problem in obstacles(scenario, "dp")] == ["stop.epsilon"]
    assert obstacles(world(stop={"rounds": 40}, record="rounds"), "dp") == []


@pytest.mark.parametrize("secret", [False, True], ids=["known", "secret"])
def test_a_run_in_real_time_ends_within_its_budget(secret: bool) -> None:
    outcome = run(world("asynchronous", secret, stop={"rounds": 400, "epsilon": 3.0}), kind="real")
    assert outcome.info.stop_reason == "epsilon"
    assert 2 < metrics(outcome)["epsilon"].iloc[-1] <= 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["sync", "async"])
def test_batched_and_eager_runs_spend_the_same(name: str) -> None:
    scenario = world(PROTOCOLS[name], secret=True, stop={"rounds": 20})
    assert metrics(run(scenario))["epsilon"].equals(metrics(run(scenario, execution=EAGER))["epsilon"])


CRASHES = {
    **TIMING,
    "clients": [{**TIMING["clients"][0], "availability": {
        "kind": "alternating", "up": {"kind": "exponential", "mean": "60 ms"}, "down": "5 ms", "interrupted": "lost"}}],
}  # fmt: skip


@pytest.mark.parametrize("secret", [False, True], ids=["known", "secret"])
def test_what_a_crash_makes_a_client_release_again_counts_again(secret: bool) -> None:
    scenario = world("synchronous", secret, timing=CRASHES, stop={"rounds": 30})
    outcome = run(scenario)
    done = events(outcome, "compute.embed")
    done = done[done["outcome"] == "done"].astype({"party": str})
    finished = done.groupby("party").size()
    facts = outcome.info.privacy
    assert facts is not None
    assert facts.batches == finished.max() > 30, "no crash has repeated a release: the test would show nothing"
    repeated = sampled_epsilon_of(2.0, 1e-5, Released(0, ((20 / 90, 1, int(finished.max())),)))
    if secret:  # a repeated batch costs more than another one
        assert facts.epsilon_run > repeated
    else:
        assert facts.epsilon_run == epsilon_of(2.0, 1e-5, facts.releases)


# --- plans -----------------------------------------------------------------------------------------------------------


def calibrated(protocol: str = "synchronous", secret: bool = False, **said: Any) -> Scenario:
    mechanism = {**said.pop("mechanism", {}), **({"batches": "secret"} if secret else {})}
    asked = {"noise_multiplier": None, "epsilon": 3, "per": "run", **mechanism}
    entry = protected(protocol, **asked)
    entry["dp"]["mechanism"].pop("noise_multiplier")
    return tiny(entry, **{"training__sampling": "uniform" if secret else "shuffled", **said})


@pytest.mark.usefixtures("few_orders")
@in_turn(secret={"known": False, "secret": True}, stop={"rounds": {"rounds": 12}, "epochs": {"epochs": 2.4}})
def test_the_noise_is_planned_for_the_rounds_that_the_stop_rules_allow(secret: bool, stop: dict[str, Any]) -> None:
    scenario = calibrated(secret=secret, stop=stop)
    outcome = run(scenario)
    facts = outcome.info.privacy
    assert facts is not None
    assert metrics(outcome)["epsilon"].iloc[-1] == facts.epsilon_run == pytest.approx(3, rel=1e-6)
    assert facts.asked_for == "epsilon per run"
    if not secret:
        assert facts.noise_multiplier == noise_multiplier_for(3, 1e-5, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("few_orders")
def test_a_run_that_would_exceed_its_plan_ends_with_an_error_and_with_stop_epsilon_without_one() -> None:
    short = {"mechanism": {"rounds": 7}, "stop": {"rounds": 12}}
    for secret, what in ((False, "for 2 releases of a sample"), (True, "for 7 mini-batches of a client")):
        scenario = calibrated(secret=secret, **short)
        outcome = run_protocol(scenario, "dp", 0, data_of(scenario))
        assert isinstance(outcome.error, BudgetError)
        assert what in str(outcome.error)
        assert outcome.info.privacy is not None
        assert outcome.info.privacy.epsilon_run == pytest.approx(3, rel=1e-6)
        ended = run(calibrated(secret=secret, mechanism={"rounds": 7}, stop={"rounds": 12, "epsilon": 3}))
        assert ended.info.stop_reason == "epsilon"
        assert metrics(ended)["epsilon"].iloc[-1] == pytest.approx(3, rel=1e-6)


@pytest.mark.parametrize(
    ("said", "key", "message"),
    [
        (
            {"protocol": "asynchronous"},
            "protocols.dp.mechanism",
            "how many mini-batches a client releases in it is not",
        ),
        ({"stop": {"time": "5 s"}}, "protocols.dp.mechanism", "add `rounds:"),
        ({"timing": CRASHES}, "protocols.dp.mechanism", "no crashes"),
        ({"training__sampling": "uniform"}, "protocols.dp.mechanism", "add `releases:"),
        ({"mechanism": {"batches": "secret"}}, "training.sampling", "set training.sampling: uniform"),
    ],
)
def test_what_cannot_be_planned_is_refused(said: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        calibrated(**said)
    assert caught.value.where.endswith(key)


def test_a_budget_without_mechanism_and_one_that_the_first_batch_exceeds_are_refused() -> None:
    with pytest.raises(ScenarioError, match="protocol 'plain' spends no ε") as caught:
        tiny({"plain": {"kind": "synchronous"}, **protected("synchronous")}, stop={"rounds": 5, "epsilon": 2})
    assert caught.value.where.endswith("stop.epsilon")
    freed = {"plain": {"kind": "synchronous", "stop": {"epsilon": None}}, **protected("synchronous")}
    tiny(freed, stop={"rounds": 5, "epsilon": 2})
    for secret in (False, True):
        with pytest.raises(ScenarioError, match="one mini-batch spends ε = 1"):
            read_and_check(world(secret=secret, stop={"epsilon": 0.1}))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("secret", [False, True], ids=["known", "secret"])
def test_a_resumed_run_spends_what_an_uninterrupted_one_does(secret: bool, tmp_path: Any) -> None:
    scenario = world(PROTOCOLS["async"], secret, stop={"rounds": 60, "epsilon": 4.0}, evaluate={"every": "5 rounds"})
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path, at=(0.3, 0.6, 1))
    assert outcome.info.stop_reason == "epsilon"


def test_released_rows_are_those_of_finished_computations() -> None:
    outcome = run(world(PROTOCOLS["async"], stop={"rounds": 40}))
    done = events(outcome)
    done = done[(done["outcome"] == "done") & done["kind"].isin(["compute.embed", "compute.answer"])]
    most = done.astype({"party": str}).groupby("party").size().max()
    assert outcome.info.privacy is not None
    assert outcome.info.privacy.batches == most
    assert released_rows(outcome) <= 20 * most
    assert np.isfinite(metrics(outcome)["epsilon"]).all()
