"""What a client keeps: another process goes on from it, with the same masks and shares, and from nothing else."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kept_clients import client, kept_in, state_of
from torch import Tensor

from vflsim.errors import RunError
from vflsim.remote.party import LiveDraws, LocalParty
from vflsim.timing.delays import Exponential
from vflsim.world.messages import Embedding
from vflsim.world.party import Draws

OWN_MODEL = {"kind": "module", "path": "normed_module:Normed", "embedding": 4}


def work(made: LocalParty, rounds: int) -> None:
    """Take batches, draw times, send embeddings through the codec, and step."""
    state, learner = state_of(made), made.node.learner
    for _ in range(rounds):
        batch = state.next_batch()
        state.draws.next("compute.embed", Exponential(mean=1.0))
        embed = learner.embed(batch)
        embed.run()
        sent = Embedding(batch, embed.result, round=batch.index)
        sent.sender, sent.receiver = 2, 0
        state.wire.carry(sent)
        assert sent.value is not None
        made.wires.payload(sent.value)
        made.recorder.event(0.0, 1.0, 2, "compute.embed", batch.index, -1, 0, batch.index, 0.5)
        for parameter in learner.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        learner.embedding.optimizer.step()


def test_another_process_goes_on_where_the_former_one_has_stood(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    former = client(loop)
    kept = kept_in(tmp_path, former)
    kept.write()
    for _ in range(2):
        work(former, 2)
        kept.write()
    with (tmp_path / "client-2.kept.events").open("ab") as file:
        file.write(b"torn")  # killed while it wrote
    present = client(loop)
    assert not torch.equal(*(made.node.learner.weights()["1.weight"] for made in (former, present)))
    going_on = kept_in(tmp_path, present)
    going_on.read()
    for made in (former, present):
        work(made, 2)
    states = [{**made.node.learner.state(), **state_of(made).wire.state()} for made in (former, present)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(name.startswith("0/embedding") for name in state_of(present).wire.state()), "the codec remembers"
    assert state_of(former).counts() == state_of(present).counts()
    assert state_of(present).counts()["batches"] == {"begun": 6}
    assert state_of(former).next_batch().index == state_of(present).next_batch().index == 6
    assert former.recorder.events.table.tobytes() == present.recorder.events.table.tobytes()
    going_on.write()
    third = client(loop)
    kept_in(tmp_path, third).read()
    assert len(third.recorder.events) == 6
    going_on.remove()
    assert list(tmp_path.iterdir()) == []


def test_draws_go_on_at_the_next_index_with_the_same_numbers() -> None:
    law = Exponential(mean=1.0)
    whole = Draws(3, 2)
    wanted = [whole.next("upload", law) for _ in range(5)]
    first, second = LiveDraws(3, 2), LiveDraws(3, 2)
    drawn = [first.next("upload", law) for _ in range(3)]
    second.go_on(first.begun)
    assert second.next("compute.embed", law)[0] == 0
    drawn += [second.next("upload", law) for _ in range(2)]
    assert drawn == wanted


def test_what_is_of_another_run_or_is_not_there_is_one_error(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    made = client(loop)
    with pytest.raises(RunError, match="client-2 has come back without what its former process had kept: no file"):
        kept_in(tmp_path, made).read()
    kept_in(tmp_path, made, "f" * 16).write()
    with pytest.raises(RunError, match="is of another run"):
        kept_in(tmp_path, made).read()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"kind": "synchronous"}, ""),
        ({"kind": "synchronous", "blinding": "on"}, ""),
        ({"kind": "ef_vfl", "labels": "private", "codec": {"kind": "top_k", "fraction": 0.5}}, ""),
        ({"kind": "fedvs", "K": 1}, ""),
        ({"kind": "synchronous", "models": {"client": OWN_MODEL}}, "may remember what is in no file"),
    ],
    ids=["plain", "blinded", "ef_vfl", "fedvs", "own"],
)
def test_clients_with_code_of_their_own_cannot_come_back(
    loop: asyncio.AbstractEventLoop, said: object, why: str
) -> None:
    stays = client(loop, said).stays_away
    assert why in stays
    assert bool(stays) == bool(why)


CODED = {"kind": "fedvs", "K": 1}


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
