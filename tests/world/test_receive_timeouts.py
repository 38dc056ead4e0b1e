"""Receives with a timeout: a message of the same instant beats it, and nothing is lost."""

from __future__ import annotations

import pytest

from vflsim.errors import DeadlockError
from vflsim.world.messages import Message


def sender_of(messages: list[Message]) -> list[int]:
    return [message.sender for message in messages]


def test_a_receive_times_out_and_leaves_no_trace(tiny) -> None:
    world = tiny(1)

    async def server(node):
        with pytest.raises(TimeoutError, match="no 'ball' message within 1 s"):
            await node.recv("ball", timeout=1)
        world.log("timed out")
        await node.sleep(3)
        world.log((await node.recv("ball")).round)

    async def client(node):
        await node.sleep(2)
        await node.send("server", tiny.ball(round=5))

    world.run(server, client).happened((1, "timed out"), (4, 5))


def test_a_timeout_of_zero_takes_what_is_here(tiny) -> None:
    world = tiny(1)

    async def server(node):
        await node.sleep(1)
        world.log((await node.recv("ball", timeout=0)).round)
        with pytest.raises(TimeoutError):
            await node.recv("ball", timeout=0)

    async def client(node):
        await node.send("server", tiny.ball(round=5))

    world.run(server, client).happened((1, 5))


@pytest.mark.parametrize("message_first", [True, False])
def test_a_message_beats_a_timeout_of_the_same_instant(virtual, message_first) -> None:
    """Whichever of the two was scheduled first, and even if the message is only sent in that instant."""
    world = virtual(2)

    async def server(node):
        if message_first:
            await node.sleep(0.5)
        world.log((await node.recv("ball", timeout=1.5 if message_first else 2)).sender)
        world.log(sender_of(await node.gather("ball", count=9, timeout=0)))

    async def client(node):
        await node.sleep(2)
        await node.send("server", virtual.ball())

    world.run(server, client, client).happened((2, 1), (2, [2]))


def test_in_real_time_a_close_race_with_a_timeout_loses_no_message(patient) -> None:
    for shift in (-0.1, 0.0, 0.1):
        world = patient(1)

        async def server(node, world=world):
            try:
                message = await node.recv("ball", timeout=1)
            except TimeoutError:
                message = await node.recv("ball", timeout=5)
            world.log(message.round)

        async def client(node, shift=shift):
            await node.sleep(1 + shift)
            await node.send("server", patient.ball(round=3))

        world.run(server, client).happened((1, 3))


def test_a_gather_that_times_out_gives_what_is_here(tiny) -> None:
    world = tiny(3)

    async def server(node):
        world.log(sender_of(await node.gather("ball", senders=node.clients, timeout=3)))
        world.log(sender_of(await node.gather("ball", count=2, timeout=0.5)))
        world.log(sender_of(await node.gather("ball", count=1)))

    async def client(node):
        await node.sleep(3 if node.party == 2 else node.party / 2)
        await node.sleep(1)
        await node.send("server", tiny.ball())

    world.run(server, client, client, client).happened((3, [1, 3]), (3.5, []), (4, [2]))


def test_a_timeout_that_is_not_needed_does_not_keep_the_run_going(virtual) -> None:
    world = virtual(1)

    async def server(node):
        await node.recv("ball", timeout=1e6)
        await node.recv("ball")

    async def client(node):
        await node.send("server", virtual.ball())

    with pytest.raises(DeadlockError, match=r"0 s: deadlock(.|\n)*server waits for 'ball'"):
        world.run(server, client)
