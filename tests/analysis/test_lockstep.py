"""Laws of traced rounds in small worlds, worked by hand: nearly all times are constant."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from closed_forms_of import found
from shared_delay import Sharing
from tiny_worlds import data_of, tiny

from vflsim.analysis.lockstep import RoundLaws, Trip
from vflsim.analysis.rounds import MIXED
from vflsim.analysis.stages import Turn
from vflsim.learning.batches import Batch
from vflsim.protocol import Embedding, Gradient, Synchronous
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.timing.delays.sums import total
from vflsim.world.node import ClientNode

EXPONENTIAL = {"kind": "exponential", "mean": "1 s"}


def world(
    protocol: Any, *clients: dict[str, Any], server: Any = 0, network: Any = "dedicated", link: Any = None, **said: Any
) -> Scenario:
    kind = {"kind": protocol} if isinstance(protocol, str) else protocol
    timing = {"network": network, "server": {"compute": server, "link": link or {}}, "clients": [*clients]}
    return tiny({"it": kind}, **{"training__last_batch": "drop", **said}, timing=timing)


def laws_of(scenario: Scenario) -> RoundLaws:
    return RoundLaws(scenario.protocols["it"].protocol, setting(scenario, "it", data_of(scenario)))


def test_latencies_between_pairs_make_alike_clients_unlike(tmp_path: Path) -> None:
    file = tmp_path / "latencies.csv"
    file.write_text("0 1 2 3 9\n1 0 1 1 1\n2 1 0 1 1\n3 1 1 0 1\n9 1 1 1 0\n")
    latency = {"file": str(file), "unit": "s"}
    far = world("synchronous", {"select": "all", "compute": 1.0}, network={"kind": "dedicated", "latency": latency})
    assert found(far).mean.low == pytest.approx(9 + 1 + 1 + 9)  # of client 4: down, a step, an embedding, up


@pytest.mark.parametrize("network", ["fifo", "fair"])
def test_a_message_waits_for_those_of_all_other_clients(network: str) -> None:
    link = {"up": "1 Mbps", "down": "1 Mbps"}
    crowded = world("synchronous", {"select": "all", "compute": 0, "link": link}, network=network, link=link)
    laws = laws_of(crowded)
    (trip,) = [part for part in laws.course(laws.turns[0]) if isinstance(part, Trip)]
    alone = sum(seconds for message in trip.messages for seconds, _ in message)
    assert alone > 0
    assert laws.waits(trip) == pytest.approx([3 * alone])


def test_a_client_that_takes_fewer_steps_takes_less_time() -> None:
    own_steps = {"kind": "flex_vfl", "local_steps": [1, 4, 1, 1, 1]}
    uploads = {"select": "2..N", "compute": 1.0, "upload_delay": 10.0}
    unlike = world(own_steps, {"select": "1", "compute": 1.0}, uploads)
    assert found(unlike).mean.low == pytest.approx(1 + 1 + 10)  # one step of client 2, an embedding, its upload


def test_a_part_of_a_delay_takes_a_part_of_its_time() -> None:
    sharing = world("synchronous", {"select": "all", "compute": 1.0, "upload_delay": 10.0})
    assert found(sharing.with_protocols({"it": Sharing()})).mean.low == pytest.approx(1 + 3 + 1 + 10)


def test_the_server_s_further_steps_are_beside_the_clients() -> None:
    often = {"kind": "fedbcd", "local_steps": 1, "server_steps": 4}
    slow = found(world(often, {"select": "all", "compute": 1.0}, server=5.0))
    assert slow.mean.low == pytest.approx(3 * 5 + 5)
    random = found(world(often, {"select": "all", "compute": EXPONENTIAL}, server=EXPONENTIAL))
    first, longest, *_ = (each.text for each in random.formulas())
    assert first.startswith("T = C_(5) + S")  # the longest of four clients and the server's own work
    assert longest.startswith("F_(5)(x) = F_1(x)**4*F_2(x)")


def test_many_random_times_have_a_mean_alone() -> None:
    turns = {"kind": "fedbcd", "local_steps": 16, "order": "sequential"}
    form = found(world(turns, {"select": "all", "compute": EXPONENTIAL}))
    assert "of so many random times only the mean" in form.conditions


@pytest.mark.parametrize(("last", "mixed"), [("keep", True), ("drop", False)])
def test_rounds_are_mixed_where_the_last_batch_is_smaller(last: str, mixed: bool) -> None:
    by_flops = {"select": "all", "compute": {"kind": "flops", "rate": "1e5 FLOPS"}}
    assert (MIXED in found(world("synchronous", by_flops, training__last_batch=last)).conditions) == mixed


def test_a_round_begins_with_steps_on_the_batch_before() -> None:
    by_flops = {"select": "all", "compute": {"kind": "flops", "rate": "1 FLOPS"}}
    scenario = world("synchronous", by_flops, training__last_batch="keep")
    laws, its = laws_of(scenario), setting(scenario, "it", data_of(scenario))
    client = scenario.protocols["it"].protocol.learners(its, 0).clients[1]
    batches = {rows: Batch(0, np.arange(rows)) for rows in (10, 20)}
    flops = {}
    for rows, batch in batches.items():
        embed = client.embed(batch)
        step = client.client_step(batch, Gradient(value=embed.result, round=0))
        flops[rows] = embed.flops(), step.flops()
    for before, now in ((10, 20), (20, 10), (20, 20)):
        (trip,) = [part for part in laws.course(Turn(1.0, before, now)) if isinstance(part, Trip)]
        assert total(trip.chains[0]).expectation() == pytest.approx(flops[now][0] + flops[before][1], rel=1e-3)


class Resting(Synchronous):
    """Clients rest before they embed the small batch at the end of an epoch."""

    kind: Literal["resting"] = "resting"  # type: ignore[assignment]

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            if len(batch) < 20:
                await node.sleep(1.0)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))


def test_a_round_on_a_smaller_batch_may_have_other_acts() -> None:
    resting = world("synchronous", {"select": "all", "compute": 1.0}, training__last_batch="keep")
    form = found(resting.with_protocols({"it": Resting()}))
    assert form.mean.low == pytest.approx(1 + 1 + 1 / 5)  # a step, an embedding; one of five batches is small


@pytest.mark.parametrize(("protocol", "several"), [("synchronous", False), ("easter", True)])
def test_a_formula_says_what_follows_the_first_wait(protocol: str, several: bool) -> None:
    form = found(world(protocol, {"select": "all", "compute": EXPONENTIAL}, models__aggregate="mean"))
    notes = [each.note for each in form.formulas()]
    assert any("all that follows the first wait" in note for note in notes) == several
