"""Sending: to whom, at what weight, and that it never waits."""

from __future__ import annotations

import pytest

from vflsim.errors import ProtocolError


@pytest.mark.parametrize("to", [3, -1, "client-1", "nobody", 1])
@pytest.mark.parametrize("verb", ["send", "upload", "free"])
def test_a_message_to_nobody_is_an_error_at_once(tiny, verb, to) -> None:
    world = tiny(2, upload=tiny.constant(5))

    async def client(node):
        await node.sleep(1)
        await {"send": node.send, "upload": node.upload, "free": node.free().send}[verb](to, tiny.ball())

    with pytest.raises(ProtocolError, match=r"client-1 at 1\S* s: 'ball' sent to (.|\n)*clients \(1, 2\)"):
        world.run(_sleeper(20), client, tiny.idle)


def _sleeper(seconds):
    async def main(node):
        await node.sleep(seconds)

    return main


def test_one_message_can_be_sent_to_many(tiny) -> None:
    world = tiny(3, links={m: tiny.Link(latency=float(m)) for m in (1, 2, 3)})

    async def server(node):
        message = tiny.ball(round=6)
        for client in node.clients:
            await node.send(client, message)

    async def client(node):
        message = await node.recv("ball")
        world.log(node.party, message.receiver, message.round)

    world.run(server, client, client, client).happened((1, 1, 1, 6), (2, 2, 2, 6), (3, 3, 3, 6))


def test_a_received_message_can_be_passed_on(tiny) -> None:
    world = tiny(2)

    async def server(node):
        message = await node.recv("ball")
        await node.send(2, message)
        world.log("kept", message.sender, message.receiver)

    async def first(node):
        await node.send("server", tiny.ball(round=4))

    async def second(node):
        message = await node.recv("ball")
        world.log("got", message.sender, message.round)

    world.run(server, first, second)
    assert {what for _, what in world.entries} == {("kept", 1, 0), ("got", 0, 4)}
    assert [row["party"] for row in world.events("transfer.ball")] == [1, 0]


def test_peers_can_talk_to_each_other(tiny) -> None:
    world = tiny(2)

    async def first(node):
        await node.send(2, tiny.ball(3))

    async def second(node):
        world.log((await node.recv("ball")).sender)

    world.run(tiny.idle, first, second).happened((0, 1))
    assert (world.recorder.bytes_up, world.recorder.bytes_down, world.recorder.bytes_peer) == (0, 0, 3)


def test_ids_weigh_where_the_receiver_cannot_derive_them(tiny) -> None:
    for own, weight in ((False, 5), (True, 5 + 8 * 4)):
        world = tiny(1, own_batches=own)

        async def client(node):
            await node.send("server", tiny.ball(5, batch=node.next_batch()))

        async def server(node):
            await node.recv("ball")

        world.run(server, client)
        assert world.recorder.bytes_up == weight


def test_sending_returns_at_once(tiny) -> None:
    world = tiny(1, links={1: tiny.Link(up=8.0, latency=1.0)})

    async def client(node):
        await node.send("server", tiny.ball(2))
        world.log("sent")

    async def server(node):
        await node.recv("ball")
        world.log("received")

    world.run(server, client).happened((0, "sent"), (3, "received"))


@pytest.mark.parametrize("verb", ["send", "upload"])
def test_an_upload_waits_the_upload_delay_and_a_send_does_not(tiny, verb) -> None:
    world = tiny(1, upload=tiny.constant(2))

    async def client(node):
        await getattr(node, verb)("server", tiny.ball())
        world.log("sent")

    async def server(node):
        await node.recv("ball")

    world.run(server, client).happened((0 if verb == "send" else 2, "sent"))
    assert [row["kind"] for row in world.events("upload")] == ([] if verb == "send" else ["upload.ball"])
