"""What cannot be traced says why, and which line is the reason; it runs event by event."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_paths import quick
from command_line import Ended
from ruamel.yaml import YAML
from scripted_rounds import Scripted
from tiny_worlds import data_of, raw

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.protocol import ClientNode, Embedding, Gradient, Message, Protocol, ServerNode, Synchronous
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.simulation.vectorised import UndecidedError, run_vectorised
from vflsim.tracing.acts import ClientSleep, ClientWork, InTurn, ServerWork, ToClients, ToServer
from vflsim.tracing.node import Untraceable
from vflsim.tracing.trace import RoundTrace, notes_of_all, trace
from vflsim.world.node import Node

HERE = Path(__file__).name


@pytest.fixture(scope="module")
def tiny_setting() -> Setting:
    scenario = quick({"kind": "synchronous"})
    return setting(scenario, "it", data_of(scenario))


def traced(protocol: Any, its: Setting) -> RoundTrace:
    return trace(protocol, its, 0, Batch(0, np.arange(20)))


class Reads(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            h = await node.compute(node.learner.embed(node.batch(k)))
            if node.now > 0.5:  # the line that is the reason
                await node.sleep(1)
            await node.upload("server", Embedding(node.batch(k), h, round=k))
            await node.recv("gradient", round=k)


class Choosing(Synchronous):
    """The server waits for some of the embeddings, as ``waiting`` says."""

    waiting: dict[str, Any]

    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k, **self.waiting)
            step = await node.compute(node.learner.server_step(embeddings))
            for message in embeddings:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))


class Beside(Synchronous):
    """Clients compute while their upload delay passes."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            upload = node.upload("server", Embedding(batch, h, round=k))
            await node.together(upload, node.compute(node.learner.embed(batch)))
            await node.recv("gradient", round=k)


class EveryTenth(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            if (1 + batch.index) % 10 == 0:
                await node.sleep(9)
            await node.upload("server", Embedding(batch, h, round=k))
            await node.recv("gradient", round=k)


class Counting(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for done, k in enumerate(node.rounds()):
            h = await node.compute(node.learner.embed(node.batch(k)))
            if done == 20:  # a counter of its own
                await node.sleep(9)
            await node.upload("server", Embedding(node.batch(k), h, round=k))
            await node.recv("gradient", round=k)


class Drawing(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            h = await node.compute(node.learner.embed(node.batch(k)))
            if random.random() < 1e-9:
                await node.sleep(9)
            await node.upload("server", Embedding(node.batch(k), h, round=k))
            await node.recv("gradient", round=k)


class More(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            for _ in range(1 + k):
                await node.compute(node.learner.client_step(batch, gradient))


class Gossip(Synchronous):
    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            for other in node.clients:
                if other != node.party:
                    await node.send(other, Message(round=k))
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            await node.recv("gradient", round=k)


class Odd(Synchronous):
    """Clients with odd numbers step, the others answer: they do different things."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            if node.party % 2:
                await node.compute(node.learner.client_step(batch, gradient))
            else:
                await node.compute(node.learner.answer(batch))


class Endless(Synchronous):
    async def client(self, node: ClientNode) -> None:
        while True:
            await node.compute(node.learner.answer(node.batch(0)))


class Broken(Synchronous):
    async def server(self, node: ServerNode) -> None:
        await node.gather("embedding", senders=node.clients, round=0)
        raise KeyError("mine")


class Noted(Synchronous):
    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            node.record("norms", round=k)
            for message in embeddings:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))


UNKNOWN = "who that is depends on times"
REASONS: list[tuple[Protocol, str]] = [
    (Reads(), rf"a client reads the clock \({HERE}:\d+\)"),
    (EveryTenth(), rf"a client decides by the number of the round \({HERE}:\d+\)"),
    (Counting(), "which the server does not answer"),  # the rounds before the last that is unlike come first
    (Drawing(), "Drawing draws random numbers"),
    (Choosing(waiting={"count": 2}), rf"the server waits for 2 of 4 \('embedding' messages\): {UNKNOWN}"),
    (Choosing(waiting={"timeout": 0.01}), rf"the server waits for some time \('embedding' messages\): {UNKNOWN}"),
    (More(), r"the rounds of client-1 are not alike"),
    (Beside(), "a party sends something after its upload delay beside something else"),
    (Gossip(), r"clients send each other 'message' messages"),
    (Odd(), r"clients do different things"),
    (Endless(), rf"client-1 goes on without end while no time passes \({HERE}:\d+\)"),
    (Broken(), rf"KeyError: 'mine' \(.*{HERE}:\d+, server\)"),
    (Noted(), r"the server records rows in the course of the run"),
]


@pytest.mark.parametrize(("protocol", "why"), REASONS)
def test_the_reason_is_named(protocol: Protocol, why: str, tiny_setting: Setting) -> None:
    with pytest.raises(Untraceable, match=why):
        traced(protocol, tiny_setting)


def test_the_reason_names_the_line_that_asks(tiny_setting: Setting) -> None:
    with pytest.raises(Untraceable) as found:
        traced(Reads(), tiny_setting)
    line = int(str(found.value).rpartition(":")[2].rstrip(")"))
    assert "the line that is the reason" in Path(__file__).read_text().splitlines()[line - 1]


def test_arrays_leave_what_cannot_be_traced_to_events() -> None:
    scenario = quick({"kind": "flex_vfl", "local_time": "6 ms"})
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, UndecidedError)
    assert "reads the clock" in str(outcome.error)


def test_check_and_the_runs_line_name_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    measured = {"it": {"kind": "flex_vfl", "local_time": "6 ms"}}
    with Path("flex.yaml").open("w") as file:
        YAML().dump(raw(measured, timing__network="dedicated", stop={"rounds": 3}, record="rounds"), file)
    why = "event by event: a client reads the clock (sharing.py:"
    assert f"timing alone goes {why}" in " ".join(vflsim("check", "flex.yaml").out.split())
    assert why in vflsim("run", "flex.yaml", "--timing-only").out


def scripted(client: str, server: str) -> Scripted:
    return Scripted(of_client=tuple(client.split(", ")), of_server=tuple(server.split(", ")))


def kinds(found: RoundTrace) -> list[str]:
    return [type(act).__name__ for act in found.round[1]]


def test_acts_stand_in_an_order_that_takes_the_same_times(tiny_setting: Setting) -> None:
    beside = scripted(
        "activated, embed, receive first_down, sleep 2, upload first_up, receive news",
        "gather embedding, beside first_down first_up, step, work, send news",
    )
    assert kinds(traced(beside, tiny_setting)) == [
        "Activated", "ClientWork", "ToServer", "ServerWaits", "ToClients", "ClientSleep", "ToServer", "ServerWork",
        "ServerWaits", "ServerWork", "ServerWork", "ToClients",
    ]  # fmt: skip


def test_a_client_that_works_while_a_message_comes_takes_it_up_afterwards(tiny_setting: Setting) -> None:
    waits = "activated, embed, receive first_down, step"
    works = "activated, embed, work, receive first_down, step"
    served = "gather embedding, step, send first_down"
    busy = [
        [act.busy for act in traced(scripted(client, served), tiny_setting).round[1] if isinstance(act, ToClients)]
        for client in (waits, works)
    ]
    assert busy == [[False], [True]]


@pytest.mark.parametrize(
    ("client", "server", "why"),
    [
        (
            "embed, receive first_down, step",
            "gather embedding, send first_down, step",
            "clients begin another round before the server has ended one",
        ),
        ("embed, step", "gather embedding, step", "client-1 goes on without end while no time passes"),
        (
            "embed, receive news, upload first_up",
            "gather embedding, step, send news",
            "the server does not wait for 'first_up' messages in the round in which clients send them",
        ),
        (
            "embed, upload first_up, receive news",
            "gather embedding, gather first_up, step, send news",
            r"waits for 'embedding' messages, and clients have sent \['embedding', 'first_up'\]",
        ),
        (
            "embed, receive news",
            "gather embedding, step, send first_down, send news",
            "sends 'first_down' messages, for which clients do not wait",
        ),
    ],
)
def test_rounds_without_such_an_order_are_refused(client: str, server: str, why: str, tiny_setting: Setting) -> None:
    with pytest.raises(Untraceable, match=why):
        traced(scripted(client, server), tiny_setting)


def test_clients_in_turn_are_one_act() -> None:
    scenario = quick({"kind": "fedbcd", "local_steps": 2, "order": "sequential"})
    its = setting(scenario, "it", data_of(scenario))
    found = traced(scenario.protocols["it"].protocol, its)
    (turns,) = (act for act in found.round[1] if isinstance(act, InTurn))
    assert [type(act) for act in turns.acts] == [ServerWork, ToClients, ClientWork, ClientWork, ClientWork, ToServer]


def test_clients_that_take_fewer_steps_are_left_out_of_the_others() -> None:
    scenario = quick({"kind": "flex_vfl", "local_steps": [1, 3, 1, 2, 1]})
    found = traced(scenario.protocols["it"].protocol, setting(scenario, "it", data_of(scenario)))
    steps = [act.by for act in found.round[1] if isinstance(act, ClientWork)]
    assert steps == [None, None, {1, 3}, {1}]


class ByLearner(Synchronous):
    """The last client steps twice, and knows its number from its learner."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            for _ in range(1 + (node.learner.party == 4)):
                await node.compute(node.learner.client_step(batch, gradient))


def test_all_clients_of_a_protocol_from_outside_are_traced(
    tiny_setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.tracing.trace.FEW", 2)
    found = traced(ByLearner(), tiny_setting)
    assert [act.by for act in found.round[1] if isinstance(act, ClientWork)] == [None, None, {4}]
    assert found.sorts == {1: 1, 2: 1, 3: 1, 4: 4}


class ByNumber(Synchronous):
    """The last client steps twice, and asks for its number."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            for _ in range(1 + (node.party == 4)):
                await node.compute(node.learner.client_step(batch, gradient))


class ByCount(Synchronous):
    """The server does or sends something else where there are three clients or more."""

    async def server(self, node: Node) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(self.step(node, embeddings))
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))
                if len(embeddings) > 2:
                    await self.more(node, embedding.sender, k)

    def step(self, node: Node, embeddings: Sequence[Message]) -> Operation[Any]:
        return node.learner.server_step(embeddings)

    async def more(self, node: Node, client: int, k: int) -> None:
        """Nothing."""


class UnitsByCount(ByCount):
    def step(self, node: Node, embeddings: Sequence[Message]) -> Operation[Any]:
        operation = super().step(node, embeddings)
        operation.units = float(len(embeddings))
        return operation


class MessagesByCount(ByCount):
    async def more(self, node: Node, client: int, k: int) -> None:
        await node.send(client, Gradient(round=k))


@pytest.mark.parametrize(
    ("protocol", "all_traced"), [(Synchronous, False), (ByNumber, True), (UnitsByCount, True), (MessagesByCount, True)]
)
def test_two_clients_of_a_sort_stand_for_many_unless_a_third_or_its_number_changes_something(
    protocol: type[Synchronous], all_traced: bool, tiny_setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.tracing.trace.FEW", 2)
    monkeypatch.setattr("vflsim.tracing.trace.from_outside", lambda protocol: False)
    notes, firsts = notes_of_all(protocol(), tiny_setting, 0, Batch(0, np.arange(4)))
    assert [*notes.clients] == ([1, 2, 3, 4] if all_traced else [1, 2])
    assert firsts == (None if all_traced else dict.fromkeys(range(1, 5), 1))


def test_sleeps_are_seconds(tiny_setting: Setting) -> None:
    found = traced(scripted("sleep 0.25, embed, receive news", "gather embedding, step, send news"), tiny_setting)
    assert [act.seconds for act in found.round[1] if isinstance(act, ClientSleep)] == [0.25]
