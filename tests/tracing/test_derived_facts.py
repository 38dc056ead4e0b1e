"""Facts of a trace that no other test looks at: counts of waits, parts of delays, and what takes other times."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from both_paths import assert_same_bytes, quick
from tiny_worlds import RANDOM_TIMING, data_of

from vflsim.learning.batches import Batch
from vflsim.protocol import Embedding, Gradient, Protocol, Synchronous
from vflsim.scenario.resolve import setting
from vflsim.tracing.acts import ServerWaits
from vflsim.tracing.node import Untraceable
from vflsim.tracing.trace import RoundTrace, trace
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


class Sharing(Synchronous):
    """Clients wait a part of their upload delay before they embed."""

    kind: Literal["sharing"] = "sharing"  # type: ignore[assignment]

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            await node.delay("share", 0.3)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))


def test_a_part_of_a_delay_is_a_part_on_arrays() -> None:
    assert_same_bytes(quick("synchronous", timing=RANDOM_TIMING).with_protocols({"it": Sharing()}))
