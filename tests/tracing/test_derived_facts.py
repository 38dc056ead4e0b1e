"""Facts of a trace that no other test looks at: counts of waits, parts of delays, and what takes other times."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, eq, floordiv, ge, gt, le, lt, mod, ne
from typing import Any, Literal

import numpy as np
import pytest
from both_paths import assert_same_bytes, quick
from scripted_rounds import scripted_world
from shared_delay import Sharing
from thorough import is_thorough
from tiny_worlds import RANDOM_TIMING, data_of

from vflsim.learning.batches import Batch
from vflsim.protocol import Embedding, Gradient, Protocol, Synchronous
from vflsim.scenario.resolve import setting
from vflsim.setting import split_learners
from vflsim.simulation.vectorised import UndecidedError
from vflsim.tracing.acts import ServerWaits
from vflsim.tracing.node import RoundNumber, Untraceable
from vflsim.tracing.notes import Reception, Work, follows
from vflsim.tracing.recording import record
from vflsim.tracing.trace import RoundTrace, trace
from vflsim.world.messages import FirstFill
from vflsim.world.node import ClientNode, ServerNode


class Undelayed(Synchronous):
    """Clients send without their upload delay."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.send("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))


class Aside(Synchronous):
    """The server does something that it does not wait for."""

    async def server(self, node: ServerNode) -> None:
        node.start(self.aside(node))
        await super().server(node)

    async def aside(self, node: ServerNode) -> None:
        await node.sleep(1)


class Twice(Synchronous):
    """Two steps of the server end rounds before the clients hear of them."""

    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            await node.compute(node.learner.server_step(embeddings))
            step = await node.compute(node.learner.server_step(embeddings))
            for message in embeddings:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))


@pytest.mark.parametrize(
    ("protocol", "why"),
    [
        (Undelayed(), "clients send 'embedding' messages without their upload delay"),
        (Aside(), "server does something beside its main line"),
        (Twice(), r"steps that end a round; allowed: one|not alike"),
    ],
    ids=["undelayed", "aside", "twice"],
)
def test_what_takes_other_times_is_refused(protocol: Protocol, why: str) -> None:
    scenario = quick("synchronous", timing=RANDOM_TIMING)
    with pytest.raises(Untraceable, match=why):
        trace(protocol, setting(scenario, "it", data_of(scenario)), 0, Batch(0, np.arange(20)))


def traced(protocol: dict[str, Any], by_hand: bool = False, **changes: Any) -> RoundTrace:
    scenario = quick(protocol, timing=RANDOM_TIMING, **changes)
    its = setting(scenario, "it", data_of(scenario))
    return trace(scenario.protocols["it"].protocol, its, 0, Batch(0, np.arange(20)), by_hand)


@pytest.mark.parametrize(
    ("protocol", "counts"),
    [
        ({"kind": "synchronous"}, [None]),
        ({"kind": "t_synchronous", "t": 2, "cancel": True}, [2]),
        ({"kind": "t_synchronous", "t": 4, "cancel": True}, [None]),
        ({"kind": "easter"}, [None, None]),
    ],
    ids=lambda part: str(part),
)
def test_a_wait_says_for_how_many(protocol: dict[str, Any], counts: list[int | None]) -> None:
    found = traced(protocol, by_hand=True)
    assert [act.count for act in found.round[1] if isinstance(act, ServerWaits)] == counts


def test_a_part_of_a_delay_is_a_part_on_arrays() -> None:
    assert_same_bytes(quick("synchronous", timing=RANDOM_TIMING).with_protocols({"it": Sharing()}))


class Beginning(Synchronous):
    """Clients embed all their rows once, before the first round, as their first act there as in each round."""

    kind: Literal["beginning"] = "beginning"  # type: ignore[assignment]

    async def server(self, node: ServerNode) -> None:
        await node.gather("first_fill", senders=node.clients)
        await super().server(node)

    async def client(self, node: ClientNode) -> None:
        h = await node.compute(node.learner.embed_split("train", "first_fill"))
        await node.upload("server", FirstFill(value=h))
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))


def test_each_act_has_the_costs_of_its_own_operation() -> None:
    clients = {
        "compute": {"kind": "flops", "rate": "1e5 FLOPS"},
        "upload_delay": {"kind": "exponential", "mean": "m s"},
    }
    timing = {"clients": {"select": "all", **clients}}
    assert_same_bytes(quick("synchronous", timing=timing).with_protocols({"it": Beginning()}))


class Asking(Synchronous):
    """Clients ask for their number."""

    async def client(self, node: ClientNode) -> None:
        assert node.party
        await super().client(node)


@pytest.mark.parametrize(("protocol", "asked"), [(Synchronous(), False), (Asking(), True)])
def test_a_trace_notes_whether_clients_ask_for_their_number(protocol: Protocol, asked: bool) -> None:
    scenario = quick("synchronous", timing=RANDOM_TIMING)
    found = record(protocol, setting(scenario, "it", data_of(scenario)), 0, Batch(0, np.arange(20)))
    assert found.by_number == asked


@pytest.mark.parametrize(("count", "of_all"), [(2, False), (3, False), (4, True)])
def test_a_wait_for_all_is_one_for_every_sender(count: int, of_all: bool) -> None:
    assert Reception("embedding", 0, (1, 2, 3, 4), count, patient=False).of_all == of_all
    assert not Reception("embedding", 0, (1, 2, 3, 4), count, patient=True).of_all


@pytest.mark.parametrize(
    ("one", "later", "follow"), [(0, 1, True), (0, 0, False), (0, 2, False), (None, None, True), (-1, -1, True)]
)
def test_a_message_follows_that_of_the_round_before(one: int | None, later: int | None, follow: bool) -> None:
    waits = [Reception("embedding", round_, (1, 2), 2, patient=False) for round_ in (one, later)]
    assert follows(*waits) == follow


def test_work_on_a_batch_of_another_size_does_not_follow() -> None:
    scenario = quick("synchronous", timing=RANDOM_TIMING)
    client = split_learners(setting(scenario, "it", data_of(scenario)), seed=0).clients[1]
    small, same, large = (Work(client.embed(Batch(0, np.arange(rows)))) for rows in (4, 4, 8))
    assert follows(small, same)
    assert not follows(small, large)


@pytest.mark.parametrize(
    "decide", [eq, ne, lt, le, gt, ge, mod, floordiv, divmod, and_, lambda number, _: bool(number)]
)
def test_a_comparison_of_a_round_s_number_is_a_decision(decide: Callable[[int, int], object]) -> None:
    lines: list[str] = []
    number = RoundNumber.of(3, lines.append)
    decide(number, 2)
    decide(2 * (number + 1) - 3, 2)
    assert len(lines) == 2


WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST_DECIDED = 0.5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, THOROUGH if is_thorough() else WORLDS, GROUP))
def test_both_paths_leave_the_same_bytes(first: int) -> None:
    decided = 0
    for number in range(first, first + GROUP):
        try:
            assert_same_bytes(quick(**scripted_world(number)))
        except UndecidedError:
            continue
        except AssertionError as error:
            raise AssertionError(f"world {number}: {scripted_world(number)}") from error
        decided += 1
    assert decided >= FEWEST_DECIDED * GROUP


def test_the_server_takes_a_draw_for_each_of_its_operations_in_a_turn() -> None:
    drawn = {"kind": "exponential", "mean": "2 ms"}
    timing = {"server": {"compute": drawn}, "clients": {"select": "all", "compute": drawn}}
    protocol = {"kind": "module", "path": "twice_in_turn:TwiceInTurn", "local_steps": 1}
    for tables in ("rounds", "events"):
        assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 12}, record=tables))
