"""Receiving: what matches, when it resolves, in which order, and what a cancelled receive leaves behind."""

from __future__ import annotations

import pytest

from vflsim.errors import DeadlockError, ProtocolError
from vflsim.world.messages import Message


def sender_of(messages: list[Message]) -> list[int]:
    return [message.sender for message in messages]


def test_a_message_carries_who_when_and_what(tiny) -> None:
    world = tiny(2, links={1: tiny.Link(latency=1.0), 2: tiny.Link(latency=2.0)})

    async def server(node):
        for _ in range(2):
            message = await node.recv("ball")
            world.log(message.sender, message.receiver, message.round, type(message).__name__)
            assert node.now >= message.arrived > message.sent >= 0

    async def client(node):
        await node.send("server", tiny.ball(round=10 * node.party))

    world.run(server, client, client).happened((1, 1, 0, 10, "Ball"), (2, 2, 0, 20, "Ball"))


def test_receives_match_by_kind_and_round_and_leave_the_rest(tiny) -> None:
    world = tiny(1)

    async def client(node):
        for k in range(3):
            await node.send("server", tiny.ball(round=k))
            await node.send("server", tiny.Halt(round=k))

    async def server(node):
        await node.sleep(1)
        for kind, k in (("ball", 2), ("halt", None), ("ball", None), ("ball", 1), ("halt", 2)):
            message = await node.recv(kind, round=k)
            world.log(message.kind, message.round)
        world.log([m.round for m in node.arrived("halt")], node.arrived("ball"))

    world.run(server, client)
    assert [what for _, what in world.entries] == [
        ("ball", 2),
        ("halt", 0),
        ("ball", 0),
        ("ball", 1),
        ("halt", 2),
        ([1], []),
    ]


def test_arrived_takes_without_waiting_and_by_round(tiny) -> None:
    world = tiny(1)

    async def client(node):
        for k in (3, 1, 2, 0):
            await node.sleep(0.5)
            await node.send("server", tiny.ball(round=k))

    async def server(node):
        await node.sleep(4)
        world.log([m.round for m in node.arrived("ball", before=2)])
        world.log([m.round for m in node.arrived("ball", round=2)])
        world.log([m.round for m in node.arrived("ball", round=2)])
        world.log([m.round for m in node.arrived("ball")])

    world.run(server, client).happened((4, [1, 0]), (4, [2]), (4, []), (4, [3]))


def test_a_gather_resolves_at_the_end_of_the_instant_in_arrival_then_party_order(virtual) -> None:
    world = virtual(4)

    async def server(node):
        messages = await node.gather("ball", count=3)
        world.log(sender_of(messages))
        world.log(sender_of(await node.gather("ball", count=1)))

    async def client(node):
        await node.sleep(1 if node.party == 4 else 2)
        await node.send("server", virtual.ball())

    world.run(server, client, client, client, client).happened((2, [4, 1, 2]), (2, [3]))


def test_the_order_of_arrival_events_within_an_instant_does_not_matter(virtual) -> None:
    """At t = 1 client 3 sends, which makes client 2 send, which makes client 1 send: the first two are 1 and 2."""
    world = virtual(3)

    async def server(node):
        world.log(sender_of(await node.gather("ball", count=2)))

    async def client(node):
        if node.party == 3:
            await node.sleep(1)
        else:
            async with node.until("halt"):
                await node.sleep(9)
        await node.send("server", virtual.ball())
        if node.party > 1:
            await node.send(node.party - 1, virtual.Halt())

    world.run(server, client, client, client).happened((1, [1, 2]))


def test_a_gather_from_senders_takes_one_of_each_the_first(tiny) -> None:
    world = tiny(3)

    async def server(node):
        messages = await node.gather("ball", senders=[3, 1])
        world.log([(m.sender, m.round) for m in messages])
        world.log([(m.sender, m.round) for m in await node.gather("ball", count=3)])

    def client(*times):
        async def main(node):
            for k, seconds in enumerate(times):
                await node.sleep(seconds)
                await node.send("server", tiny.ball(round=k))

        return main

    world.run(server, client(4), client(2, 1), client(1, 2.5)).happened(
        (4, [(3, 0), (1, 0)]), (4, [(2, 0), (2, 1), (3, 1)])
    )


def test_a_gather_of_nothing_resolves_at_once(tiny) -> None:
    world = tiny(1)

    async def server(node):
        world.log(await node.gather("ball", count=0), await node.gather("ball", senders=[]))

    world.run(server, tiny.idle).happened((0, [], []))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "exactly one of the two"),
        ({"count": 1, "senders": [1]}, "exactly one of the two"),
        ({"count": -1}, "count ≥ 0"),
        ({"senders": [1, 5, 9]}, r"gather from \[5, 9\](.|\n)*clients \(1, 2\)"),
    ],
)
def test_a_gather_that_makes_no_sense_is_an_error(tiny, how, words) -> None:
    async def server(node):
        await node.gather("ball", **how)

    with pytest.raises(ProtocolError, match=f"server at 0(.|\n)*{words}"):
        tiny(2).run(server, tiny.idle, tiny.idle)


def test_receives_of_one_kind_are_served_in_the_order_asked(tiny) -> None:
    world = tiny(1)

    async def waiter(node, name, count):
        messages = await node.gather("ball", count=count)
        world.log(name, [m.round for m in messages])

    async def server(node):
        node.start(waiter(node, "first", 2))
        await node.sleep(0.5)
        await waiter(node, "second", 1)
        await node.sleep(3)

    async def client(node):
        for k in range(3):
            await node.sleep(1)
            await node.send("server", tiny.ball(round=k))

    world.run(server, client).happened((1, "second", [0]), (3, "first", [1, 2]))


def test_what_another_task_takes_no_longer_counts(tiny) -> None:
    world = tiny(1)

    async def waiter(node):
        world.log("two", [m.round for m in await node.gather("ball", count=2)])

    async def server(node):
        node.start(waiter(node))
        await node.sleep(1.5)
        world.log("took", [m.round for m in node.arrived("ball")])
        await node.sleep(3)

    async def client(node):
        for k in range(3):
            await node.sleep(1)
            await node.send("server", tiny.ball(round=k))

    world.run(server, client).happened((1.5, "took", [0]), (3, "two", [1, 2]))


def test_what_is_taken_in_the_very_instant_no_longer_counts(virtual) -> None:
    world = virtual(1)

    async def waiter(node):
        world.log([m.round for m in await node.gather("ball", count=1)])

    async def server(node):
        node.start(waiter(node))
        async with node.until("ball"):
            await node.sleep(9)
        world.log("took", [m.round for m in node.arrived("ball")])
        await node.sleep(2)

    async def client(node):
        for k in range(2):
            await node.sleep(1)
            await node.send("server", virtual.ball(round=k))

    world.run(server, client).happened((1, "took", [0]), (2, [1]))


# --- timeouts ---------------------------------------------------------------------------------------------------------


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


def test_in_real_time_a_close_race_with_a_timeout_loses_no_message(real) -> None:
    for shift in (-0.1, 0.0, 0.1):
        world = real(1)

        async def server(node, world=world):
            try:
                message = await node.recv("ball", timeout=1)
            except TimeoutError:
                message = await node.recv("ball", timeout=5)
            world.log(message.round)

        async def client(node, shift=shift):
            await node.sleep(1 + shift)
            await node.send("server", real.ball(round=3))

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

    with pytest.raises(DeadlockError, match="0 s: deadlock(.|\n)*server waits for 'ball'"):
        world.run(server, client)


# --- abandoned receives -----------------------------------------------------------------------------------------------


def test_an_abandoned_receive_swallows_no_later_message(tiny) -> None:
    world = tiny(1)

    async def server(node):
        async with node.until("halt"):
            await node.recv("ball")
        world.log("abandoned")
        world.log((await node.recv("ball")).round)
        await node.recv("halt")

    async def client(node):
        await node.sleep(1)
        await node.send("server", tiny.Halt())
        await node.sleep(1)
        await node.send("server", tiny.ball(round=8))

    world.run(server, client).happened((1, "abandoned"), (2, 8))


@pytest.mark.parametrize("halt_first", [True, False])
def test_a_receive_abandoned_in_the_instant_of_its_message_gives_it_back(tiny, halt_first) -> None:
    """The ball is there, handed over or about to be, when the halt of the same instant abandons the receive."""
    world = tiny(1)

    async def server(node):
        async with node.until("halt"):
            await node.recv("ball")
            world.log("received")
            await node.sleep(1)
        await node.recv("halt")
        with pytest.raises(TimeoutError):
            await node.recv("halt", timeout=0.5)
        rest = node.arrived("ball")
        received = ("received",) in [what for _, what in world.entries]
        assert len(rest) == (0 if received else 1), "the ball is lost"
        if not tiny.real:
            assert not received

    async def client(node):
        await node.sleep(1)
        for message in (tiny.Halt(), tiny.ball()) if halt_first else (tiny.ball(), tiny.Halt()):
            await node.send("server", message)

    world.run(server, client)


def test_a_message_handed_over_and_given_back_goes_to_the_next_who_waits(virtual) -> None:
    """At t = 1 the gather has resolved, its task has not gone on yet, and then the halt comes."""
    world = virtual(1)
    mailbox = world.server.mailbox

    async def beside(node):
        world.log("beside", (await node.recv("ball", round=1)).round)

    async def server(node):
        async with node.until("halt"):
            await node.recv("ball")
            world.log("never")
        world.log("abandoned", mailbox.has("ball", None))
        node.start(beside(node))
        await node.recv("halt")
        await node.sleep(1)

    async def client(node):
        await node.sleep(1)
        ball = virtual.ball(round=1)
        ball.sender, halt = 1, virtual.Halt()
        halt.sender = 1
        mailbox.deliver(ball)
        mailbox._resolve()
        mailbox.deliver(halt)

    world.run(server, client).happened((1, "abandoned", True), (1, "beside", 1))


# --- sending ----------------------------------------------------------------------------------------------------------


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
