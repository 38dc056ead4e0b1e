"""When a run ends, and when it is evaluated."""

import math

import pytest
import torch
from pandas.testing import assert_frame_equal
from tiny_worlds import NOISY, WORLDS, data_of, events, metrics, raw, rounds, run, tiny

from vflsim.results.statistics.costs import passage
from vflsim.scenario import load
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.vocabulary.targets import Held, Target

both = pytest.mark.parametrize("world", WORLDS)

# Embedding 2 s, upload m s (m = 1 … 4), server's step 1 s, clients' steps 2 s; links take no time.
# Round k's server step ends at 7 + 9 k, its client steps end at 9 + 9 k.
SLOW = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"}}


def slow(stop: dict, every: object, **more: object):
    return tiny("synchronous", timing=SLOW, stop=stop, evaluate={"every": every, **more})


# --- the end ----------------------------------------------------------------------------------------------------------


def test_stops_at_a_time_and_the_instant_itself_still_counts() -> None:
    outcome = run(slow({"time": "16 s"}, "100 s"))
    assert outcome.info.stop_reason == "time"
    assert list(rounds(outcome)["end_s"]) == [7, 16]
    assert metrics(outcome).iloc[-1][["time_s", "round", "updates"]].tolist() == [16, 2, 4]


@both
def test_stops_after_so_many_rounds(world: str) -> None:
    outcome = run(tiny("asynchronous", stop={"rounds": 7}), kind=world)
    assert (outcome.info.stop_reason, len(rounds(outcome))) == ("rounds", 7)
    assert metrics(outcome)["round"].iloc[-1] == 7


@both
def test_stops_after_so_many_updates(world: str) -> None:
    outcome = run(tiny("asynchronous", stop={"updates": 9}), kind=world)
    assert (outcome.info.stop_reason, outcome.info.counts["updates"]) == ("updates", 9)
    steps = events(outcome, "compute.client_step")
    assert (steps["outcome"] == "done").sum() == 9


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("protocol", "steps"),
    [
        ({"kind": "synchronous"}, 10),  # 90 rows in batches of 20: 5 batches an epoch
        ({"kind": "ignore", "fastest": 2}, 10),
        ({"kind": "asynchronous"}, 40),  # an epoch is 5 embeddings of each of 4 clients
        ({"kind": "t_synchronous", "t": 2}, 20),
        ({"kind": "t_synchronous", "t": 4}, 10),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_stops_after_so_many_epochs(protocol: dict, steps: int) -> None:
    outcome = run(tiny({"it": protocol}, stop={"epochs": 2}))
    assert (outcome.info.stop_reason, len(rounds(outcome))) == ("epochs", steps)


def test_the_last_round_lacks_its_client_steps_unless_updates_end_the_run() -> None:
    by_rounds, by_updates = (run(slow(stop, "100 s")) for stop in ({"rounds": 3}, {"updates": 12}))
    counts = [(each.info.counts["rounds"], each.info.counts["updates"]) for each in (by_rounds, by_updates)]
    assert counts == [(3, 8), (3, 12)]  # 4 clients
    unmoved = {name: torch.equal(tensor, by_updates.weights[name]) for name, tensor in by_rounds.weights.items()}
    assert {name.partition(".")[0] for name, same in unmoved.items() if same} == {"server"}


def test_stops_within_an_epoch() -> None:
    assert len(rounds(run(tiny(stop={"epochs": 0.5})))) == 3


@pytest.mark.sampled(1)
@both
def test_stops_when_a_target_is_seen_at_an_evaluation(world: str) -> None:
    free = metrics(run(tiny(stop={"rounds": 40}, evaluate={"every": "2 rounds"})))
    target = free["test_loss"].iloc[10]
    outcome = run(
        tiny(
            stop={"rounds": 40, "target": {"test_loss": target, "for": "1 evaluation"}}, evaluate={"every": "2 rounds"}
        ),
        kind=world,
    )
    assert outcome.info.stop_reason == "target"
    seen = metrics(outcome)["test_loss"]
    assert seen.iloc[-1] <= target
    if world == "virtual":  # in real time the parties go on while the row is written
        assert (seen.iloc[:-1] > target).all()
        assert metrics(outcome)["round"].iloc[-1] == 20


def test_a_target_that_is_held_ends_the_run_when_it_has_been_and_a_first_passage_does_not() -> None:
    free = metrics(run(tiny("asynchronous", **NOISY)))["test_accuracy"].to_numpy()
    met = free >= 0.6
    first, held = int(met.argmax()), next(k for k in range(len(met)) if met[k : k + 3].all())
    assert held > first + 3, "the world is noisy"
    stop = {"rounds": 120, "target": {"test_accuracy": 0.6, "for": "3 evaluations"}}
    outcome = run(tiny("asynchronous", **{**NOISY, "stop": stop}))
    assert outcome.info.stop_reason == "target"
    assert metrics(outcome)["test_accuracy"].tolist() == free[: held + 3].tolist()
    found = passage(metrics(outcome), Target("test_accuracy", 0.6, Held(3, "evaluations")))
    assert (found.reached, found.row["round"]) == (True, 3 * held)


def test_a_stretch_may_be_asked_for_in_virtual_time_or_in_rounds() -> None:
    for held in ("40 rounds", "0.3 s"):
        stop = {"rounds": 120, "target": {"test_loss": 3, "for": held}}
        table = metrics(run(tiny("asynchronous", stop=stop, evaluate={"every": "4 rounds"})))
        lasted = table["round"] if held.endswith("rounds") else table["time_s"]
        assert lasted.iloc[-1] >= float(held.split()[0]) > lasted.iloc[-2]


def test_a_target_that_is_only_reported_ends_nothing() -> None:
    said = {**NOISY, "target": {"test_accuracy": 0.6, "for": "3 evaluations"}}
    outcome, free = run(tiny("asynchronous", **said)), run(tiny("asynchronous", **NOISY))
    assert outcome.info.stop_reason == "rounds"
    assert metrics(outcome).equals(metrics(free))


def test_a_target_may_be_set_on_validation_rows() -> None:
    stop = {"rounds": 120, "target": {"validation_accuracy": 0.5, "for": "2 evaluations"}}
    outcome = run(tiny("asynchronous", **{**NOISY, "stop": stop}))
    assert outcome.info.stop_reason == "target"
    met = metrics(outcome)["validation_accuracy"] >= 0.5
    assert met.iloc[-2:].all()
    assert not (met & met.shift(1, fill_value=False)).iloc[:-1].any()


def test_a_stretch_that_becomes_complete_in_the_last_row_does_not_change_why_the_run_ended() -> None:
    stop = {"rounds": 6, "target": {"test_loss": 1e9, "for": "3 evaluations"}}
    outcome = run(tiny("synchronous", stop=stop, evaluate={"every": "4 rounds"}))
    assert metrics(outcome)["round"].tolist() == [0, 4, 6]
    assert outcome.info.stop_reason == "rounds"
    assert passage(metrics(outcome), Target("test_loss", 1e9, Held(3, "evaluations"))).reached


def test_a_target_met_by_the_initial_models_ends_the_run_before_it_begins() -> None:
    for world in WORLDS:
        outcome = run(tiny(stop={"target": {"test_loss": 1e9, "for": "1 evaluation"}}), kind=world)
        assert outcome.info.stop_reason == "target"
        assert set(metrics(outcome)["round"]) == {0}
        assert metrics(outcome)["time_s"].iloc[0] == 0
        assert len(events(outcome)) == 0


def test_an_accuracy_is_reached_from_below() -> None:
    outcome = run(
        tiny(
            stop={"rounds": 300, "target": {"test_accuracy": 0.5, "for": "1 evaluation"}},
            training__server_optimizer={"kind": "sgd", "lr": 2},
        )
    )
    assert outcome.info.stop_reason == "target"
    assert metrics(outcome)["test_accuracy"].iloc[-1] >= 0.5 > metrics(outcome)["test_accuracy"].iloc[-2]


def test_whichever_criterion_is_met_first_ends_the_run() -> None:
    assert run(slow({"time": "20 s", "rounds": 3}, "50 s")).info.stop_reason == "time"
    assert run(slow({"time": "30 s", "rounds": 3}, "50 s")).info.stop_reason == "rounds"


def test_wall_clock_ends_a_run_and_makes_it_non_reproducible() -> None:
    outcome = run(tiny(stop={"wall_clock": 0.05}))
    assert (outcome.info.stop_reason, outcome.info.reproducible) == ("wall_clock", False)


def test_a_protocol_may_stop_and_be_evaluated_in_its_own_way() -> None:
    own = {"kind": "synchronous", "stop": {"rounds": 4}, "evaluate": {"every": "1 rounds"}}
    scenario = tiny({"wait": {"kind": "synchronous"}, "own": own}, stop={"rounds": 8})
    assert metrics(run(scenario, "wait"))["round"].tolist() == [0, 4, 8]
    assert metrics(run(scenario, "own"))["round"].tolist() == [0, 1, 2, 3, 4]


# --- evaluations ------------------------------------------------------------------------------------------------------


def test_evaluates_every_so_many_seconds_but_not_while_nothing_has_changed() -> None:
    table = metrics(run(slow({"time": "22 s"}, "4 s")))
    # 4: nothing yet. 8: round 1. 12: the clients' steps. 16: round 2, ended at this very instant. 20: clients' steps.
    # 22: nothing new, but the run ends there.
    assert table[["time_s", "round", "updates"]].to_numpy().tolist() == [
        [0, 0, 0],
        [8, 1, 0],
        [12, 1, 4],
        [16, 2, 4],
        [20, 2, 8],
        [22, 2, 8],
    ]
    assert table["test_loss"].iloc[-1] == table["test_loss"].iloc[-2]
    assert math.isnan(table["train_loss"].iloc[-1])


def test_evaluates_every_so_many_rounds() -> None:
    table = metrics(run(slow({"rounds": 5}, "2 rounds")))
    assert table[["time_s", "round"]].to_numpy().tolist() == [[0, 0], [16, 2], [34, 4], [43, 5]]


def test_evaluates_every_so_many_updates() -> None:
    table = metrics(run(slow({"rounds": 3}, "N updates")))
    assert table[["time_s", "updates"]].to_numpy().tolist() == [[0, 0], [9, 4], [18, 8], [25, 8]]


def test_the_last_row_is_not_written_twice() -> None:
    table = metrics(run(slow({"time": "16 s"}, "1 rounds")))
    assert table["time_s"].tolist() == [0, 7, 16]


def test_the_last_row_counts_the_bytes_of_messages_cut_off_by_the_end() -> None:
    links = {"up": "100 kbps", "down": "100 Mbps"}  # an embedding needs 80 ms
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [{"select": "all", "compute": "2 ms", "link": links, "upload_delay": "(30*m) ms"}],
        "network": "dedicated",
    }
    stop = {"target": {"train_loss": 1e9, "for": "1 evaluation"}}  # met as soon as there is one
    outcome = run(tiny("asynchronous", timing=timing, stop=stop, evaluate={"every": "1 rounds"}))
    cut = events(outcome, "transfer.embedding").query("outcome == 'unfinished'")
    assert (cut["bytes"] > 0).any()
    assert metrics(outcome)["round"].tolist() == [0, 1]
    assert metrics(outcome)["bytes_up"].iloc[-1] == events(outcome, "transfer.embedding")["bytes"].sum()


def test_evaluation_neither_moves_the_clock_nor_leaves_events() -> None:
    often, seldom = (run(slow({"rounds": 3}, every)) for every in ("0.25 s", "100 s"))
    assert_frame_equal(events(often), events(seldom))
    assert_frame_equal(rounds(often), rounds(seldom))
    assert len(metrics(often)) > len(metrics(seldom))


def test_an_evaluation_that_costs_time_moves_the_clock_and_occupies_the_parties() -> None:
    said = raw(
        "synchronous",
        partition={"clients": 2, "by": "columns"},
        timing={"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "1 s"}},
        stop={"rounds": 4},
        evaluate={"every": "2 rounds", "costs_time": True},
    )
    outcome = run(load(said))
    # Rounds end at 2 and 5. Evaluation is asked for at 5: the clients step until 6, then embed 180 test rows (9
    # batches) until 15 and only then the next batch, until 16; the server scores from 15 until 24, then steps until 25.
    # Round 4 ends at 28, and with it the run.
    assert rounds(outcome)["end_s"].tolist() == [2, 5, 25, 28]
    own = events(outcome, "compute.evaluate")
    assert own[["party", "start_s", "end_s"]].to_numpy().tolist() == [
        ["client-1", 6, 15],
        ["client-2", 6, 15],
        ["server", 15, 24],
    ]
    assert metrics(outcome)[["time_s", "round", "updates"]].to_numpy().tolist() == [[0, 0, 0], [24, 2, 4], [28, 4, 6]]
    assert metrics(outcome)["bytes_up"].iloc[1] > 2 * 180 * 6 * 8
    assert {"transfer.evaluate", "transfer.evaluation"} <= set(events(outcome)["kind"])


def test_an_evaluation_under_way_when_the_run_ends_is_unfinished_and_the_last_row_is_still_written() -> None:
    said = raw(
        "synchronous",
        timing={"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "1 s"}},
        stop={"time": "12 s"},
        evaluate={"every": "2 rounds", "costs_time": True},
    )
    outcome = run(load(said))
    cut = events(outcome, "compute.evaluate")
    assert cut[["start_s", "end_s", "outcome"]].to_numpy().tolist() == [[6, 12, "unfinished"]] * 4
    table = metrics(outcome)
    assert table["time_s"].tolist() == [0, 12]
    assert table["test_loss"].notna().all()


@both
def test_costly_evaluations_do_not_disturb_the_other_invariants(world: str) -> None:
    scenario = tiny("asynchronous", stop={"rounds": 40}, evaluate={"every": "10 ms", "costs_time": True})
    outcome = run(scenario, kind=world)
    assert metrics(outcome)["time_s"].iloc[0] == 0
    assert (events(outcome)["kind"] == "compute.evaluate").any()


def test_validation_rows_are_scored_besides_the_test_rows() -> None:
    outcome = run(tiny(data={"name": "digits", "train_rows": 90, "validation_fraction": 0.1}))
    table = metrics(outcome)
    assert {"validation_loss", "validation_accuracy", "test_loss", "test_accuracy"} <= set(table)
    assert (table["validation_loss"] != table["test_loss"]).all()


def test_where_nothing_takes_time_the_first_row_is_still_that_of_the_initial_models() -> None:
    timed, timeless = (metrics(run(tiny(stop={"rounds": 6}, **more))) for more in ({}, {"timing": {}}))
    assert timeless["round"].tolist() == [0, 6]
    assert timeless["test_loss"].iloc[0] == timed["test_loss"].iloc[0]
    assert timeless["test_loss"].iloc[-1] == timed["test_loss"].iloc[-1]


def test_progress_is_reported_with_every_row() -> None:
    told: list[Progress] = []
    scenario = slow({"rounds": 5}, "2 rounds")
    run_protocol(scenario, "synchronous", 0, data_of(scenario), report=told.append)
    rows = {each.time_s: each.metrics for each in told if each.metrics and each.metrics["time_s"] == each.time_s}
    assert {0.0, 16.0, 34.0, 43.0} <= set(rows)
    assert rows[43.0]["round"] == 5


def test_an_evaluation_of_the_centralised_reference_takes_computation_but_no_messages() -> None:
    free = run(tiny("centralised", stop={"rounds": 4}, evaluate={"every": "2 rounds"}))
    paid = run(tiny("centralised", stop={"rounds": 4}, evaluate={"every": "2 rounds", "costs_time": True}))
    assert metrics(paid)["bytes_down"].max() == metrics(paid)["bytes_up"].max() == 0
    assert metrics(paid)["time_s"].max() > metrics(free)["time_s"].max()
    assert set(events(paid)["kind"].astype(str)) == {"compute.server_step", "compute.evaluate"}


def test_an_evaluation_every_nanosecond_happens_once_a_change() -> None:
    outcome = run(slow({"rounds": 3}, "1e-9 s"))
    assert list(metrics(outcome)["time_s"]) == pytest.approx([0, 7, 9, 16, 18, 25], abs=2e-9)
