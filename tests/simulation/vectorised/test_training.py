"""Training along arrays leaves the very bytes of the event path: tables, facts and weights, also when interrupted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from both_paths import quick, written
from protocols_by_kind import KEYS, KINDS
from tiny_worlds import data_of
from worlds_by_name import ENERGY, WORLDS

import vflsim
from vflsim.errors import NonFiniteError, ScenarioError
from vflsim.results.verify import verify_run
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import (
    NoProgramError,
    UndecidedError,
    obstacles_to_training,
    programs,
    run_trained,
)
from vflsim.studies.runs.simulator_choice import Choice, choices, run_on
from vflsim.trained.models import StudyResults
from vflsim.vocabulary.execution_options import USUAL

NEAR = 1e-12
TOGETHER = {"synchronous", "ignore-exclude", "pyvertical", "synchronous-concat", "synchronous-learned"}
OWN_PACE = {"t-synchronous", "asynchronous", "asynchronous-own"}
"""The kinds and keys whose rounds have a program."""
RANDOM = WORLDS["rounds"]
ROWS = {"clients": 3, "by": "image_rows"}
MLP = {"kind": "mlp", "hidden": [5], "embedding": 6}
POLYNOMIAL = {"kind": "polynomial", "degree": 2, "embedding": 6}
ADAM = {"kind": "adam", "lr": 0.01, "weight_decay": 0.02}
MOMENTUM = {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "nesterov": True}
LEARNING: dict[str, dict[str, Any]] = {
    "perceptrons, adam": {
        "models__client": MLP, "training__client_optimizer": ADAM, "training__server_optimizer": ADAM
    },
    "perceptrons, sum": {"models__client": MLP, "models__aggregate": "sum", "partition": ROWS},
    "polynomials, momentum": {
        "models__client": POLYNOMIAL, "training__client_optimizer": MOMENTUM, "training__server_optimizer": MOMENTUM
    },
    "polynomials, max": {"models__client": POLYNOMIAL, "models__aggregate": "max"},
    "weighted": {"models__aggregate": {"kind": "weighted", "weights": [3, 1, 2, 1]}},
    "unlike clients": {
        "models__client": [{"select": "all", "kind": "linear", "embedding": 6}, {"select": "2..3", **MLP}]
    },
    "an active server": {
        "partition__active": True, "models__aggregate": "concat", "models__active": {"kind": "linear", "embedding": 3}
    },
    "batch normalisation": {"models__server": {"kind": "mlp", "hidden": [8], "batch_norm": True}},
    "single precision": {"training__dtype": "float32", "partition": ROWS},
    "validation rows, uniform batches": {"data__validation_fraction": 0.2, "training__sampling": "uniform"},
}  # fmt: skip
IN_TIME = [name for name, said in WORLDS.items() if "codec" not in said and "updates" not in said.get("stop", {})]


def both(scenario: Scenario, seed: int = 0) -> tuple[Outcome, Outcome]:
    """What both paths leave."""
    assert obstacles_to_training(scenario, "it") == []
    data = data_of(scenario, "it")
    return run_trained(scenario, "it", seed, data, USUAL), run_protocol(scenario, "it", seed, data)


def assert_near(quick: Outcome, event: Outcome, near: float = NEAR) -> None:
    """Equal times, and scores and weights but for rounding: what is computed together differs within a round."""
    ours, theirs = (outcome.tables.named() for outcome in (quick, event))
    assert ours["rounds"].equals(theirs["rounds"])
    one, other = ours["metrics"].to_pandas(), theirs["metrics"].to_pandas()
    pd.testing.assert_frame_equal(one, other, rtol=0, atol=near)
    assert list(one["time_s"]) == list(other["time_s"])
    assert max((quick.weights[name] - tensor).abs().max() for name, tensor in event.weights.items()) < near
    assert verify_run(quick.tables, quick.info) == []


def assert_same(quick: Outcome, event: Outcome) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert written(quick, Path(folder) / "arrays") == written(event, Path(folder) / "events")
    assert quick.weights.keys() == event.weights.keys()
    assert all(torch.equal(quick.weights[name], tensor) for name, tensor in event.weights.items())
    ours, theirs = (outcome.info.model_dump(exclude={"path", "wall_clock_s"}) for outcome in (quick, event))
    assert ours == theirs
    assert verify_run(quick.tables, quick.info) == []


@pytest.mark.parametrize("name", sorted({**KINDS, **KEYS}))
def test_kinds_with_a_program_leave_what_the_event_path_leaves(name: str) -> None:
    scenario = quick({**KINDS, **KEYS}[name], **RANDOM)
    assert (obstacles_to_training(scenario, "it") == []) == (name in TOGETHER | OWN_PACE)
    if name in TOGETHER:
        assert_same(*both(scenario))
    if name in OWN_PACE:
        assert_near(*both(scenario))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LEARNING)
def test_models_aggregates_and_rules_leave_the_bytes_of_the_event_path(name: str) -> None:
    assert_same(*both(quick("synchronous", **{**RANDOM, **LEARNING[name]})))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("kind", sorted(OWN_PACE))
def test_models_aggregates_and_rules_train_at_their_own_pace_as_on_the_event_path(name: str, kind: str) -> None:
    world = {**RANDOM, "stop": {"rounds": 40}, "evaluate": {"every": "9 ms"}, **LEARNING[name]}
    near = 2e-6 if "single" in name else NEAR
    assert_near(*both(quick({**KINDS, **KEYS}[kind], **world)), near)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", IN_TIME)
@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "t-synchronous"])
def test_evaluations_and_ends_fall_into_rounds_as_on_the_event_path(name: str, kind: str) -> None:
    scenario = quick({**KINDS, **KEYS}[kind], **WORLDS[name])
    if kind in OWN_PACE and obstacles_to_training(scenario, "it"):
        return
    by_arrays, event = both(scenario)
    if isinstance(by_arrays.error, UndecidedError):
        at_once = {"only the server", "only the server, in time", "two rules at one instant", "ties"}
        assert kind in OWN_PACE or name in at_once
        return
    in_rounds = WORLDS[name].get("evaluate", {"every": "5 rounds"})["every"].endswith("rounds")
    (assert_same if kind not in OWN_PACE and in_rounds else assert_near)(by_arrays, event)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_evaluations_in_the_middle_of_rounds_see_the_clients_that_have_stepped(seed: int) -> None:
    timing = {**RANDOM["timing"], "server": {**RANDOM["timing"]["server"], "power": ENERGY}}
    scenario = quick("synchronous", timing=timing, stop={"time": "0.2 s"}, evaluate={"every": "1.7 ms"}, partition=ROWS)
    by_arrays, event = both(scenario, seed)
    assert_near(by_arrays, event)
    updates = by_arrays.tables.named()["metrics"].to_pandas()["updates"]
    assert (updates % 3 > 0).any()


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_keeps_its_rows_and_names_party_and_round() -> None:
    rate = {"kind": "sgd", "lr": 1e200}
    rates = {"training__client_optimizer": rate, "training__server_optimizer": rate}
    by_arrays, event = both(quick("synchronous", **{**RANDOM, "evaluate": {"every": "1 rounds"}, **rates}))
    assert isinstance(by_arrays.error, NonFiniteError)
    assert isinstance(event.error, NonFiniteError)
    assert "round 1" in by_arrays.error.where or "round 2" in by_arrays.error.where
    assert by_arrays.info.status == event.info.status == "diverged"
    ours, theirs = (outcome.tables.named()["metrics"].to_pandas() for outcome in (by_arrays, event))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


@pytest.mark.parametrize(
    ("said", "changes", "key"),
    [
        ("synchronous", {"record": "events"}, "record"),
        ("synchronous", {"stop": {"updates": 9}}, "stop.updates"),
        ("synchronous", {"training__dropout": {"party": 0.3}}, "training.dropout"),
        ("synchronous", {"stop": {"target": {"test_accuracy": 0.9}, "rounds": 9}}, "stop.target"),
        ({"kind": "synchronous", "codec": "float16"}, {}, "protocols.it.codec"),
        ({"kind": "synchronous", "blinding": {}}, {}, "protocols.it.blinding"),
        ({"kind": "fedbcd", "local_steps": 2}, {}, "protocols.it"),
        ({"kind": "t_synchronous", "t": 2, "cancel": True}, {}, "protocols.it"),
        ({"kind": "asynchronous", "first_fill": "upload"}, {}, "protocols.it"),
        ("synchronous", {"models__client": {"kind": "cnn", "channels": [2], "embedding": 6}, "partition": ROWS},
         "models.client"),
        ("synchronous", {"models__server": {"kind": "module", "path": "normed_module:Head"}},
         "models.server"),
    ],
)  # fmt: skip
def test_what_has_no_program_is_refused_with_its_key(said: Any, changes: dict[str, Any], key: str) -> None:
    scenario = quick(said, **{**RANDOM, **changes})
    assert key in [problem.key for problem in obstacles_to_training(scenario, "it")]
    with pytest.raises(ScenarioError):
        choices(scenario, "vectorised", False)
    assert choices(scenario, "auto", False)["it"].path == "event"


CNN = {"kind": "cnn", "channels": [2], "embedding": 6}


@pytest.mark.parametrize(
    ("said", "changes", "why"),
    [
        ("synchronous", {"models__client": CNN, "partition": ROWS}, "client-1 is computed by itself"),
        ({"kind": "module", "path": "outside_protocols.first:First"}, {}, "code from outside"),
        ("synchronous", {"models__client": {"kind": "module", "path": "normed_module:Normed", "embedding": 6}}, "code"),
    ],
)  # fmt: skip
def test_what_no_program_knows_is_trained_event_by_event(said: Any, changes: dict[str, Any], why: str) -> None:
    scenario = quick(said, **{**RANDOM, **changes})
    data = data_of(scenario, "it")
    with pytest.raises(NoProgramError, match=why):
        run_trained(scenario, "it", 0, data, USUAL)
    outcome = run_on(Choice("vectorised"), scenario, "it", 0, data)
    assert outcome.info.path == "event"
    assert why in outcome.note
    with pytest.raises(NoProgramError):
        run_on(Choice("vectorised", forced=True), scenario, "it", 0, data)


def test_a_run_that_gives_way_to_the_event_path_can_be_interrupted_and_resumed(tmp_path: Path) -> None:
    scenario = quick("synchronous", **{**RANDOM, "models__client": CNN, "partition": ROWS})
    data, choice = data_of(scenario, "it"), Choice("vectorised")
    whole, keeper = run_on(choice, scenario, "it", 0, data), Keeper(tmp_path, None, {}, resume=False)
    keeper.request(stop=True)
    with pytest.raises(KeyboardInterrupt):
        run_on(choice, scenario, "it", 0, data, keeper=keeper)
    again = run_on(choice, scenario, "it", 0, data, keeper=Keeper(tmp_path, None, {}, resume=True))
    assert_same(again, whole)


def test_what_only_the_event_path_can_decide_shows_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = quick("asynchronous", **{**WORLDS["two rules at one instant"]})
    monkeypatch.setattr(programs.RoundProgram, "play", None)
    assert isinstance(run_trained(scenario, "it", 0, data_of(scenario, "it"), USUAL).error, UndecidedError)


# --- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["synchronous", "t-synchronous", "asynchronous-own"])
@pytest.mark.parametrize("at", [1, 5, 9])
@pytest.mark.parametrize("learning", ["perceptrons, adam", "unlike clients", "an active server"])
def test_an_interrupted_run_leaves_the_bytes_of_a_whole_one(
    kind: str, at: int, learning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = {**RANDOM, "evaluate": {"every": "3 ms"}, **LEARNING[learning]}
    scenario = quick({**KINDS, **KEYS}[kind], **world)
    data = data_of(scenario, "it")
    whole = run_trained(scenario, "it", 0, data, USUAL)
    keeper = Keeper(tmp_path, None, {}, resume=False)
    played: list[int] = []
    step_on = programs.RoundProgram._step_on

    def stepping(program: programs.RoundProgram, used: Any) -> Any:
        played.append(program.rounds)
        if len(played) == at:
            keeper.request(stop=True)
        return step_on(program, used)

    monkeypatch.setattr(programs.RoundProgram, "_step_on", stepping)
    with pytest.raises(KeyboardInterrupt):
        run_trained(scenario, "it", 0, data, USUAL, keeper=keeper)
    before = len(played)
    resumed = run_trained(scenario, "it", 0, data, USUAL, keeper=Keeper(tmp_path, None, {}, resume=True))
    assert f"round {before}" in resumed.note
    assert played == [*range(len(played))]
    assert_same(resumed, whole)


def test_a_later_end_continues_from_the_checkpoint_of_a_shorter_run(tmp_path: Path) -> None:
    def run(rounds: int) -> StudyResults:
        said = quick("synchronous", **{**RANDOM, "evaluate": {"every": "50 rounds"}}).document.raw
        protocols = {"it": {"kind": "synchronous"}, "other": {"kind": "asynchronous"}}
        scenario = vflsim.load({**said, "stop": {"rounds": rounds}, "protocols": protocols})
        return vflsim.run(scenario, tmp_path, protocols=["it"], progress=False, checkpoint_every="1 ms")

    run(400)
    again = run(600)
    assert [each.info.path for each in again.runs] == ["vectorised"]
    assert again.runs[0].info.counts["rounds"] == 600
