"""Clients that blind, and clients of EF-VFL: another process takes up what they have made and perhaps sent."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kept_clients import client, kept_in, state_of
from torch import Tensor

from vflsim.errors import BlindingError
from vflsim.learning.privacy.blinding import public_key
from vflsim.protocols.ef_vfl.learning import Difference
from vflsim.remote.client_files import StateFiles
from vflsim.remote.party import LocalParty

BLINDED = {"kind": "synchronous", "blinding": "on"}
DITHERED = {"kind": "scalar_quantiser", "bits": 3, "dither": "non_subtractive"}
EF_VFL = {"kind": "ef_vfl", "labels": "private", "codec": DITHERED}
NOISY = {**EF_VFL, "codec": {"kind": "round", "noise": {"epsilon": 0.5}}}
Made = Callable[[], tuple[LocalParty, StateFiles]]


@pytest.fixture
def process(loop: asyncio.AbstractEventLoop, tmp_path: Path, request: pytest.FixtureRequest) -> Made:
    """Each call is a new process of client 2, and its files."""

    def started() -> tuple[LocalParty, StateFiles]:
        made = client(loop, request.param)
        return made, kept_in(tmp_path, made)

    return started


def computed(made: LocalParty, operation: Any) -> Any:
    operation.run()
    if operation.commit is not None:
        operation.commit()
    return operation.result


def uploaded(made: LocalParty, number: int) -> Tensor:
    return computed(made, made.node.learner.embed(made.node.batch(number))).value


@pytest.mark.parametrize("process", [BLINDED], indirect=True)
def test_a_client_that_blinds_comes_back_with_its_key_and_uploads_the_same_once_more(
    process: Made, tmp_path: Path
) -> None:
    former, kept = process()
    blinder = former.node.learner.blinder
    assert blinder is not None
    keys = {client: torch.full((32,), client, dtype=torch.uint8) for client in (1, 3, 4)}
    own = torch.frombuffer(bytearray(public_key(blinder.private)), dtype=torch.uint8)
    blinder.vouched = {client: key.numpy().tobytes() for client, key in keys.items()}
    blinder.agree(torch.stack([keys[1], own, keys[3], keys[4]]))
    blinder.agreed = True
    sent = uploaded(former, 5)
    kept.write()
    for file in tmp_path.glob("*.safetensors"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    present, going_on = process()
    others = present.node.learner.blinder
    assert others is not None
    assert others.private != blinder.private
    going_on.read()
    assert (others.private, others.vouched, others.agreed) == (blinder.private, blinder.vouched, True)
    with torch.no_grad():
        present.node.learner.models["embedding"].module[1].weight.add_(1.0)
    assert torch.equal(uploaded(present, 5), sent), "one mask, one upload"
    with pytest.raises(BlindingError, match="batch 4 is to be blinded after batch 5: its mask has served"):
        uploaded(present, 4)
    with torch.no_grad():
        present.node.learner.models["embedding"].module[1].weight.sub_(1.0)
    assert torch.equal(uploaded(present, 6), uploaded(former, 6)), "the masks go on"


@pytest.mark.parametrize("process", [EF_VFL, NOISY], indirect=True, ids=["dithered", "noisy"])
@pytest.mark.parametrize("arrived", [True, False], ids=["before the gradient", "before it sends"])
def test_a_difference_that_was_computed_before_the_end_is_sent_and_added_as_it_would_have_been(
    process: Made, arrived: bool
) -> None:
    """The codec is random: another index of its stream would be another difference."""
    former, kept = process()
    compute(former, 0)
    send(former, 0)
    step(former, 0)
    compute(former, 1)
    kept.write()
    there = send(former, 1)
    present, going_on = process()
    going_on.read()
    if arrived:  # the server has it, and a new round begins: both ends add the same
        for made in (former, present):
            compute(made, 2)
        assert torch.equal(surrogate_of(former), surrogate_of(present))
        assert torch.equal(send(former, 2), send(present, 2))
    else:  # it is sent again
        assert present.node.learner.sent.round == 1
        assert torch.equal(resent(present), there)
        for made in (former, present):
            step(made, 1)
        assert torch.equal(surrogate_of(former), surrogate_of(present))
    going_on.write()
    third, last = process()
    last.read()
    assert torch.equal(surrogate_of(third), surrogate_of(present))


def compute(made: LocalParty, number: int) -> None:
    computed(made, made.node.learner.difference(made.node.batch(number)))


def send(made: LocalParty, number: int) -> Tensor:
    """Send the latest difference as the protocol does; return what arrives."""
    learner = made.node.learner
    assert learner.made is not None
    message = Difference(learner.made.batch, learner.made.value, round=number)
    message.sender, message.receiver = 2, 0
    state_of(made).wire.carry(message)
    learner.sent = learner.made._replace(value=made.node.as_received(learner.made.value))
    return learner.sent.value.value


def resent(made: LocalParty) -> Tensor:
    sent = made.node.learner.sent
    message = Difference(sent.batch, sent.value, round=sent.round)
    message.sender, message.receiver = 2, 0
    state_of(made).wire.carry(message)
    return message.value.value


def step(made: LocalParty, number: int) -> None:
    batch = made.node.batch(number)
    gradient = Difference(batch, made.node.learner.promise(len(batch), 6))
    gradient.value.set(torch.ones(len(batch), 6, dtype=torch.float64))
    computed(made, made.node.learner.client_step(batch, gradient))


def surrogate_of(made: LocalParty) -> Tensor:
    return made.node.learner.kept["client-2"]
