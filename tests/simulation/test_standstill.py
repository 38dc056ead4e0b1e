"""Which clients a run has gone on without for good, and which only seem so."""

from itertools import count
from typing import Any, Literal

import pytest
from tiny_worlds import data_of, tiny

from vflsim.protocols import Protocol
from vflsim.simulation.run import run_protocol
from vflsim.world.messages import Embedding, Gradient
from vflsim.world.node import Node


class Uneven(Protocol):
    """Synchronous rounds of clients 1 to 3. Client 4 uploads once, and then does what a test asks for."""

    kind: Literal["uneven"] = "uneven"
    then: str
    keeps_mail: bool = False
    """Whether the server leaves unread what client 4 sends."""

    async def server(self, node: Node) -> None:
        for k in count():
            embeddings = await node.gather("embedding", senders=[1, 2, 3], round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))
            if not self.keeps_mail:
                node.arrived("embedding")
            if k == 35 and self.then == "sends":
                await node.send(4, Gradient(round=0))

    async def client(self, node: Node) -> None:
        for k in node.rounds(over="gradient"):
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            if node.party == 4:
                await self._then(node, k)
            await node.recv("gradient", round=k)

    async def _then(self, node: Node, k: int) -> None:
        match self.then:
            case "waits for any round":
                await node.recv("gradient")
            case "waits for a later round":
                await node.recv("gradient", round=1000)
            case "waits until a time":
                while True:
                    await node.gather("gradient", count=1, round=k, timeout=0.01)
            case "could be ended by any":
                async with node.until("halt"):
                    await node.recv("gradient", round=k)
            case "could be ended by one":
                async with node.until("halt", round=k):
                    await node.recv("gradient", round=k)
            case "works beside":
                node.start(self._work(node))
            case "answers beside":
                node.start(self._answer(node))
            case "is not activated":
                await node.activated()
                await node.activated()
            case "sleeps":
                await node.sleep(1e6)
            case "sends late":
                await node.sleep(0.18)
                await node.send("server", Embedding(node.batch(k), round=10**6))

    async def _work(self, node: Node) -> None:
        while True:
            await node.sleep(0.01)

    async def _answer(self, node: Node) -> None:
        while True:
            await node.recv("query")


def stalled(
    then: str, keeps_mail: bool = False, stop: Any = None, evaluate: Any = None, timing_only: bool = True, **fourth: Any
) -> list[int]:
    """The stalled clients of 40 rounds of 5 ms each."""
    clients = [{"select": "all", "compute": "2 ms", "upload_delay": "2 ms"}, {"select": "4", **fourth}]
    timing = {"network": "dedicated", "server": {"compute": "1 ms"}, "clients": clients}
    scenario = tiny(timing=timing, stop=stop or {"rounds": 40}, evaluate=evaluate or {"every": "4 rounds"})
    scenario = scenario.with_protocols({"uneven": Uneven(then=then, keeps_mail=keeps_mail)})
    outcome = run_protocol(scenario, "uneven", 0, data_of(scenario), timing_only=timing_only)
    assert outcome.error is None
    return [found.client for found in outcome.info.stalled]


@pytest.mark.parametrize(
    ("then", "more"),
    [
        ("waits", {}),
        ("waits", {"keeps_mail": True}),  # unread, but since long
        ("could be ended by one", {}),
        ("answers beside", {}),
        ("waits", {"stop": {"rounds": 17}}),
    ],
)
def test_a_client_that_waits_for_a_past_round_in_vain_has_stalled(then: str, more: dict[str, Any]) -> None:
    assert stalled(then, **more) == [4]


@pytest.mark.parametrize(
    ("then", "more"),
    [
        ("waits for any round", {}),
        ("waits for a later round", {}),
        ("waits until a time", {}),
        ("could be ended by any", {}),
        ("works beside", {}),
        ("sleeps", {}),
        ("waits", {"stop": {"rounds": 12}}),  # not for long yet
        ("waits", {"link": {"up": "1 kbps"}}),  # its embedding is under way
        ("sends", {"link": {"down": "1 kbps"}}),  # its gradient is
        ("sends late", {"keeps_mail": True}),  # the server may read it
        ("waits", {"availability": {"kind": "intervals", "down": [["5 ms", "inf"]], "interrupted": "lost"}}),
        ("waits", {"availability": {"kind": "intervals", "down": [["10 ms", "9 s"]], "interrupted": "resumed"}}),
        ("is not activated", {"activation": {"kind": "schedule", "times": [0]}}),
    ],
)
def test_a_client_that_may_yet_be_of_use_has_not_stalled(then: str, more: dict[str, Any]) -> None:
    assert stalled(then, **more) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("costs_time", [False, True])
@pytest.mark.parametrize("keeps_mail", [False, True])
def test_answers_to_evaluations_are_no_sign_of_life(costs_time: bool, keeps_mail: bool) -> None:
    evaluate = {"every": "1 rounds", "costs_time": costs_time}
    assert stalled("waits", keeps_mail, evaluate=evaluate, timing_only=False) == [4]
