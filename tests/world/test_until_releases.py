"""What the body of an ``until`` block holds when it is abandoned: its processor, its links, its transfers."""

from __future__ import annotations

import pytest


def test_an_abandoned_computation_frees_the_processor_at_once(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))
    ran = []

    async def client(node):
        async with node.until("halt"):
            await node.compute(tiny.work("useless", 1, lambda: ran.append("useless")))
        await node.compute(tiny.work("useful", 1, lambda: ran.append("useful")))
        world.log("done")

    world.run(tiny.halt_at(1), client).happened((3, "done"))
    assert ran == ["useful"]
    assert [(r["kind"], r["outcome"]) for r in world.events("compute")] == [
        ("compute.useless", "abandoned"),
        ("compute.useful", "done"),
    ]


def test_an_abandoned_place_in_the_processors_queue_is_given_up(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))

    async def beside(node, name):
        await node.compute(tiny.work(name, 1))
        world.log(name)

    async def client(node):
        node.start(beside(node, "first"))
        await node.sleep(0.2)
        async with node.until("halt"):
            await node.compute(tiny.work("useless", 1))
        node.start(beside(node, "second"))
        await node.sleep(6)

    world.run(tiny.halt_at(1), client).happened((2, "first"), (4, "second"))
    assert [r["kind"] for r in world.events("compute")] == ["compute.first", "compute.second"]


def test_a_processor_handed_over_in_the_instant_of_the_abandonment_is_handed_on(virtual) -> None:
    """At t = 2 the first computation ends, the queue's head is handed the processor, and then the halt comes."""
    world = virtual(1, compute=virtual.constant(2), links={0: virtual.Link(latency=1.0)})

    async def beside(node, name):
        await node.compute(virtual.work(name, 1))
        world.log(name)

    async def client(node):
        node.start(beside(node, "first"))
        await node.sleep(0.5)
        node.start(useless(node))
        await node.sleep(0.25)
        node.start(beside(node, "second"))
        await node.sleep(6)

    async def useless(node):
        async with node.until("halt"):
            await node.compute(virtual.work("useless", 1))

    for shift in (0.0, 1e-12, -1e-12):
        world = virtual(1, compute=virtual.constant(2))
        world.run(virtual.halt_at(2 + shift), client)
        assert [what for _, what in world.entries] == [("first",), ("second",)]
        assert world.entries[-1][0] == 4


@pytest.mark.parametrize(
    ("size", "halt", "sent"),
    [(4, 2.5, 1), (4, 0.5, 0), (6, 4.0, 3)],
    ids=["moving", "in its latency", "after three bytes"],
)
def test_an_abandoned_transfer_leaves_its_link_and_the_bytes_sent_count(tiny, size, halt, sent) -> None:
    """One second of latency, then a byte a second; the next message of three bytes starts at once."""
    world = tiny(2, links={1: tiny.Link(up=8.0, latency=1.0)})

    async def server(node):
        node.start(receive(node))
        await node.sleep(halt)
        await node.free().send(1, tiny.Halt())
        await node.sleep(9)

    async def receive(node):
        message = await node.recv("ball")
        world.log("arrived", message.round)

    async def client(node):
        async with node.until("halt"):
            await node.send("server", tiny.ball(size, round=1))
            await node.sleep(9)
        await node.send("server", tiny.ball(3, round=2))
        await node.sleep(9)

    world.run(server, client).happened((halt + 1 + 3, "arrived", 2))
    first, second = world.events("transfer.ball")
    assert (first["outcome"], first["index"], second["outcome"], second["index"]) == ("abandoned", 0, "done", 1)
    assert second["bytes"] == 3
    assert world.recorder.bytes_up == first["bytes"] + 3
    if tiny.real:
        assert 0 <= first["bytes"] <= size
    else:
        assert first["bytes"] == sent


def test_what_a_finished_body_has_sent_is_still_bound_to_the_message(tiny) -> None:
    world = tiny(1, links={1: tiny.Link(up=8.0)})

    async def client(node):
        async with node.until("halt"):
            await node.send("server", tiny.ball(5, round=1))
            await node.send("server", tiny.ball(5, round=2))
        world.log("body over")
        await node.send("server", tiny.ball(2, round=3))  # not of the body
        await node.recv("halt")
        await node.sleep(9)

    async def server(node):
        node.start(receive(node))
        await node.sleep(2.5)
        await node.send(1, tiny.Halt())
        await node.sleep(9)

    async def receive(node):
        while True:
            world.log("arrived", (await node.recv("ball")).round)

    world.run(server, client).happened((0, "body over"), (4.5, "arrived", 3))
    assert [(r["round"], r["outcome"]) for r in world.events("transfer.ball")] == [
        (1, "abandoned"),
        (2, "abandoned"),
        (3, "done"),
    ]
    if not tiny.real:
        assert [r["bytes"] for r in world.events("transfer.ball")] == [2, 0, 2]


def test_what_has_arrived_before_the_message_stays_arrived(tiny) -> None:
    world = tiny(1, links={1: tiny.Link(up=8.0)})

    async def client(node):
        async with node.until("halt"):
            await node.send("server", tiny.ball(1, round=1))
            await node.send("server", tiny.ball(9, round=2))
            await node.sleep(20)

    async def server(node):
        await node.sleep(2)
        await node.send(1, tiny.Halt())
        await node.sleep(10)
        world.log([m.round for m in node.arrived("ball")])

    world.run(server, client).happened((12, [1]))


def test_a_transfer_sent_in_two_nested_blocks_is_bound_to_both_messages(tiny) -> None:
    for k in (1, 2):
        world = tiny(1, links={1: tiny.Link(up=8.0)})

        async def client(node):
            async with node.until("halt", round=1), node.until("halt", round=2):
                await node.send("server", tiny.ball(5))
            await node.sleep(6)

        world.run(tiny.halt_at(2, round=k), client)
        assert [r["outcome"] for r in world.events("transfer.ball")] == ["abandoned"]


def test_an_unlimited_link_abandons_without_arithmetic_on_infinity(tiny) -> None:
    world = tiny(1)

    async def client(node):
        async with node.until("halt"):
            await node.sleep(1)
            for _ in range(20):
                await node.send("server", tiny.ball(10))
            await node.sleep(9)

    world.run(tiny.halt_at(1), client)
    assert 0 <= world.recorder.bytes_up <= 200
