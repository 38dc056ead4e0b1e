"""What a client keeps in a run: another process goes on from it, and from nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kept_clients import client, kept_in, state_of

from vflsim.errors import RunError
from vflsim.remote.party import LiveDraws, LocalParty
from vflsim.remote.world import precise_loop
from vflsim.timing.delays import Exponential
from vflsim.world.messages import Embedding
from vflsim.world.party import Draws

OWN_MODEL = {"kind": "module", "path": "normed_module:Normed", "embedding": 4}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = precise_loop()
    yield made
    made.close()


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
