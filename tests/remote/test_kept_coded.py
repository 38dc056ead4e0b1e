"""Coded clients: another process goes on with the same masks, and holds the same shares of others."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kept_clients import client, kept_in
from torch import Tensor

from vflsim.remote.party import LocalParty
from vflsim.remote.world import precise_loop

CODED = {"kind": "fedvs", "K": 1}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = precise_loop()
    yield made
    made.close()


def computed(operation: Any) -> dict[int, Tensor]:
    """The shares that an operation makes, by receiver, as they go to other processes."""
    operation.run()
    if operation.commit is not None:
        operation.commit()
    return {receiver: share.value.on_wire() for receiver, share in operation.result.items()}


def equal(some: dict[int, Tensor], others: dict[int, Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[each], others[each]) for each in some)


def received(made: LocalParty, sender: int) -> Tensor:
    """A share of another client's data, which has come."""
    learner: Any = made.node.learner
    shape = learner.plan.segment_rows, learner.plan.columns[sender]
    handle = learner._share(shape)
    handle.set(torch.full(shape, sender, dtype=handle.dtype))
    learner.keep(SimpleNamespace(sender=sender, value=handle))
    return handle.value


def test_a_live_client_that_crashes_in_a_round_shares_the_same_model_once_more(
    loop: asyncio.AbstractEventLoop,
) -> None:
    learner: Any = client(loop, CODED).node.learner
    shared = [computed(learner.share_model(round_)) for round_ in (0, 0, 1)]
    assert equal(shared[0], shared[1]), "sums over shares of two sharings are no sums"
    assert not equal(shared[0], shared[2]), "a mask serves one round"


def test_another_process_gives_the_same_shares_and_holds_those_that_have_come(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    former = client(loop, CODED)
    learner: Any = former.node.learner
    kept = kept_in(tmp_path, former)
    kept.write()
    of_data = computed(learner.share_data())
    kept.write()
    once = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.kept.[0-9].safetensors")}
    assert len(once) == 1
    theirs = {sender: received(former, sender) for sender in (1, 3)}
    of_model = computed(learner.share_model(4))
    kept.write()
    held = sorted(file.name for file in tmp_path.glob("*.kept.[0-9].safetensors"))
    assert held == ["client-2.kept.0.safetensors", "client-2.kept.1.safetensors"]
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in once} == once, "what does not change is written once"
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.glob("*.safetensors"))
    present = client(loop, CODED)
    new: Any = present.node.learner
    assert not equal(computed(new.share_model(4)), of_model), "its own masks are others"
    going_on = kept_in(tmp_path, present)
    going_on.read()
    given = {receiver: share.value for receiver, share in new.given.items()}
    assert equal({each: share if each == 2 else share.on_wire() for each, share in given.items()}, of_data)
    assert equal({sender: new.data_shares[sender].value for sender in (1, 3)}, theirs)
    assert torch.equal(new.data_shares[2].value, of_data[2])
    assert equal(computed(new.share_model(4)), of_model)
    assert not equal(computed(new.share_model(5)), of_model)
    received(present, 4)
    going_on.write()
    third = client(loop, CODED)
    kept_in(tmp_path, third).read()
    last: Any = third.node.learner
    assert set(last.data_shares) == {1, 2, 3, 4}
    going_on.remove()
    assert list(tmp_path.iterdir()) == []
