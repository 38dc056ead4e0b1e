"""A client that departs from the protocol: the run ends with its name, and never waits for it for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from evil_servers import LONG_S, ready_value, world_of

from vflsim.learning.batches import BatchSequence
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.remote.channel import connected
from vflsim.remote.control import Bye, Control, Done, EvaluateNow, Hello, Prepare, Ready, Start, Written
from vflsim.remote.frames import LiveWires, pack_message
from vflsim.remote.keys import make_identities
from vflsim.remote.private_data import common
from vflsim.remote.server import LiveServer
from vflsim.remote.world import machine, precise_loop
from vflsim.scenario import load
from vflsim.world.messages import Embedding, EvaluationAnswer, Message

Send = Callable[[Message, bool], None]


def evil_client(
    server: LiveServer,
    port: int,
    identity: Path,
    attack: Callable[[Send, BatchSequence], None],
    tags: Callable[[int], int | None],
) -> None:
    """Play client 1: ``attack`` once the run has begun; answer evaluations with zeros, of the round in ``tags``."""
    loop, data = precise_loop(), server.data.of("only")
    rows, training = data.rows, server.scenario.training_of("only")
    hello = Hello(party=1, machine=machine(), **common(server.scenario, server.data)._asdict())
    wires = LiveWires(server.scenario.codec_of("only"), ImmediateExecutor())

    async def play() -> None:
        channel = await connected("127.0.0.1", port, identity, hello, 2**24, LONG_S)
        ended = asyncio.Event()

        def send(message: Message, timed: bool) -> None:
            message.sender, message.receiver = 1, 0
            channel.message(pack_message(message, wires, 0.0), timed)

        def take(message: Control) -> None:
            if isinstance(message, Prepare):
                channel.control(Ready())
            elif isinstance(message, EvaluateNow) and (tag := tags(message.number)) is not None:
                zeros = torch.zeros(len(data.labels["test"]), 6, dtype=torch.float64)
                send(EvaluationAnswer(value=ready_value(zeros), round=tag), False)
            elif isinstance(message, Start):
                attack(send, BatchSequence(rows, training, 0, -1))
            elif isinstance(message, Done):
                channel.control(Written())
            elif isinstance(message, Bye):
                ended.set()

        channel.attend(take, lambda _: ended.set(), lambda _timed, _body: None)
        await ended.wait()
        await channel.close()

    loop.run_until_complete(play())
    loop.close()


def embedding(sequence: BatchSequence, k: int, round_: int | None = None) -> Embedding:
    zeros = ready_value(torch.zeros(20, 6, dtype=torch.float64))
    return Embedding(sequence.batch(k), zeros, round=k if round_ is None else round_)


def a_later_round(send: Send, sequence: BatchSequence) -> None:
    send(embedding(sequence, 7), True)


def the_same_round_again(send: Send, sequence: BatchSequence) -> None:
    send(embedding(sequence, 0), True)
    send(embedding(sequence, 0), True)


def no_round(send: Send, sequence: BatchSequence) -> None:
    send(embedding(sequence, 0, round_=-1), True)


def outside_time(send: Send, sequence: BatchSequence) -> None:
    send(embedding(sequence, 3), False)


def honest(send: Send, sequence: BatchSequence) -> None:
    send(embedding(sequence, 0), True)


def error_of(attack: Callable[[Send, BatchSequence], None], tags: Callable[[int], int | None], folder: Path) -> str:
    """Play one round of a run with the evil client; return the error that ended it."""
    scenario = load(world_of({"kind": "synchronous"}, clients=1) | {"stop": {"rounds": 1}})
    make_identities(folder / "keys", clients=1)
    server = LiveServer(scenario, folder / "keys" / "server", folder / "parts", timeout=LONG_S)
    port = server.open("127.0.0.1", 0)
    playing = threading.Thread(target=evil_client, args=(server, port, folder / "keys" / "client-1", attack, tags))
    playing.start()
    server.wait(within=LONG_S)
    outcome = server.run("only", seed=0)
    server.close()
    playing.join()
    return str(outcome.error)


@pytest.mark.parametrize("attack", [a_later_round, the_same_round_again, no_round, outside_time])
def test_a_wrong_round_ends_the_run_and_names_the_client(
    attack: Callable[[Send, BatchSequence], None], tmp_path: Path
) -> None:
    error = error_of(attack, {1: 2}.get, tmp_path)
    assert "client-1 sent what cannot be used: client-1 sent a 'embedding' message of round" in error


@pytest.mark.parametrize("tags", [{1: 3}, {1: 2, 2: 999}], ids=["the first", "after the end"])
def test_an_answer_to_another_evaluation_ends_the_run_and_names_the_client(
    tags: dict[int, int], tmp_path: Path
) -> None:
    error = error_of(honest, tags.get, tmp_path)
    assert f"client-1 sent a 'evaluation' message of round {[*tags.values()][-1]}" in error
