"""Flex-VFL: given and measured numbers of steps, its updates, its rates, and its equality with C-VFL."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from closed_forms_of import found
from in_events_order import gradients_of
from plain_training import LEARNING, Plain
from three_clients import three_clients
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, rounds, run, same_times, same_weights, tiny

from vflsim.errors import ScenarioError
from vflsim.protocols.sharing import StepCounts
from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

GIVEN = [4, 1, 2, 3]
"""Steps of the server and of three clients."""


def test_equal_steps_are_c_vfl_to_the_bit() -> None:
    protocols = {
        "flex": {"kind": "flex_vfl", "local_steps": [3] * 5},
        "c_vfl": {"kind": "c_vfl", "local_steps": 3},
    }
    scenario = tiny(protocols, timing=RANDOM_TIMING)
    one, other = (run(scenario, name) for name in protocols)
    assert same_weights(one, other)
    assert same_times(one, other)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@pytest.mark.parametrize("aggregate", ["mean", "concat"])
def test_many_rounds_are_those_of_the_equations(many: int, aggregate: str, execution: Execution) -> None:
    """Every party steps on its own block while the others' values are those of the round's beginning."""
    said = three_clients(
        {"kind": "flex_vfl", "local_steps": GIVEN},
        models__aggregate=aggregate, stop={"updates": sum(GIVEN[1:]) * many}, evaluate={"every": f"{many} rounds"},
    )  # fmt: skip
    scenario = load(said)
    outcome, plain = run(scenario, execution=execution), Plain(said, scenario, "it", 0, data_of(scenario))
    losses = [in_blocks(plain, plain.ids(1, t)) for t in range(many)]
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert many < LEARNING or losses[-1] < losses[0] - 0.05


def in_blocks(plain: Plain, ids: torch.Tensor) -> float:
    start = [plain.embed(m, ids).detach() for m in plain.clients]
    top = [w.detach().clone() for w in plain.weights[0]]
    first = gradients_of(plain, start, ids)[0]
    for _ in range(GIVEN[0]):
        plain.step(0, gradients_of(plain, start, ids)[2])
    now, plain.weights[0] = plain.weights[0], [w.requires_grad_() for w in top]
    for place, m in enumerate(plain.clients):
        for _ in range(GIVEN[m]):
            loss = plain.loss([*start[:place], plain.embed(m, ids), *start[place + 1 :]], ids)
            plain.step(m, torch.autograd.grad(loss, plain.weights[m]))
    plain.weights[0] = now
    return first


def test_a_party_fills_the_time_with_steps_like_those_of_its_last_round() -> None:
    timing = {
        "server": {"compute": "5 ms"},
        "clients": [{"select": "all", "compute": "(2*m) ms", "upload_delay": "1 ms"}],
    }
    protocol = {"kind": "flex_vfl", "local_time": "12 ms"}
    scenario = tiny({"it": protocol}, timing=timing, stop={"rounds": 5})
    log = events(run(scenario, timing_only=True))
    steps = {party: (log[log["party"] == party]["kind"] == "compute.client_step").sum() for party in set(log["party"])}
    # In four whole rounds: 1, then 12 ÷ 2, 4, 6, 8 ms three times.
    assert [steps[f"client-{m}"] for m in range(1, 5)] == [1 + 3 * 6, 1 + 3 * 3, 1 + 3 * 2, 1 + 3 * 1]
    own = log[(log["party"] == "server") & log["kind"].str.startswith("compute")]
    assert (own["kind"] == "compute.local_step").sum() == 3 * (12 // 5 - 1)


def test_counts_by_hand() -> None:
    now = 5.0
    counts = StepCounts(lambda: now, seconds=1.0)
    assert counts.begin() == 1
    for seconds, then in [(0.3, 3), (1.5, 2), (4.0, 1), (0.0, 1)]:
        now += seconds
        counts.end()
        now += 100.0  # other work
        assert counts.begin() == then


def test_given_numbers_read_no_clock() -> None:
    def clock() -> float:
        raise AssertionError

    counts = StepCounts(clock, given=7)
    assert counts.begin() == 7
    counts.end()
    assert counts.begin() == 7


def test_scaled_rates_are_those_of_one_step_divided_by_the_number_of_steps() -> None:
    """Clients take 1 step in round 0 and 3 in round 1, at a third of their rate; the server always takes 1."""
    said = three_clients(
        {"kind": "flex_vfl", "local_time": "6 ms", "scale_rate": True},
        timing={"server": {"compute": "9 ms"}, "clients": [{"select": "all", "compute": "2 ms"}]},
        training__client_optimizer={"kind": "sgd", "lr": 0.3}, training__server_optimizer={"kind": "sgd", "lr": 0.2},
        stop={"updates": 3 + 9},
    )  # fmt: skip
    scenario = load(said)
    outcome, plain = run(scenario), Plain(said, scenario, "it", 0, data_of(scenario))
    for t, steps in enumerate([1, 3]):
        ids = plain.ids(1, t)
        start = [plain.embed(m, ids).detach() for m in plain.clients]
        by_top = gradients_of(plain, start, ids)[2]
        for place, m in enumerate(plain.clients):
            plain.optimizers[m].lr = 0.3 / steps
            for _ in range(steps):
                loss = plain.loss([*start[:place], plain.embed(m, ids), *start[place + 1 :]], ids)
                plain.step(m, torch.autograd.grad(loss, plain.weights[m]))
        plain.step(0, by_top)
    assert plain.furthest(dict(outcome.weights)) <= 1e-12


@pytest.mark.parametrize(
    ("steps", "lasts"),
    [
        ([9, 1, 2, 1, 2], 45),  # the server's: 9 · 5 ms
        ([2, 1, 2, 1, 2], 30),  # the cycle of client 4: (2 + 1) · 8 + 1 ms, and a step of the server
        ([2, 30, 1, 1, 1], 68),  # that of client 1: (30 + 1) · 2 + 1 ms
    ],
)
def test_given_steps_have_a_law(steps: list[int], lasts: float) -> None:
    timing: dict[str, Any] = {
        "server": {"compute": "5 ms"},
        "clients": [{"select": "all", "compute": "(2*m) ms", "upload_delay": "1 ms"}],
    }
    scenario = tiny({"it": {"kind": "flex_vfl", "local_steps": steps}}, timing=timing, stop={"rounds": 9})
    assert found(scenario).mean.low * 1e3 == pytest.approx(lasts)
    durations = rounds(run(scenario, timing_only=True))["end_s"].diff()[1:] * 1e3
    assert durations.to_list() == pytest.approx([lasts] * 8)


def test_clients_that_differ_in_nothing_but_their_steps_have_laws_of_their_own() -> None:
    timing = {"server": {"compute": 0}, "clients": [{"select": "all", "compute": "1 ms"}]}
    scenario = tiny({"it": {"kind": "flex_vfl", "local_steps": [1, 2, 7, 2, 3]}}, timing=timing)
    assert found(scenario).mean.low == pytest.approx(0.008)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "exactly one of local_steps and local_time"),
        ({"local_steps": [1, 2], "local_time": "1 s"}, "exactly one of local_steps and local_time"),
        (
            {"local_steps": [1, 2]},
            r"local_steps has 2 numbers\s+allowed: 5, the server's and one for each of the 4 clients",
        ),
        ({"local_steps": [1, 0, 1, 1, 1]}, "at least 1"),
        ({"local_steps": [1] * 5, "scale_rate": True}, "scale_rate changes nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_scenario_is_loaded(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        tiny({"it": {"kind": "flex_vfl", **keys}})
