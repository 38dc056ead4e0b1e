"""What a client keeps in a run: another process goes on from it, and from nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_worlds import data_of, tiny

from vflsim.errors import RunError
from vflsim.remote.built import OwnParty, own_party
from vflsim.remote.kept import KeptState
from vflsim.remote.live_party import LiveDraws, LiveParty
from vflsim.remote.own_data import label_splits, own_data
from vflsim.remote.world import LiveWorld, precise_loop
from vflsim.scenario.resolve import setting
from vflsim.timing.delays import Exponential
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import Embedding
from vflsim.world.party import Draws
from vflsim.world.transport import Transport

RUN = "0123456789abcdef"
REMEMBERS = {"kind": "c_vfl", "local_steps": 2, "codec": {"kind": "top_k", "fraction": 0.5, "error_feedback": True}}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = precise_loop()
    yield made
    made.close()


def client(loop: asyncio.AbstractEventLoop, said: object = REMEMBERS) -> OwnParty:
    scenario = tiny({"only": said}, training__client_optimizer={"kind": "adam", "lr": 0.1})
    world = LiveWorld(loop)
    own = own_data(data_of(scenario), 2, label_splits(scenario.protocols["only"].protocol, 2))
    resolved = setting(scenario, "only", own)
    links = [timing.link for timing in resolved.timings]
    return own_party(
        scenario, "only", 0, resolved, 2, world, lambda _: Mailbox(world),
        lambda recorder: Transport(world, resolved.network, links, 0, recorder), lambda _: None, None,
    )  # fmt: skip


def state_of(made: OwnParty) -> LiveParty:
    state = made.node.state
    assert isinstance(state, LiveParty)
    return state


def kept_in(folder: Path, made: OwnParty, run: str = RUN) -> KeptState:
    return KeptState(folder, run, state_of(made), made.node.learner)


def work(made: OwnParty, rounds: int) -> None:
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
        ({"kind": "synchronous", "blinding": "on"}, "the masks would not cancel"),
        ({"kind": "ef_vfl", "labels": "private", "codec": {"kind": "top_k", "fraction": 0.5}}, "in no file"),
    ],
    ids=["plain", "blinded", "ef_vfl"],
)
def test_clients_that_remember_more_cannot_come_back(loop: asyncio.AbstractEventLoop, said: object, why: str) -> None:
    stays = client(loop, said).stays_away
    assert why in stays
    assert bool(stays) == bool(why)
