"""Synchronous training is centralised training with delays: the mathematics is that of one plain PyTorch loop."""

from typing import Any

import pytest
import torch
from closed_forms_of import found
from plain_training import Plain, textbook
from thorough import in_turn
from tiny_worlds import (
    EAGER,
    RANDOM_TIMING,
    apart,
    data_of,
    events,
    metrics,
    raw,
    rounds,
    run,
    same_times,
    same_weights,
    scores_apart,
    tiny,
)

from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome
from vflsim.vocabulary.execution_options import USUAL, Execution

CLIENT_MODELS = {
    "linear": {"kind": "linear", "embedding": 5},
    "polynomial": {"kind": "polynomial", "degree": 3, "embedding": 5},
    "mlp": {"kind": "mlp", "hidden": [7, 6], "embedding": 5},
    "cnn": {"kind": "cnn", "channels": [2, 3], "embedding": 5},
}
SGD = {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}
ADAM = {"kind": "adam", "lr": 0.01}
STEPS = 30


def trained(said: dict, steps: int) -> tuple[Plain, Outcome]:
    """A plain loop after so many steps, and the run of the same scenario."""
    scenario = load(said)
    plain = Plain(said, scenario, "synchronous", 0, data_of(scenario))
    for k in range(steps):
        plain.synchronous_step(plain.ids(1, k))
    return plain, run(scenario)


def compared_with_plain(
    protocol: str, client: str, aggregate: str, optimizer: dict, execution: Execution = USUAL, **changes: object
) -> tuple[float, float]:
    """Largest difference of a weight, and of the test loss, after ``STEPS`` steps."""
    said = raw(
        protocol,
        models__client=CLIENT_MODELS[client],
        models__aggregate=aggregate,
        training__client_optimizer=optimizer,
        training__server_optimizer={**optimizer, "lr": optimizer["lr"] / 2},
        partition={"clients": 3, "by": "image_rows"},
        stop={"updates": 3 * STEPS},
        evaluate={"every": f"{STEPS // 2} rounds"},
        **changes,
    )
    scenario = load(said)
    outcome = run(scenario, execution=execution)
    plain = Plain(said, scenario, protocol, 0, data_of(scenario))
    losses = [plain.synchronous_step(plain.ids(1, k)) for k in range(STEPS)]
    table = metrics(outcome)
    assert table["round"].iloc[-1] == STEPS
    assert sum(losses[: STEPS // 2]) / (STEPS // 2) == pytest.approx(table["train_loss"].iloc[1], abs=1e-12)
    return plain.furthest(dict(outcome.weights)), abs(plain.test_loss() - table["test_loss"].iloc[-1])


@pytest.mark.sampled(2)
@in_turn(client=[*CLIENT_MODELS], aggregate=["mean", "sum", "max", "concat", "weighted"])
def test_equals_a_plain_loop_with_sgd(client: str, aggregate: str) -> None:
    weights, loss = compared_with_plain("synchronous", client, aggregate, SGD)
    assert weights <= 1e-12
    assert loss <= 1e-12


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("client", "aggregate"), [("linear", "max"), ("polynomial", "mean"), ("mlp", "sum"), ("cnn", "concat")]
)
def test_equals_a_plain_loop_with_adam(client: str, aggregate: str) -> None:
    weights, loss = compared_with_plain("synchronous", client, aggregate, ADAM)
    assert weights <= 1e-12
    assert loss <= 1e-12


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("client", "aggregate"), [("linear", "mean"), ("polynomial", "concat"), ("mlp", "sum")])
def test_one_by_one_equals_a_plain_loop_too(client: str, aggregate: str) -> None:
    for optimizer in (SGD, ADAM):
        weights, loss = compared_with_plain("synchronous", client, aggregate, optimizer, EAGER)
        assert weights <= 1e-12
        assert loss <= 1e-12


def test_clients_may_differ_in_model_and_width() -> None:
    clients = [
        {"select": "all", "kind": "linear", "embedding": 4},
        {"select": "2", "kind": "mlp", "hidden": [6], "embedding": 3},
        {"select": "3", "kind": "polynomial", "degree": 2, "embedding": 7},
    ]
    said = raw(models__client=clients, models__aggregate="concat", stop={"updates": 4 * 50})
    plain, outcome = trained(said, 50)
    assert plain.furthest(dict(outcome.weights)) <= 1e-12


@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
def test_clients_may_differ_in_their_optimiser(execution: Execution) -> None:
    rules = [{"select": "all", **SGD}, {"select": "2", **ADAM}, {"select": "3..4", **SGD, "lr": "0.01 * i"}]
    said = raw(training__client_optimizer=rules, stop={"updates": 4 * STEPS})
    scenario = load(said)
    plain = Plain(raw(), scenario, "synchronous", 0, data_of(scenario))
    own = {1: SGD, 2: ADAM, 3: {**SGD, "lr": 0.01}, 4: {**SGD, "lr": 0.02}}
    plain.optimizers |= {client: textbook(rule) for client, rule in own.items()}
    for k in range(STEPS):
        plain.synchronous_step(plain.ids(1, k))
    assert plain.furthest(dict(run(scenario, execution=execution).weights)) <= 1e-12


def test_federated_logistic_regression_equals_logistic_regression() -> None:
    said = raw(
        data={"name": "breast_cancer", "train_rows": 120},
        partition={"clients": 3, "by": "columns"},
        models={
            "client": {"kind": "linear", "bias": False, "embedding": 1},
            "aggregate": "sum",
            "server": {"kind": "logistic"},
        },
        training__client_optimizer=SGD,
        training__server_optimizer=SGD,
        stop={"updates": 3 * STEPS},
    )
    plain, outcome = trained(said, STEPS)
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    assert plain.test_loss() == pytest.approx(metrics(outcome)["test_loss"].iloc[-1], abs=1e-12)
    # and as one model on all features, never cut into parties
    w, b = torch.zeros(30, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    first, data = Plain(said, load(said), "synchronous", 0, data_of(load(said))), data_of(load(said))
    w = torch.cat([first.weights[m][0].detach()[0] for m in (1, 2, 3)])
    x, y = torch.cat([part["train"] for part in data.features], 1), data.labels["train"].squeeze()
    optimizer = textbook(SGD)
    for k in range(STEPS):
        ids = first.ids(1, k)
        error = (torch.sigmoid(x[ids] @ w + b) - y[ids]) / len(ids)
        optimizer.step([w, b], [x[ids].T @ error, error.sum()[None]])
    found = torch.cat([outcome.weights[f"client-{m}.1.weight"][0] for m in (1, 2, 3)])
    assert torch.allclose(found, w, atol=1e-12)


def test_delays_do_not_change_what_is_learnt() -> None:
    assert compared_with_plain("synchronous", "mlp", "mean", SGD, timing=RANDOM_TIMING)[0] <= 1e-12


def test_centralised_equals_the_same_plain_loop() -> None:
    assert compared_with_plain("centralised", "mlp", "mean", SGD)[0] <= 1e-12


def test_centralised_ends_with_the_weights_of_synchronous() -> None:
    scenario = tiny({"wait": {"kind": "synchronous"}, "reference": {"kind": "centralised"}}, stop={"updates": 4 * 30})
    one, other = run(scenario, "wait"), run(scenario, "reference")
    assert same_weights(one, other)
    assert metrics(one)["test_loss"].iloc[-1] == metrics(other)["test_loss"].iloc[-1]


def test_centralised_takes_the_servers_compute_time_per_round_and_sends_nothing() -> None:
    scenario = tiny("centralised", timing=RANDOM_TIMING, stop={"rounds": 30})
    outcome = run(scenario)
    own = events(outcome)
    assert set(own["kind"]) == {"compute.server_step"}
    assert set(own["party"]) == {"server"}
    table = metrics(outcome)
    assert (table[["bytes_up", "bytes_down", "bytes_peer"]] == 0).all(axis=None)
    assert table["time_s"].iloc[-1] == pytest.approx(own["drawn_s"].sum(), rel=1e-12)
    steps = run(tiny("synchronous", timing=RANDOM_TIMING, stop={"rounds": 30}))
    assert list(own["drawn_s"]) == list(events(steps, "compute.server_step")["drawn_s"])


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    # embed 2 s, delay m s, step of the server 1 s, step of the client 2 s; links take no time
    timing = {
        "server": {"compute": "1 s"},
        "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"},
    }
    outcome = run(tiny(timing=timing, stop={"rounds": 3}))
    assert list(rounds(outcome)["end_s"]) == [7, 7 + 9, 7 + 2 * 9]
    assert all(list(used) == [1, 2, 3, 4] for used in rounds(outcome)["used"])
    table = metrics(outcome)
    assert list(table["updates"]) == [0, 8]


def test_every_round_ages_nothing() -> None:
    table = metrics(run(tiny(timing=RANDOM_TIMING)))
    assert (table.iloc[1:][["row_age_mean", "row_age_max", "client_age_mean", "client_age_max"]] == 0).all(axis=None)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["fifo", "dedicated"])
def test_t_synchronous_with_all_clients_writes_the_same_tables(network: str) -> None:
    both = {"wait": {"kind": "synchronous"}, "t-sync": {"kind": "t_synchronous", "t": 4}}
    scenario = tiny(both, timing={**RANDOM_TIMING, "network": network}, stop={"rounds": 40})
    one, other = run(scenario, "wait", execution=EAGER), run(scenario, "t-sync", execution=EAGER)
    assert one.tables == other.tables
    assert same_weights(one, other)
    summed, tabled = run(scenario, "wait"), run(scenario, "t-sync")  # of which only the second keeps every row
    assert same_times(summed, tabled)
    assert max(apart(summed, tabled), scores_apart(summed, tabled)) <= 1e-12


CLIENTS, COLUMNS, HIDDEN, EMBEDDING, CLASSES = 8, 8, 4, 6, 10
RATE = 1_000.0
SLOW = {"kind": "flops", "rate": "1 FLOPS"}


def world(server: Any, **changes: Any) -> Scenario:
    """Eight clients of 8 features, 8-4-6 networks; the server 6-10; 90 rows in batches of 20, the last one of 10."""
    return load(raw(
        {"it": {"kind": "centralised"}}, partition={"clients": CLIENTS, "by": "columns"},
        models__client={"kind": "mlp", "hidden": [HIDDEN], "embedding": EMBEDDING}, models__server={"kind": "linear"},
        timing={"server": {"compute": server}, "clients": {"select": "all", "compute": SLOW}},
        **changes,
    ))  # fmt: skip


def forward_client(rows: int) -> int:
    return 2 * rows * (COLUMNS * HIDDEN + HIDDEN * EMBEDDING)


def backward_client(rows: int) -> int:
    """The gradients of both layers' weights, and of the second layer's input; nobody needs that of the features."""
    return 2 * rows * (COLUMNS * HIDDEN + 2 * HIDDEN * EMBEDDING)


def step(rows: int) -> float:
    """FLOPs of a whole step: the server's linear model forward, and backward to its weights and its input."""
    return CLIENTS * (forward_client(rows) + backward_client(rows)) + 3 * 2 * rows * EMBEDDING * CLASSES


FLOPS = {"kind": "flops", "rate": RATE}
KINDS = [20, 20, 20, 20, 10]
"""Rows of the batches of an epoch."""


def test_a_round_takes_the_flops_of_the_whole_model() -> None:
    outcome = run(world(FLOPS, stop={"rounds": 10}), timing_only=True)
    lasted = (rounds(outcome)["end_s"] - rounds(outcome)["start_s"]).to_numpy()
    assert lasted == pytest.approx([step(rows) / RATE for rows in KINDS * 2])
    assert set(events(outcome)["kind"]) == {"compute.server_step"}


def test_a_sampled_time_is_that_of_the_whole_step() -> None:
    outcome = run(world("0.3 s", stop={"rounds": 6}), timing_only=True)
    assert rounds(outcome)["end_s"].to_numpy() == pytest.approx([0.3 * (k + 1) for k in range(6)])


def test_an_evaluation_that_costs_time_takes_the_forward_passes_of_the_whole_model() -> None:
    scenario = world(FLOPS, stop={"rounds": 5}, evaluate={"every": "2 rounds", "costs_time": True})
    done = events(run(scenario, timing_only=True), "compute.evaluate")
    rows = 180  # a tenth of the 1,797 digits, by class
    assert len(done) >= 1
    whole = CLIENTS * forward_client(rows) + 2 * rows * EMBEDDING * CLASSES
    assert (done["end_s"] - done["start_s"]).to_numpy() == pytest.approx([whole / RATE] * len(done))


def test_the_closed_form_is_the_mean_over_an_epoch() -> None:
    assert found(world(FLOPS)).mean.low == pytest.approx(sum(map(step, KINDS)) / len(KINDS) / RATE)
    jittery = {**FLOPS, "jitter": {"kind": "uniform", "low": 1, "high": 2}}
    assert found(world(jittery)).mean.low == pytest.approx(1.5 * sum(map(step, KINDS)) / len(KINDS) / RATE)
