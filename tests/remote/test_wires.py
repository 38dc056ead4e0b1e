"""The wire of a live party: noise that hides values has a key that nobody else knows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vflsim.codecs.compressors import ScalarQuantiser
from vflsim.codecs.round import LatentNoise, Round
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.remote.frames import LiveWires
from vflsim.world.messages import Embedding
from vflsim.world.wire import Wire, Wires

NOISY = Round(noise=LatentNoise(epsilon=0.2))
X = torch.arange(12.0).reshape(3, 4)


def sent(wires: Wires, *values: Tensor) -> list[Tensor]:
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
    public = sent(Wires(NOISY, ImmediateExecutor(), seed=5), X)[0]
    one, other = live(NOISY), live(NOISY)
    found = [public, sent(one, X)[0], sent(other, X)[0]]
    assert not any(torch.equal(found[i], found[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert (len(one.secret), one.secret == other.secret) == (32, False)


def test_equal_values_get_equal_noise_and_others_other_noise_wherever_they_stand() -> None:
    wires = live(NOISY)
    first, again, other = sent(wires, X, X.clone(), X + 8)
    assert torch.equal(first, again), "a process that takes another's place sends the same once more"
    assert not torch.equal(other - first, torch.full_like(X, 8.0)), "one noise for two values shows their difference"
    assert torch.equal(sent(live(NOISY, wires.secret), X)[0], first)


@pytest.mark.parametrize("codec", [Round(), ScalarQuantiser(bits=3, dither="non_subtractive")])
def test_other_random_numbers_are_those_of_the_simulation(codec: Any) -> None:
    wanted = sent(Wires(codec, ImmediateExecutor(), seed=5), X, X)
    assert all(map(torch.equal, sent(live(codec), X, X), wanted))


def test_the_noise_is_that_of_its_law() -> None:
    """Half of all Laplace noise of scale 1/ε is beyond log(2)/ε, and the second rounding moves this by 1/2 at most."""
    zeros = torch.zeros(200, 100)
    noise = (sent(live(NOISY), zeros)[0]).abs()
    assert 0.45 < float((noise >= 4).double().mean()) < 0.55
