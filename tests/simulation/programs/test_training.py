"""Programs leave what the event path leaves: tables, facts and weights, side by side, and also when interrupted."""

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
from vflsim.learning.programs.rounds import JointProgram
from vflsim.results.verify import verify_run
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.programs import NoProgramError, TrainedRun, obstacles_to_program, timed, trained
from vflsim.simulation.programs.eligibility import obstacles_to_arrays
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import UndecidedError, obstacles
from vflsim.studies.runs import simulator_choice
from vflsim.studies.runs.simulator_choice import Choice, RunRequest, choices, run_on, run_together
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


def run_trained(scenario: Scenario, seed: int = 0, keeper: Keeper | None = None, by_arrays: bool = True) -> Outcome:
    """Train one run by a program."""
    run = timed(scenario, "it", seed, data_of(scenario, "it"), USUAL, by_arrays)
    ((_, outcome),) = trained([TrainedRun(run, None, keeper)])
    assert isinstance(outcome, Outcome), outcome
    return outcome


def both(scenario: Scenario, seed: int = 0) -> tuple[Outcome, Outcome]:
    """What both paths leave."""
    assert obstacles_to_training(scenario) == []
    return run_trained(scenario, seed), run_protocol(scenario, "it", seed, data_of(scenario, "it"))


def obstacles_to_training(scenario: Scenario) -> list[Any]:
    """List what is in the way of a program whose times are arrays."""
    return [*obstacles_to_program(scenario, "it"), *obstacles_to_arrays(scenario, "it"), *obstacles(scenario, "it")]


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
    ours, theirs = (outcome.info.model_dump(exclude={"path", "wall_clock_s", "together"}) for outcome in (quick, event))
    assert ours == theirs
    assert verify_run(quick.tables, quick.info) == []


@pytest.mark.parametrize("name", sorted({**KINDS, **KEYS}))
def test_kinds_with_a_program_leave_what_the_event_path_leaves(name: str) -> None:
    scenario = quick({**KINDS, **KEYS}[name], **RANDOM)
    assert (obstacles_to_training(scenario) == []) == (name in TOGETHER | OWN_PACE)
    if name in TOGETHER:
        assert_same(*both(scenario))
    if name in OWN_PACE:
        assert_near(*both(scenario))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LEARNING)
def test_models_aggregates_and_rules_leave_the_bytes_of_the_event_path(name: str) -> None:
    same = assert_near if name == "batch normalisation" else assert_same
    same(*both(quick("synchronous", **{**RANDOM, **LEARNING[name]})))


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
    if kind in OWN_PACE and obstacles_to_training(scenario):
        return
    try:
        by_arrays, event = both(scenario)
    except UndecidedError:
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


# --- side by side -----------------------------------------------------------------------------------------------------


def together(runs: list[TrainedRun]) -> dict[int, Outcome]:
    """Train runs as one program, by their places."""
    assert len({run.shapes() for run in runs}) == 1
    ended = dict(trained(runs))
    assert all(isinstance(outcome, Outcome) for outcome in ended.values())
    return {place: outcome for place, outcome in ended.items() if isinstance(outcome, Outcome)}


def assert_alone_and_together(scenarios: list[Scenario], seeds: list[int], by_arrays: bool, near: float = NEAR) -> None:
    pairs = list(zip(scenarios, seeds, strict=True))
    data = data_of(scenarios[0], "it")
    runs = [TrainedRun(timed(scenario, "it", seed, data, USUAL, by_arrays)) for scenario, seed in pairs]
    ended = together(runs)
    assert sorted(ended) == [*range(len(pairs))]
    for place, (scenario, seed) in enumerate(pairs):
        assert ended[place].info.together == len(pairs)
        assert_near(ended[place], run_protocol(scenario, "it", seed, data), near)
        (alone,) = together([TrainedRun(timed(scenario, "it", seed, data, USUAL, by_arrays))]).values()
        assert_same(ended[place], alone)


@pytest.mark.parametrize("name", sorted(TOGETHER | OWN_PACE))
def test_seeds_side_by_side_leave_what_each_leaves_alone(name: str) -> None:
    scenario = quick({**KINDS, **KEYS}[name], **{**RANDOM, "stop": {"time": "0.15 s"}, "evaluate": {"every": "7 ms"}})
    assert_alone_and_together([scenario] * 4, [0, 1, 2, 3], by_arrays=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("kind", ["synchronous", "t-synchronous"])
def test_models_aggregates_and_rules_train_side_by_side(name: str, kind: str) -> None:
    scenario = quick({**KINDS, **KEYS}[kind], **{**RANDOM, "stop": {"rounds": 30}, **LEARNING[name]})
    assert_alone_and_together([scenario] * 3, [0, 1, 2], by_arrays=True, near=2e-6 if "single" in name else NEAR)


@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "t-synchronous"])
def test_rates_rules_of_one_kind_and_delays_may_differ_side_by_side(kind: str) -> None:
    def rates(client: float, server: float, delay: str) -> Scenario:
        timing = {**RANDOM["timing"], "server": {"compute": delay}}
        rules = {
            "training__client_optimizer": {**ADAM, "lr": client},
            "training__server_optimizer": {"kind": "sgd", "lr": server},
        }
        return quick({**KINDS, **KEYS}[kind], **{**RANDOM, "stop": {"rounds": 30}, **rules, "timing": timing})

    points = [rates(0.01, 0.1, "1 ms"), rates(0.02, 0.1, "1 ms"), rates(0.01, 0.3, "4 ms"), rates(0.01, 0.1, "1 ms")]
    assert_alone_and_together(points, [0, 0, 1, 2], by_arrays=True)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ({"kind": "t_synchronous", "t": 2, "cancel": True}, {}),
        ("asynchronous", {"record": "events"}),
        ("synchronous", {"timing": {**RANDOM["timing"], "network": "fair"}}),
        ("asynchronous", {"timing": {**RANDOM["timing"], "network": "fair"}, "stop": {"updates": 50}}),
        ("t_synchronous", {"timing": {**RANDOM["timing"], "network": "fifo"}}),
        ({"kind": "ignore", "deadline": "12 ms"}, {}),
        ({"kind": "ignore", "fastest": 2}, {}),
    ],
)
def test_what_arrays_do_not_time_is_timed_by_events_and_trained_side_by_side(
    said: Any, changes: dict[str, Any]
) -> None:
    said = {"kind": "t_synchronous", "t": 3} if said == "t_synchronous" else said
    scenario = quick(said, **{**RANDOM, "stop": {"rounds": 40}, "evaluate": {"every": "9 ms"}, **changes})
    assert_alone_and_together([scenario] * 3, [0, 1, 2], by_arrays=False)


def test_a_run_that_diverges_leaves_those_beside_it_as_they_are() -> None:
    def rate(value: float) -> Scenario:
        rule = {"kind": "sgd", "lr": value}
        return quick(
            "asynchronous", **{**RANDOM, "training__client_optimizer": rule, "training__server_optimizer": rule}
        )

    scenarios, data = [rate(0.1), rate(1e200), rate(0.1)], data_of(rate(0.1), "it")
    runs = [TrainedRun(timed(each, "it", 0, data, USUAL, by_arrays=True)) for each in scenarios]
    ended = dict(trained(runs))
    assert isinstance(ended[1], NonFiniteError)
    for place in (0, 2):
        outcome = ended[place]
        assert isinstance(outcome, Outcome)
        assert_near(outcome, run_protocol(scenarios[0], "it", 0, data))


def test_runs_that_a_device_cannot_hold_together_are_trained_half_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, sizes = quick("synchronous", **RANDOM), list[int]()

    def limited(runs: list[TrainedRun]) -> Any:
        sizes.append(len(runs))
        if len(runs) > 2:
            raise torch.OutOfMemoryError
        return trained(runs)

    monkeypatch.setattr(simulator_choice, "trained", limited)
    choice = Choice("vectorised", program=True)
    ended = dict(run_together([RunRequest(choice, scenario, "it", seed, data_of(scenario, "it")) for seed in range(5)]))
    assert sizes == [5, 2, 3, 1, 2]
    for seed in range(5):
        assert_near(ended[seed], run_protocol(scenario, "it", seed, data_of(scenario, "it")))


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_keeps_its_rows_and_names_party_and_round() -> None:
    rate = {"kind": "sgd", "lr": 1e200}
    rates = {"training__client_optimizer": rate, "training__server_optimizer": rate}
    scenario = quick("synchronous", **{**RANDOM, "evaluate": {"every": "1 rounds"}, **rates})
    data = data_of(scenario, "it")
    run = timed(scenario, "it", 0, data, USUAL, by_arrays=True)
    ((_, ended),) = trained([TrainedRun(run)])
    assert isinstance(ended, NonFiniteError)
    outcome, event = (
        run_on(Choice("vectorised", program=True), scenario, "it", 0, data),
        run_protocol(scenario, "it", 0, data),
    )
    assert "client-" in str(outcome.error) or "server" in str(outcome.error)
    assert "round 1" in str(outcome.error) or "round 2" in str(outcome.error)
    assert outcome.info.status == event.info.status == "diverged"
    ours, theirs = (each.tables.metrics.to_pandas() for each in (outcome, event))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


@pytest.mark.parametrize(
    ("said", "changes", "key"),
    [
        ("asynchronous", {"record": "events"}, "record"),
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
    assert key in [problem.key for problem in obstacles_to_training(scenario)]
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
        timed(scenario, "it", 0, data, USUAL, by_arrays=True)
    outcome = run_on(Choice("vectorised", program=True), scenario, "it", 0, data)
    assert outcome.info.path == "event"
    assert outcome.info.together is None
    assert why in outcome.note
    with pytest.raises(NoProgramError):
        run_on(Choice("vectorised", forced=True, program=True), scenario, "it", 0, data)


def test_a_run_that_gives_way_to_the_event_path_can_be_interrupted_and_resumed(tmp_path: Path) -> None:
    scenario = quick("synchronous", **{**RANDOM, "models__client": CNN, "partition": ROWS})
    data, choice = data_of(scenario, "it"), Choice("vectorised", program=True)
    whole, keeper = run_on(choice, scenario, "it", 0, data), Keeper(tmp_path, None, {}, resume=False)
    keeper.request(stop=True)
    with pytest.raises(KeyboardInterrupt):
        run_on(choice, scenario, "it", 0, data, keeper=keeper)
    again = run_on(choice, scenario, "it", 0, data, keeper=Keeper(tmp_path, None, {}, resume=True))
    assert_same(again, whole)


def test_what_only_events_can_decide_is_timed_event_by_event_and_trained_by_a_program() -> None:
    scenario = quick("asynchronous", **{**WORLDS["two rules at one instant"]})
    data = data_of(scenario, "it")
    with pytest.raises(UndecidedError):
        timed(scenario, "it", 0, data, USUAL, by_arrays=True)
    outcome = run_on(Choice("vectorised", program=True), scenario, "it", 0, data)
    assert (outcome.info.path, outcome.info.together) == ("event", 1)
    assert outcome.note.startswith("event by event: in round")
    assert_near(outcome, run_protocol(scenario, "it", 0, data))


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
    whole = run_trained(scenario)
    keeper = Keeper(tmp_path, None, {}, resume=False)
    played: list[int] = []
    notes = JointProgram._note

    def noting(program: JointProgram, losses: Any) -> None:
        played.append(program.runs[0].cursor.round)
        if len(played) == at:
            keeper.request(stop=True)
        notes(program, losses)

    monkeypatch.setattr(JointProgram, "_note", noting)
    with pytest.raises(KeyboardInterrupt):
        run_trained(scenario, keeper=keeper)
    before = len(played)
    resumed = run_trained(scenario, keeper=Keeper(tmp_path, None, {}, resume=True))
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
