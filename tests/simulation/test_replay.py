"""Replays: the order in which parties meet their inputs decides their weights, and time decides nothing."""

import math
import re
from typing import Any

import pyarrow as pa
import pytest
import torch
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, tiny

from vflsim.errors import DeadlockError, ResultsError, ScenarioError
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import parties
from vflsim.simulation.replay import order_table, orders_of, refuse_unreplayable, replayed
from vflsim.simulation.run import EventRun, Outcome, RunPlan
from vflsim.streams import SHARED, torch_seed
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import InputOrder, Message
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

OWN_PACE = [
    *("t-synchronous", "t-synchronous-cancel", "t-synchronous-bounded", "asynchronous", "asynchronous-bounded"),
    *("bs_vfl", "celu_vfl"),
]
STANDING = {"server": {"compute": "1 ms"}, "clients": {"compute": "1 ms"}}


class Noting(Recorder):
    """Notes the order in which activities of each party end."""

    def __init__(self, orders: dict[int, InputOrder]) -> None:
        super().__init__("events")
        self._orders = orders
        self.event = self._note

    def _note(self, *row: Any) -> None:
        party, kind, drawn, outcome = row[2], row[3], row[8], row[9] if len(row) > 9 else "done"
        if outcome == "done" and not math.isnan(drawn) and not kind.startswith("latency."):
            self._orders[party].ended(kind)
        self.events.add(*row)


class Noted(Mailbox):
    """Notes the order in which messages come."""

    def __init__(self, world: VirtualWorld, order: InputOrder) -> None:
        super().__init__(world)
        self._order = order

    def deliver(self, message: Message) -> None:
        self._order.arrived(message)
        super().deliver(message)


def scenario_of(kind: str, timing: dict[str, Any] = RANDOM_TIMING) -> Scenario:
    return tiny({"only": KINDS[kind]}, timing=timing, stop={"rounds": 20})


def simulated(scenario: Scenario) -> tuple[Outcome, dict[int, InputOrder]]:
    """A usual run, eager, and the orders of its parties."""
    world, orders = VirtualWorld(ImmediateExecutor()), {party: InputOrder() for party in range(scenario.clients + 1)}
    resolved, protocol = setting(scenario, "only", data_of(scenario)), scenario.protocols["only"].protocol
    boxes = {party: Noted(world, order) for party, order in orders.items()}
    with drawing_from(torch_seed(0, SHARED, "learners")):
        made = parties(protocol, resolved, 0, world, Noting(orders), boxes=boxes)
    return EventRun(RunPlan(scenario, "only", 0, resolved, execution=EAGER), made).play(), orders


def again(scenario: Scenario, orders: dict[int, InputOrder]) -> Outcome:
    return replayed(scenario, "only", 0, data_of(scenario), orders)


def equal(one: Outcome, other: Outcome) -> bool:
    assert one.weights.keys() == other.weights.keys()
    return all(torch.equal(one.weights[key], other.weights[key]) for key in one.weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", OWN_PACE)
def test_the_order_gives_the_weights_whatever_the_times_are(kind: str) -> None:
    first, orders = simulated(scenario_of(kind))
    assert first.error is None
    same = again(scenario_of(kind, STANDING), orders_of(order_table(orders)))
    assert same.error is None
    assert same.info.counts["rounds"] == 20
    assert same.note == "a replay: its times mean nothing"
    assert equal(first, same)
    other, _ = simulated(scenario_of(kind, STANDING))
    assert not equal(first, other), "another order gives other weights"


def test_an_order_in_which_a_message_comes_before_it_is_sent_names_the_party_and_the_input() -> None:
    _, orders = simulated(scenario_of("asynchronous"))
    items = orders[0].items
    items.insert(0, items.pop(12))
    outcome = again(scenario_of("asynchronous"), orders)
    assert isinstance(outcome.error, DeadlockError)
    assert re.search(r"departs from the live order: server waits for input 0, ", outcome.error.what)


def test_a_party_without_an_order_is_named() -> None:
    _, orders = simulated(scenario_of("asynchronous"))
    del orders[2], orders[4]
    with pytest.raises(ResultsError, match="no order of client-2, client-4"):
        again(scenario_of("asynchronous"), orders)


def test_a_table_of_other_columns_is_no_order() -> None:
    with pytest.raises(ResultsError, match=r"a table with the columns \['party'\]"):
        orders_of(pa.table({"party": [1]}))


def test_evaluations_that_take_part_in_the_order_are_refused() -> None:
    costly = {"kind": "synchronous", "evaluate": {"every": "2 rounds", "costs_time": True}}
    with pytest.raises(ScenarioError, match="only cannot be replayed: its evaluations cost time"):
        refuse_unreplayable(tiny({"only": costly}))
    with pytest.raises(ScenarioError, match="only cannot be replayed: its evaluations have messages of their own"):
        refuse_unreplayable(scenario_of("easter"))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("mechanism", {"kind": "gaussian", "clip": 1, "delta": 1e-5, "noise_multiplier": 2}),
        ("codec", {"kind": "round", "noise": {"epsilon": 2}}),
        ("codec", {"kind": "by_direction", "up": {"kind": "round", "noise": {"epsilon": 2}}, "down": "plain"}),
        ("noise", KINDS["dpzv"]["noise"]),
    ],
)
def test_noise_that_is_in_no_file_is_refused(key: str, said: dict[str, Any]) -> None:
    with pytest.raises(
        ScenarioError, match="only cannot be replayed: the noise of a live run is in no file"
    ) as refused:
        refuse_unreplayable(tiny({"only": {"kind": "dpzv" if key == "noise" else "synchronous", key: said}}))
    assert f"protocols.only.{key}" in str(refused.value)
    refuse_unreplayable(tiny({"only": {"kind": "synchronous", "codec": {"kind": "round"}}}))


def test_outages_are_no_part_of_the_order_and_refused() -> None:
    away = {"kind": "failure", "at": "1 s", "repair": "1 s", "interrupted": "lost"}
    timing = {"clients": [{"select": "all", "compute": "1 ms"}, {"select": "3", "availability": away}]}
    with pytest.raises(ScenarioError, match="only cannot be replayed: outages of client-3 are no part of the order"):
        refuse_unreplayable(tiny({"only": {"kind": "synchronous"}}, timing=timing))


def test_a_deadline_cannot_be_replayed() -> None:
    _, orders = simulated(scenario_of("ignore-deadline"))
    outcome = again(scenario_of("ignore-deadline"), orders)
    assert outcome.error is not None
    assert "a receive with a timeout" in outcome.error.what


def test_steps_that_measured_times_decide_cannot_be_replayed() -> None:
    _, orders = simulated(scenario_of("flex_vfl"))
    outcome = again(scenario_of("flex_vfl"), orders)
    assert outcome.error is not None
    assert "a protocol that reads the clock" in outcome.error.what
