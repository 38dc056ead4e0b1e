"""Receiving: what matches, when it resolves, in which order, and what a cancelled receive leaves behind."""

from __future__ import annotations

import pytest

from vflsim.errors import ProtocolError
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
        for kind, k in (("ball", 1), ("halt", None), ("ball", None), ("halt", 1)):
            message = await node.recv(kind, round=k)
            world.log(message.kind, message.round)
        world.log([m.round for m in node.arrived("halt")], node.arrived("ball"))

    world.run(server, client)
    assert [what for _, what in world.entries] == [("ball", 1), ("halt", 0), ("ball", 2), ("halt", 1), ([2], [])]


def test_arrived_takes_without_waiting_and_by_round(tiny) -> None:
    world = tiny(1)

    async def client(node):
        for k in (3, 1, 2, 0):
            await node.sleep(0.5)
            await node.send("server", tiny.ball(round=k))

    async def server(node):
        await node.sleep(4)
        world.log([m.round for m in node.arrived("ball", round=2)])
        world.log([m.round for m in node.arrived("ball", round=2)])
        world.log([m.round for m in node.arrived("ball")])

    world.run(server, client).happened((4, [2]), (4, []), (4, [3, 1, 0]))


def test_a_receive_of_a_round_drops_what_its_senders_sent_for_earlier_rounds(tiny) -> None:
    world = tiny(2)

    async def client(node):
        for k in (0, 1, 2, -1):
            await node.send("server", tiny.ball(round=k))

    async def server(node):
        await node.sleep(1)
        world.log("took", (await node.recv("ball", round=1, sender=1)).round)
        world.log(sorted((m.sender, m.round) for m in node.arrived("ball")))

    world.run(server, client, client).happened((1, "took", 1), (1, [(1, -1), (1, 2), (2, -1), (2, 0), (2, 1), (2, 2)]))


def test_a_receive_of_a_round_leaves_earlier_rounds_that_another_receive_waits_for(tiny) -> None:
    world = tiny(1)

    async def client(node):
        await node.sleep(1)
        await node.send("server", tiny.ball(round=0))
        await node.sleep(1)
        await node.send("server", tiny.ball(round=1))

    async def earlier(node):
        world.log([m.round for m in await node.gather("ball", count=2)])

    async def server(node):
        node.start(earlier(node))
        await node.sleep(1.5)
        await node.gather("ball", count=1, round=1, timeout=2)
        world.log("later")

    world.run(server, client).happened((2, [0, 1]), (3.5, "later"))


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


def test_a_gather_of_some_of_the_senders_counts_each_of_them_once(tiny) -> None:
    world = tiny(3)

    async def server(node):
        world.log(sender_of(await node.gather("ball", count=2, senders=[1, 2])))
        world.log([(m.sender, m.round) for m in node.arrived("ball")])

    def client(*times):
        async def main(node):
            for k, seconds in enumerate(times):
                await node.sleep(seconds)
                await node.send("server", tiny.ball(round=k))

        return main

    world.run(server, client(4), client(1, 1), client(3)).happened((4, [2, 1]), (4, [(2, 1), (3, 0)]))


def test_a_gather_of_nothing_resolves_at_once(tiny) -> None:
    world = tiny(1)

    async def server(node):
        world.log(await node.gather("ball", count=0), await node.gather("ball", senders=[]))

    world.run(server, tiny.idle).happened((0, [], []))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "at least one of the two"),
        ({"count": 2, "senders": [1]}, "the number of senders"),
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


def test_receives_of_several_kinds_that_resolve_together_go_on_in_the_order_asked(virtual) -> None:
    world = virtual(1)

    async def waiter(node, kind):
        await node.recv(kind)
        world.log(kind)

    async def server(node):
        for kind in ("halt", "ball", "halt"):
            node.start(waiter(node, kind))
        await node.sleep(2)

    async def client(node):
        await node.sleep(1)
        for message in (virtual.ball(), virtual.Halt(), virtual.Halt()):
            await node.send("server", message)

    world.run(server, client).happened((1, "halt"), (1, "ball"), (1, "halt"))


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


# --- abandoned receives ---------------------------------------------------------------------------------------------


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
    """At t = 1 two receives have resolved, their tasks have not gone on yet, and then the halt comes."""
    world = virtual(1)
    mailbox = world.server.state.mailbox

    async def beside(node):
        world.log("beside", (await node.recv("ball", round=1)).round)

    async def other(node):
        world.log("other", (await node.recv("ball", round=2)).round)

    async def server(node):
        node.start(other(node))
        async with node.until("halt"):
            await node.recv("ball")
            world.log("never")
        world.log("abandoned", mailbox.has("ball", None))
        node.start(beside(node))
        await node.recv("halt")
        await node.sleep(1)

    async def client(node):
        await node.sleep(1)
        first, second, halt = virtual.ball(round=1), virtual.ball(round=2), virtual.Halt()
        first.sender = second.sender = halt.sender = 1
        mailbox.deliver(first)
        mailbox.deliver(second)
        mailbox._resolve()
        mailbox.deliver(halt)

    world.run(server, client).happened((1, "abandoned", True), (1, "other", 2), (1, "beside", 1))


@pytest.mark.parametrize("kept", [False, True])
def test_messages_of_earlier_rounds_are_dropped_unless_their_kind_comes_in_any_order(tiny, kept: bool) -> None:
    world = tiny(1)

    async def client(node):
        for k in range(3):
            await node.send("server", tiny.ball(round=k))

    async def server(node):
        if kept:
            node.in_any_order("ball")
        await node.sleep(1)
        world.log((await node.recv("ball", round=1)).round)
        world.log([message.round for message in node.arrived("ball")])

    world.run(server, client).happened((1, 1), (1, [0, 2] if kept else [2]))
