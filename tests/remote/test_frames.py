"""Messages as bytes between processes: the same message comes out, and nothing else goes in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from vflsim.codecs import Codec
from vflsim.codecs.base import Plain
from vflsim.codecs.compressors import ScalarQuantiser, TopK
from vflsim.codecs.round import LatentNoise, Round
from vflsim.errors import DataError, ProtocolError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.training import Training
from vflsim.protocols import fedvs  # noqa: F401  its messages are known
from vflsim.protocols.fedvs.messages import Sharers
from vflsim.remote.frames import LiveWires, Reader, kinds_of, pack_message
from vflsim.streams import SHARED
from vflsim.world.messages import Embedding, EvaluationAnswer, Gradient, Message
from vflsim.world.wire import Wire, Wires

ROWS, AT = 40, 1.25


_STEP = {"kind": "sgd", "lr": 0.1}


TRAINING = Training.model_validate({"batch": 8, "client_optimizer": _STEP, "server_optimizer": _STEP})


SEQUENCE = BatchSequence(ROWS, TRAINING, seed=3, party=SHARED)


def ready(value: torch.Tensor) -> Handle[torch.Tensor]:
    handle: Handle[torch.Tensor] = Handle(tuple(value.shape), value.dtype)
    handle.set(value)
    return handle


def reader(codec: Codec) -> Reader:
    wires = LiveWires(codec, ImmediateExecutor(), seed=5)
    return Reader(kinds_of(()), {SHARED: SEQUENCE}, ROWS, frozenset(range(4)), wires)


def sent(message: Message, codec: Codec, sender: int, receiver: int) -> tuple[bytes, LiveWires]:
    """The body that a party sends, after its wire."""
    wires = LiveWires(codec, ImmediateExecutor(), seed=5)
    message.sender, message.receiver = sender, receiver
    if not codec.lossless:
        Wire(sender, wires).carry(message)
    return pack_message(message, wires, AT), wires


@pytest.mark.parametrize("codec", [Plain(), ScalarQuantiser(bits=4), TopK(fraction=0.25)], ids=lambda c: c.kind)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_receiver_gets_what_it_gets_in_one_process(codec: Codec, dtype: torch.dtype) -> None:
    value = torch.linspace(-1, 2, 24, dtype=dtype).reshape(8, 3)
    message = Embedding(SEQUENCE.batch(2), ready(value), round=2)
    body, wires = sent(message, codec, 1, 0)
    got, at = reader(codec).message(body, sender=1, receiver=0)
    assert at == AT
    there = Embedding(SEQUENCE.batch(2), ready(value), round=2)
    there.sender, there.receiver = 1, 0
    if not codec.lossless:
        Wire(1, Wires(codec, ImmediateExecutor(), seed=5)).carry(there)
    assert type(got) is Embedding
    assert (got.batch, got.round, got.clients, got.sender, got.receiver) == (SEQUENCE.batch(2), 2, (), 1, 0)
    assert got.batch is not None
    assert np.array_equal(got.batch.ids, SEQUENCE.batch(2).ids)
    assert got.value is not None
    assert there.value is not None
    assert torch.equal(got.value.value, there.value.value)
    assert got.value.value.dtype is dtype
    assert body[-wires.size(message) :][:4] == b"VFL1", "the last bytes are those that the run records"


def test_a_tensor_is_passed_on_as_the_bytes_by_which_it_came() -> None:
    codec = ScalarQuantiser(bits=2)
    value = torch.linspace(-1, 2, 24).reshape(8, 3)
    body, _ = sent(Embedding(SEQUENCE.batch(0), ready(value), round=0), codec, 1, 0)
    server = reader(codec)
    came, _ = server.message(body, sender=1, receiver=0)
    onward = Gradient(tensors={"h": came.value}, round=0)  # type: ignore[dict-item]
    onward.sender, onward.receiver = 0, 2
    passed = pack_message(onward, server.wires, AT)
    assert passed.endswith(body[-codec.payload_bytes((8, 3), torch.float32) :])
    there, _ = reader(codec).message(passed, sender=0, receiver=2)
    assert came.value is not None
    assert torch.equal(there["h"].value, came.value.value)


def test_what_no_codec_has_touched_comes_unchanged() -> None:
    value = torch.linspace(-1, 2, 24).reshape(8, 3)
    message = EvaluationAnswer(value=ready(value), round=4)
    message.sender, message.receiver = 1, 0
    codec = ScalarQuantiser(bits=1)
    body = pack_message(message, LiveWires(codec, ImmediateExecutor()), AT)
    got, _ = reader(codec).message(body, sender=1, receiver=0)
    assert got.value is not None
    assert torch.equal(got.value.value, value)


def test_own_batches_come_with_their_rows() -> None:
    batch = Batch(5, np.array([7, 0, 39]), origin=2)
    body, _ = sent(Embedding(batch, ready(torch.ones(3, 2)), round=1), Plain(), 2, 0)
    got = reader(Plain()).message(body, sender=2, receiver=0)[0].batch
    assert got == batch
    assert got is not None
    assert got.ids.tolist() == [7, 0, 39]


def test_clients_and_fields_of_a_class_of_its_own_arrive() -> None:
    body, _ = sent(Sharers(round=3, clients=(1, 3), number=2), Plain(), 0, 1)
    got, _ = reader(Plain()).message(body, sender=0, receiver=1)
    assert isinstance(got, Sharers)
    assert (got.clients, got.number, got.round) == ((1, 3), 2, 3)


@pytest.mark.parametrize(
    ("message", "sender", "receiver"),
    [
        (Embedding(SEQUENCE.batch(0), ready(torch.ones(8, 2)), round=0), 2, 0),  # another's certificate
        (Embedding(SEQUENCE.batch(0), ready(torch.ones(8, 2)), round=0), 1, 2),
        (Embedding(SEQUENCE.batch(0), ready(torch.ones(8, 2)), round=0, clients=(9,)), 1, 0),
        (Embedding(Batch(0, np.array([40]), origin=1), ready(torch.ones(1, 2)), round=0), 1, 0),
        (Embedding(Batch(0, np.array([-1]), origin=1), ready(torch.ones(1, 2)), round=0), 1, 0),
        (Embedding(Batch(0, np.array([1]), origin=8), ready(torch.ones(1, 2)), round=0), 1, 0),
    ],
)
def test_messages_of_other_parties_clients_or_rows_are_refused(message: Message, sender: int, receiver: int) -> None:
    body, _ = sent(message, Plain(), 1, 0)
    with pytest.raises(DataError):
        reader(Plain()).message(body, sender=sender, receiver=receiver)


@pytest.mark.parametrize("codec", [Plain(), ScalarQuantiser(bits=4), TopK(fraction=0.25)], ids=lambda c: c.kind)
def test_no_cut_or_flipped_frame_is_more_than_a_data_error(codec: Codec) -> None:
    body, _ = sent(Embedding(SEQUENCE.batch(0), ready(torch.linspace(-1, 1, 16).reshape(8, 2)), round=0), codec, 1, 0)
    there = reader(codec)
    for length in range(len(body)):
        with pytest.raises(DataError):
            there.message(body[:length], sender=1, receiver=0)
    chosen = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(body)
        damaged[chosen.integers(len(body))] ^= 1 << int(chosen.integers(8))
        try:
            there.message(bytes(damaged), sender=1, receiver=0)
        except DataError:
            continue


@pytest.mark.parametrize("at", [-1.0, math.nan, math.inf])
def test_a_time_at_which_nothing_can_have_been_sent_is_refused(at: float) -> None:
    message = Embedding(SEQUENCE.batch(0), ready(torch.ones(8, 2)), round=0)
    message.sender, message.receiver = 1, 0
    body = pack_message(message, LiveWires(Plain(), ImmediateExecutor()), at)
    with pytest.raises(DataError, match=f"a message sent at {at} s"):
        reader(Plain()).message(body, sender=1, receiver=0)


@dataclass(slots=True, eq=False)
class Worded(Message):
    """A message with a field that no frame has."""

    kind: ClassVar[str] = "worded"
    word: str = ""


def test_fields_that_are_no_whole_numbers_are_refused_with_their_names() -> None:
    with pytest.raises(ProtocolError, match=r"Worded\.word"):
        kinds_of({__name__})


NOISY = Round(noise=LatentNoise(epsilon=0.2))


X = torch.arange(12.0).reshape(3, 4)


def through(wires: Wires, *values: Tensor) -> list[Tensor]:
    """What arrives of these tensors at the server, one after the other."""
    wire, arrived = Wire(2, wires), []
    for x in values:
        handle: Handle[Tensor] = Handle(tuple(x.shape), x.dtype)
        handle.set(x)
        message = Embedding(None, handle)
        message.sender, message.receiver = 2, 0
        wire.carry(message)
        assert message.value is not None
        if isinstance(wires, LiveWires):
            payload = wires.payload(message.value)
            assert torch.equal(wires.codec.unpack(payload, tuple(x.shape), x.dtype), message.value.value)
        arrived.append(message.value.value)
    return arrived


def live(codec: Any, secret: bytes | None = None) -> LiveWires:
    made = LiveWires(codec, ImmediateExecutor(), seed=5)
    made.secret = secret or made.secret
    return made


def test_noise_that_hides_values_does_not_follow_from_the_seed() -> None:
    public = through(Wires(NOISY, ImmediateExecutor(), seed=5), X)[0]
    one, other = live(NOISY), live(NOISY)
    found = [public, through(one, X)[0], through(other, X)[0]]
    assert not any(torch.equal(found[i], found[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert (len(one.secret), one.secret == other.secret) == (32, False)


def test_equal_values_get_equal_noise_and_others_other_noise_wherever_they_stand() -> None:
    wires = live(NOISY)
    first, again, other = through(wires, X, X.clone(), X + 8)
    assert torch.equal(first, again), "a process that takes another's place sends the same once more"
    assert not torch.equal(other - first, torch.full_like(X, 8.0)), "one noise for two values shows their difference"
    assert torch.equal(through(live(NOISY, wires.secret), X)[0], first)


@pytest.mark.parametrize("codec", [Round(), ScalarQuantiser(bits=3, dither="non_subtractive")])
def test_other_random_numbers_are_those_of_the_simulation(codec: Any) -> None:
    wanted = through(Wires(codec, ImmediateExecutor(), seed=5), X, X)
    assert all(map(torch.equal, through(live(codec), X, X), wanted))


def test_the_noise_is_that_of_its_law() -> None:
    """Half of all Laplace noise of scale 1/ε is beyond log(2)/ε, and the second rounding moves this by 1/2 at most."""
    zeros = torch.zeros(200, 100)
    noise = (through(live(NOISY), zeros)[0]).abs()
    assert 0.45 < float((noise >= 4).double().mean()) < 0.55
