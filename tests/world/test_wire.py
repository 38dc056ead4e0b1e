"""What a codec makes of a message's tensors, and what it weighs, in both worlds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from int8_codec import Int8, Int8Feedback

from vflsim.codecs import Codec, Plain
from vflsim.codecs.compressors import ScalarQuantiser
from vflsim.codecs.round import Round
from vflsim.errors import ProtocolError
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.learners.inputs import KeptValue
from vflsim.world.messages import Message
from vflsim.world.wire import Views, Wire, Wires


@dataclass(slots=True, eq=False)
class Update(Message):
    """A message with several tensors."""

    kind: ClassVar[str] = "update"


def held(*numbers: float, dtype: torch.dtype = torch.float64) -> Handle[torch.Tensor]:
    handle: Handle[torch.Tensor] = Handle((len(numbers),), dtype)
    handle.set(torch.tensor(numbers, dtype=dtype))
    return handle


def wire(codec: Codec, party: int = 1) -> Wire:
    return Wire(party, Wires(codec, ImmediateExecutor()))


def test_several_tensors_are_one_message_with_one_latency_and_one_weight(tiny) -> None:
    world = tiny(clients=1, codec=Plain())

    async def server(node) -> None:
        message = await node.recv("update")
        world.log("arrived", message["duals"].value.tolist(), message["ids"].value.tolist())

    async def client(node) -> None:
        await node.send("server", Update(tensors={"duals": held(1.0, 2.5), "ids": held(3, 4, dtype=torch.int64)}))

    world.run(server, client)
    world.happened((0.0, "arrived", [1.0, 2.5], [3, 4]))
    (sent,) = world.events("transfer")
    assert sent["bytes"] == 60 + 2 * 34 + 2 * 8 + 2 * 8


def test_what_arrives_is_what_the_codec_decodes_and_weighs_what_it_writes(tiny) -> None:
    world = tiny(clients=1, codec=Int8(step=0.5))

    async def server(node) -> None:
        message = await node.recv("message")
        world.log(message.value.value.tolist())
        await node.send(1, Message(value=held(0.6)))

    async def client(node) -> None:
        await node.send("server", Message(value=held(0.7, -1.3, 1000.0)))
        world.log((await node.recv("message")).value.value.tolist())

    world.run(server, client)
    world.happened((0.0, [0.5, -1.5, 63.5]), (0.0, [0.5]))
    assert [sent["bytes"] for sent in world.events("transfer")] == [63, 61]


def test_integers_pass_every_codec_untouched() -> None:
    message = Message(value=held(2**40, -7, dtype=torch.int64))
    wire(Int8()).carry(message)
    assert message.value is not None
    assert message.value.value.tolist() == [2**40, -7]


def test_a_broadcast_message_passes_the_codec_once_however_often_it_is_sent(tiny) -> None:
    world, message = tiny(clients=2, codec=Int8(step=0.3)), Message(value=held(1.0))

    async def server(node) -> None:
        for client in node.clients:
            await node.send(client, message)

    async def client(node) -> None:
        received = await node.recv("message")
        world.log(node.party, round(float(received.value.value), 12))

    world.run(server, client, client)
    world.happened((0.0, 1, 0.9), (0.0, 2, 0.9))
    assert message.value is not None
    assert message.value.value.item() == 1.0


def test_encoding_waits_until_somebody_reads_what_arrived() -> None:
    executor = DeferredExecutor()
    message = Message(value=held(0.3, 0.2))
    Wire(1, Wires(Int8(), executor)).carry(message)
    assert message.value is not None
    assert not message.value.ready
    assert executor.force(message.value).tolist() == [0.25, 0.25]


def test_tensors_of_several_clients_pass_an_elementwise_codec_together() -> None:
    calls: list[tuple[int, ...]] = []

    class Counting(Int8):
        def through(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(tuple(x.shape))
            return super().through(x)

    executor = DeferredExecutor()
    wires = Wires(Counting(), executor)
    messages = [Message(value=held(0.1 * party, 0.2)) for party in (1, 2, 3)]
    for party, message in enumerate(messages, start=1):
        Wire(party, wires).carry(message)
    executor.flush()
    assert calls == [(3, 2)]
    alone = [Int8().through(torch.tensor([0.1 * party, 0.2], dtype=torch.float64)) for party in (1, 2, 3)]
    assert all(torch.equal(m.value.value, a) for m, a in zip(messages, alone, strict=True) if m.value)


def test_error_feedback_delivers_on_average_what_was_sent_and_its_memory_can_be_kept() -> None:
    codec = Int8Feedback(step=1.0)
    first, arrived = wire(codec), []
    for number in range(10):
        if number == 5:
            first, kept = wire(codec), first.state()
            first.load(kept)
        message = Message(value=held(0.3))
        message.receiver = 0
        first.carry(message)
        assert message.value is not None
        arrived.append(message.value.value.item())
    assert set(arrived) == {0.0, 1.0}
    assert sum(arrived) == 3.0


def test_evaluation_passes_the_codec_and_leaves_its_memory_alone(tiny) -> None:
    world = tiny(clients=1, codec=Int8Feedback(step=1.0))

    async def server(node) -> None:
        for _ in range(3):
            world.log((await node.recv("message")).value.value.tolist())

    async def client(node) -> None:
        await node.free().send("server", Message(value=held(0.4)))
        await node.free().send("server", Message(value=held(0.4)))
        await node.free(wired=False).send("server", Message(value=held(0.4)))
        assert node.state.wire.state() == {}

    world.run(server, client)
    world.happened((0.0, [0.0]), (0.0, [0.0]), (0.0, [0.4]))


def test_a_missing_tensor_is_named_with_those_there_are() -> None:
    with pytest.raises(ProtocolError, match=r"no tensor .weights.(.|\n)*duals, ids"):
        Update(tensors={"duals": held(1.0), "ids": held(2.0)})["weights"]


def test_what_has_arrived_is_passed_on_as_it_came() -> None:
    """A second encoding would lose more: the step of 0.25 makes 0.3 into 0.25 once and for all."""
    wires = Wires(Int8(), ImmediateExecutor())
    up, down = Wire(1, wires), Wire(0, wires)
    message = Message(value=held(0.3))
    sent = message.value
    up.carry(message)
    assert sent is not None
    assert message.value is up.as_received(sent) is not sent
    passed_on = Message(value=message.value)
    down.carry(passed_on)
    assert passed_on.value is message.value


def test_every_tensor_gets_random_numbers_of_its_own_and_evaluation_others() -> None:
    """They follow from seed, party, message kind and place, and not from what else has been sent."""
    codec = ScalarQuantiser(bits=2)

    def arriving(seed: int, party: int, count: int, evaluations: int = 0, update: int = 0) -> list[float]:
        each = Wire(party, Wires(codec, ImmediateExecutor(), seed))
        for _ in range(evaluations):
            each.carry(Message(value=held(0.0, 0.4, 1.0)), remember=False)
        for _ in range(update):
            each.carry(Update(value=held(0.0, 0.4, 1.0)))
        messages = [Message(value=held(0.0, 0.4, 1.0)) for _ in range(count)]
        for message in messages:
            each.carry(message)
        return [float(message.value.value[1]) for message in messages if message.value is not None]

    usual = arriving(7, 1, 4)
    assert len(set(usual)) == 4
    assert arriving(7, 1, 2, evaluations=3, update=2) == usual[:2]
    assert not {*usual} & {*arriving(8, 1, 4), *arriving(7, 2, 4)}


def test_the_order_in_which_receivers_are_served_gives_no_other_random_numbers() -> None:
    codec = ScalarQuantiser(bits=2)

    def arriving(*order: int) -> dict[int, list[float]]:
        server, came = Wire(0, Wires(codec, ImmediateExecutor(), 7)), dict[int, list[float]]()
        for receiver in order:
            message = Message(value=held(0.0, 0.4, 1.0))
            message.receiver = receiver
            server.carry(message)
            assert message.value is not None
            came.setdefault(receiver, []).append(float(message.value.value[1]))
        return came

    one = arriving(1, 2, 3, 3, 1, 2)
    assert one == arriving(2, 3, 1, 1, 2, 3)
    assert len({value for values in one.values() for value in values}) == 6


def test_saturated_elements_are_counted_by_party_alone_and_together_and_not_in_evaluation() -> None:
    numbers = {1: (0.4, 200.0, -1e9), 2: (127.4, 1.0, 2.0), 3: (-128.0, 128.0, 3.0)}
    for executor in (ImmediateExecutor(), DeferredExecutor()):
        wires = Wires(Round(), executor)
        each = {party: Wire(party, wires) for party in numbers}
        for party, sent in numbers.items():
            for remember in (True, False):
                each[party].carry(up(*sent), remember)
            back = Message(value=held(1e9))  # messages to clients are plain
            back.receiver = 4
            each[party].carry(back)
        executor.flush()
        assert [end.saturation.counts.tolist() for end in each.values()] == [[2, 3], [0, 3], [2, 3]]


def test_counts_of_saturated_elements_are_kept_with_the_memory() -> None:
    first, again = wire(Round()), wire(Round())
    assert first.state() == {}
    first.carry(up(300.0, 1.0))
    again.load(first.state())
    again.carry(up(2.0, -300.0, 301.0))
    assert again.saturation.counts.tolist() == [3, 5]
    assert first.saturation.counts.tolist() == [1, 2]


def up(*numbers: float) -> Message:
    message = Message(value=held(*numbers))
    message.receiver = 0
    return message


# --- views of kept values ---------------------------------------------------------------------------------------------


class Rowless(KeptValue):
    """A value without rows: ``rows_at`` is the default."""

    recipe: ClassVar[str] = "rowless"

    def written(self, writer: Any) -> Any:
        raise AssertionError("not written here")

    @classmethod
    def read(cls, recipe: Any, reader: Any) -> Any:
        raise AssertionError("not read here")


def test_a_kept_value_without_rows_has_no_view_and_ends_no_run() -> None:
    executor = ImmediateExecutor()
    views = Views(np.array([0, 2]), executor, lambda: 1.0, {})
    kept: Handle[Any] = Handle((3, 1), torch.float32)
    kept.set(Rowless())
    views.derive(0, "kept", np.array([0, 1, 2]), (kept,))
    plain: Handle[Any] = Handle((3, 1), torch.float32)
    plain.set(torch.tensor([[1.0], [2.0], [3.0]]))
    views.derive(0, "plain", np.array([0, 1, 2]), (plain,))
    state = views.state()
    assert [name for name in state if "kept" in name] == []
    (values,) = (state[name] for name in state if "plain" in name and name.endswith("values"))
    assert values.tolist() == [[1.0], [3.0]]
