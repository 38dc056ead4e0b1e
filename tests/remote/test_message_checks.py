"""Messages that no party of a scenario sends are refused at the frame, with party, kind and round."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from evil_servers import NOISE, ready_value
from kept_clients import party
from live_kinds import LIVE
from protocols_by_kind import KINDS
from tiny_worlds import tiny

from vflsim.codecs.frame import ONLY
from vflsim.errors import DataError, VflsimError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.protocols.fedvs.messages import DataRequest, Sharers
from vflsim.remote.control import NoiseAdded, Passing, Prepare
from vflsim.remote.frames import LiveWires, pack_message
from vflsim.remote.message_checks import bytes_of
from vflsim.remote.party import LocalParty
from vflsim.remote.private_data import PrivateData
from vflsim.remote.server_run import ServerRun
from vflsim.streams import SERVER, SHARED
from vflsim.tracing.exchanges import Content
from vflsim.world.messages import Answer, Embedding, EvaluationAnswer, Gradient, Message
from vflsim.world.wire import Wire

AWAY = {"kind": "intervals", "down": [["1 s", "2 s"]], "interrupted": "lost"}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def body_of(made: LocalParty, message: Message, sender: int) -> bytes:
    wires = LiveWires(made.setting.codec, ImmediateExecutor())
    message.sender, message.receiver = sender, made.node.party
    if not made.setting.codec.lossless:
        Wire(sender, wires).carry(message)
    return pack_message(message, wires, 0.0)


def receive(made: LocalParty, message: Message, sender: int = SERVER) -> Message:
    return made.reader.message(body_of(made, message, sender), sender, made.node.party)[0]


def message_of(made: LocalParty, kind: str, content: Content, k: int) -> Message:
    """A message of a kind with zeros."""
    handles: dict[str, Handle[Any]] = {}
    for name, spec in content.tensors.items():
        handles[name] = ready_value(torch.zeros(spec.shape, dtype=spec.dtype))
    made_of = made.reader.kinds[kind]
    if kind == "sharers":
        return made_of(clients=made.setting.clients[: content.tensors[ONLY].shape[0]], round=k)
    return made_of(round=k, value=handles.pop(ONLY, None), tensors=handles)


@pytest.mark.parametrize(("number", "sender", "kind"), [(SERVER, 2, "embedding"), (2, SERVER, "gradient")])
def test_of_a_protocol_from_outside_that_can_be_traced_tensors_are_checked_and_rounds_are_not(
    number: int, sender: int, kind: str, loop: asyncio.AbstractEventLoop
) -> None:
    made = party(loop, {"kind": "module", "path": "outside_protocols.first:First"}, number)
    batch = made.shared.sequence.batch(0)
    value = torch.zeros(len(batch), 6, dtype=torch.float64)
    made_of = made.reader.kinds[kind]
    for k in (3, 1):
        receive(made, made_of(batch=batch if made_of.embedding else None, value=ready_value(value), round=k), sender)
    with pytest.raises(DataError, match=f"sent a '{kind}' message of round 0: .*int8"):
        receive(made, made_of(round=0, value=ready_value(torch.zeros(3, dtype=torch.int8))), sender)
    with pytest.raises(DataError, match=f"sent a '{Answer.kind}' message of round 0"):
        receive(made, Answer(round=0, value=ready_value(value)), sender)


def embedding(made: LocalParty, k: int, batch: Batch | None = None, **said: Any) -> Embedding:
    batch = batch or made.shared.sequence.batch(k)
    value = torch.zeros(len(batch), 6, dtype=torch.float64)
    return Embedding(**{"batch": batch, "value": ready_value(value), "round": k, **said})


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", LIVE)
def test_a_client_takes_one_message_of_a_kind_a_round(kind: str, loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, KINDS[kind], 2)
    ordered = [name for name in made.expected.contents(SERVER) if made.reader.kinds[name].ordered]
    assert ordered
    for name in ordered:
        content = made.expected.contents(SERVER)[name][0]
        for k in (0, 2, 1):
            receive(made, message_of(made, name, content, k))
        for k in (2, 1, 0, -1):
            with pytest.raises(DataError, match=f"server sent a '{name}' message of round {k}"):
                receive(made, message_of(made, name, content, k))


def test_rounds_that_a_server_passes_over_give_it_no_more_steps(loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, KINDS["synchronous"], 2, stop={"rounds": 4})
    content = made.expected.contents(SERVER)["gradient"][0]
    for k in (1, 3, 5, 0, 2):
        receive(made, message_of(made, "gradient", content, k))
    for k in (6, 2**40):
        with pytest.raises(DataError, match=r"allowed: 4 rounds, by stop\.rounds"):
            receive(made, message_of(made, "gradient", content, k))


def test_a_gradient_that_stood_aside_while_its_client_was_away_comes_after_later_ones_and_once(
    loop: asyncio.AbstractEventLoop,
) -> None:
    clients = [
        {"select": "all", "compute": "1 ms"},
        {"select": "2", "availability": {**AWAY, "interrupted": "resumed"}},
    ]
    made = party(loop, KINDS["synchronous"], 2, timing={"clients": clients}, stop={"rounds": 200})
    content = made.expected.contents(SERVER)["gradient"][0]
    for k in (0, 5, 3, 4, 90):
        receive(made, message_of(made, "gradient", content, k))
    for k in (5, 3, 0, 26, 90, -1):
        with pytest.raises(DataError, match=f"server sent a 'gradient' message of round {k}"):
            receive(made, message_of(made, "gradient", content, k))
    receive(made, message_of(made, "gradient", content, 27))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", LIVE)
def test_a_client_takes_no_kind_that_is_not_the_servers_and_no_other_tensors(
    kind: str, loop: asyncio.AbstractEventLoop
) -> None:
    made = party(loop, KINDS[kind], 2)
    known = made.expected.contents(SERVER)
    for name, made_of in made.reader.kinds.items():
        if name not in known and not made_of.__module__.startswith("test"):
            with pytest.raises(DataError, match=f"server sent a '{name}' message"):
                receive(made, made_of(round=0))
        elif any(content.tensors for content in known.get(name, ())) and name != "sharers":
            with pytest.raises(DataError, match=f"server sent a '{name}' message of round 0: .*int8"):
                receive(made, made_of(round=0, value=ready_value(torch.zeros(3, dtype=torch.int8))))


@pytest.mark.parametrize("sharers", [(2,), (1, 2, 3), (2, 2, 2, 2)], ids=["one", "fewer", "one, repeatedly"])
def test_a_server_names_as_many_sharers_as_the_scenario_has(
    sharers: tuple[int, ...], loop: asyncio.AbstractEventLoop
) -> None:
    made = party(loop, {"kind": "fedvs", "K": 1}, 2)
    with pytest.raises(DataError, match="'sharers' message"):
        receive(made, Sharers(clients=sharers, round=0, number=1))


def test_a_server_names_the_sharers_of_a_round_once(loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, {"kind": "fedvs", "K": 1, "sharers": 3}, 2)
    receive(made, Sharers(clients=(1, 2, 3), round=0, number=1))
    with pytest.raises(DataError, match="'sharers' message of round 0\n  allowed: one a round"):
        receive(made, Sharers(clients=(1, 2, 4), round=0, number=2))


def test_of_the_sharers_only_clients_that_can_crash_may_be_missing(loop: asyncio.AbstractEventLoop) -> None:
    clients = [{"select": "all", "compute": "1 ms"}, {"select": "4", "availability": AWAY}]
    made = party(loop, {"kind": "fedvs", "K": 1}, 2, timing={"clients": clients})
    receive(made, Sharers(clients=(1, 2, 3), round=0, number=1))
    with pytest.raises(DataError, match="'sharers' message"):
        receive(made, Sharers(clients=(1, 2), round=0, number=2))


# --- a client that departs from the protocol --------------------------------------------------------------------------


def wrong(made: LocalParty, how: str) -> Message:
    """An embedding of round 0 that is none."""
    value = torch.zeros(20, 6, dtype=torch.float64)
    far = Batch(2**31 - 1, made.shared.sequence.batch(0).ids, SHARED)
    said: dict[str, Message] = {
        "int64": embedding(made, 0, value=ready_value(value.long())),
        "bool": embedding(made, 0, value=ready_value(value.bool())),
        "float32": embedding(made, 0, value=ready_value(value.float())),
        "shape": embedding(made, 0, value=ready_value(value[:7])),
        "length": embedding(made, 0, value=ready_value(value[: made.shared.sequence.length(-1)])),
        "huge": embedding(made, 0, value=ready_value(value.repeat(9, 1))),
        "named": Embedding(made.shared.sequence.batch(0), round=0, tensors={"h": ready_value(value)}),
        "empty": Embedding(made.shared.sequence.batch(0), round=0),
        "later": embedding(made, 5),
        "none": embedding(made, 0, round=-1),
        "batch": embedding(made, 0, batch=made.shared.sequence.batch(3)),
        "far_batch": embedding(made, 0, batch=far),
        "kind": Gradient(value=ready_value(value), round=0),
        "answer": EvaluationAnswer(value=ready_value(value.int()), round=2),
    }
    return said[how]


TENSORS, ROUNDS = (
    ("int64", "bool", "float32", "shape", "length", "huge", "named", "empty"),
    ("later", "none", "batch", "far_batch"),
)
WRONG = (*TENSORS, *ROUNDS, "kind", "answer")


@pytest.mark.sampled(30)
@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize(
    "kind", ["synchronous", "asynchronous", "ignore-fastest", "t-synchronous", "bs_vfl", "celu_vfl"]
)
def test_an_embedding_that_is_none_is_refused_with_client_kind_and_round(
    kind: str, how: str, loop: asyncio.AbstractEventLoop
) -> None:
    made = party(loop, KINDS[kind], SERVER)
    message = wrong(made, how)
    with pytest.raises(DataError, match=rf"client-1 sent a '{message.kind}' message of round {message.round}"):
        receive(made, message, 1)
    receive(made, embedding(made, 0), 1)


@pytest.mark.parametrize("kind", ["synchronous", "ignore-fastest", "fedbcd", "celu_vfl"])
def test_a_round_that_has_been_is_refused_so_that_the_server_does_not_wait_for_the_next(
    kind: str, loop: asyncio.AbstractEventLoop
) -> None:
    made = party(loop, KINDS[kind], SERVER)
    receive(made, embedding(made, 0), 1)
    with pytest.raises(DataError, match="client-1 sent a 'embedding' message of round 0"):
        receive(made, embedding(made, 0), 1)
    receive(made, embedding(made, 0), 2)


def test_clients_that_work_ahead_are_ahead_by_their_own_messages(loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, KINDS["bs_vfl"], SERVER)
    for k in range(3):
        receive(made, embedding(made, k), 1)
    with pytest.raises(DataError, match="round 4"):
        receive(made, embedding(made, 4), 1)


def test_an_answer_is_of_the_round_that_the_server_waits_for(loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, KINDS["asynchronous-bounded"], SERVER)
    batch = made.shared.sequence.batch(0)

    def answer(k: int) -> Answer:
        return Answer(batch, ready_value(torch.zeros(20, 6, dtype=torch.float64)), round=k)

    made.node.state.mailbox.want("answer", None, (1,), 3)
    with pytest.raises(DataError, match="client-1 sent a 'answer' message of round 2\n  allowed: round 3"):
        receive(made, answer(2), 1)
    receive(made, answer(3), 1)


def test_rows_of_an_own_batch_are_those_of_the_scenario(loop: asyncio.AbstractEventLoop) -> None:
    made = party(loop, {"kind": "asynchronous"}, SERVER, training__batches="own")
    with pytest.raises(DataError, match="20 rows that are no batch 0 of party 1"):
        receive(made, embedding(made, 0, batch=Batch(0, np.arange(20), 1)), 1)


# --- what a client can have the server keep ---------------------------------------------------------------------------


def run_of(loop: asyncio.AbstractEventLoop, said: dict[str, Any], **changes: Any) -> ServerRun:
    """A run at the server, to which messages come, and in which no time passes."""
    scenario = tiny({"only": said}, **changes)
    heard = SimpleNamespace(attend=lambda *calls: None, control=lambda message: None, message=lambda body, timed: None)
    host: Any = SimpleNamespace(
        scenario=scenario, data=PrivateData(scenario, SERVER), loop=loop, timeout=60.0, returns=True,
        connected=dict.fromkeys(range(1, scenario.clients + 1), heard),
    )  # fmt: skip
    public = {client: {"magnitude": 9.0} for client in host.connected} if said["kind"] == "fedvs" else None
    run = ServerRun(host, Prepare(protocol="only", seed=0, run="0" * 16), public)
    run._world._running = True
    return run


@pytest.mark.parametrize("timed", [True, False], ids=["under way", "arrived"])
@pytest.mark.parametrize(("kind", "most"), [("asynchronous", 20), ("bs_vfl", 20)])
def test_embeddings_that_nobody_reads_are_bounded(
    kind: str, most: int, timed: bool, loop: asyncio.AbstractEventLoop
) -> None:
    run = run_of(loop, KINDS[kind])
    made, held = run._made, 0

    def flood() -> None:
        nonlocal held
        for k in range(10_000):
            run._on_message(1, timed, body_of(made, embedding(made, k), 1))
            unread = [*(each for each, _ in made.node.state.mailbox.unread()), *run._ways.under_way()]
            held = max(held, sum(map(bytes_of, unread)))

    with pytest.raises(DataError, match=r"client-1 sent a 'embedding' message of round \d+, and \d+ of its messages"):
        flood()
    assert held <= made.expected.most_held(1) < (most + 200) * bytes_of(embedding(made, 0))
    run._on_message(2, timed, body_of(made, embedding(made, 0), 2))


def test_what_has_been_read_counts_no_longer(loop: asyncio.AbstractEventLoop) -> None:
    run = run_of(loop, KINDS["asynchronous"])
    made = run._made
    for k in range(500):
        run._on_message(1, False, body_of(made, embedding(made, k), 1))
        made.node.state.mailbox.take("embedding")


def test_releases_are_told_about_as_often_as_a_client_uploads(loop: asyncio.AbstractEventLoop) -> None:
    run = run_of(loop, {"kind": "asynchronous", "mechanism": NOISE})
    for k in range(1_000):
        run._on_control(1, NoiseAdded(batch=(SHARED, k)))
    with pytest.raises(VflsimError, match="client-1 has released more than 1000 times"):
        run._on_control(1, NoiseAdded(batch=(SHARED, 1_000)))


def test_messages_between_clients_are_those_of_the_protocol_and_few_are_under_way(
    loop: asyncio.AbstractEventLoop,
) -> None:
    run = run_of(loop, {"kind": "fedvs", "K": 1})
    size = run._made.wires.codec.size_of({})
    with pytest.raises(VflsimError, match=f"client-1 sent a 'model_share' message of round 0 to client-2, of {2**50}"):
        run._on_control(1, Passing(to=2, message="model_share", round=0, size=2**50, at=0.0))
    for _ in range(1_000):
        run._on_control(1, Passing(to=2, message=DataRequest.kind, round=0, size=size, at=0.0))
    with pytest.raises(VflsimError, match="and 256 before it are under way"):
        run._world._raise_failure()
