"""Free nodes: the same party outside time (evaluation, references)."""

from __future__ import annotations

from vflsim.timing.activation import Poisson


def test_a_free_node_takes_no_time_weighs_nothing_and_leaves_no_events(tiny) -> None:
    world = tiny(
        1,
        compute=tiny.constant(5),
        upload=tiny.constant(5),
        links={1: tiny.Link(up=8.0, latency=5.0)},
        activation=lambda party: Poisson(rate=0.1).process(0, party),
    )

    async def client(node):
        free = node.free()
        await free.activated()
        assert await free.compute(tiny.work("embed", 1, result="h")) == "h"
        await free.upload("server", tiny.ball(100))
        world.log("sent")

    async def server(node):
        message = await node.recv("ball")
        world.log(message.sender, message.receiver)

    world.run(server, client)
    assert {what for _, what in world.entries} == {("sent",), (1, 0)}
    assert world.events() == []
    assert world.recorder.bytes_up == 0
    if not tiny.real:
        assert {time for time, _ in world.entries} == {0}


def test_a_free_computation_goes_on_beside_a_busy_processor_and_uses_up_no_draw(virtual) -> None:
    world = virtual(1, compute=virtual.constant(4))

    async def beside(node):
        await node.sleep(1)
        await node.free().compute(virtual.work("embed", 1))
        world.log("free")

    async def client(node):
        node.start(beside(node))
        await node.compute(virtual.work("embed", 1))
        await node.compute(virtual.work("embed", 1))
        world.log("paid")

    world.run(virtual.idle, client).happened((1, "free"), (8, "paid"))
    assert [row["index"] for row in world.events("compute.embed")] == [0, 1]


def test_free_messages_only_still_pay_for_computations(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2), upload=tiny.constant(5))

    async def client(node):
        free = node.free(messages_only=True)
        await free.compute(tiny.work("embed", 1))
        await free.upload("server", tiny.ball(8))
        world.log("done")

    async def server(node):
        await node.recv("ball")

    world.run(server, client).happened((2, "done"))
    assert [row["kind"] for row in world.events()] == ["compute.embed"]


def test_a_free_node_shares_its_partys_place_in_the_batches(tiny) -> None:
    world = tiny(1)
    node = world.nodes[1]
    free = node.free()
    assert [node.next_batch().index, free.next_batch().index, node.next_batch().index] == [0, 1, 2]
    assert free.free().next_batch().index == 3


def test_a_free_node_is_bound_by_the_blocks_of_its_task(tiny) -> None:
    world = tiny(1)

    async def client(node):
        await node.sleep(2)
        async with node.until("halt"):
            await node.free().compute(tiny.work("embed", 1))
            world.log("never")
        world.log("abandoned")

    async def server(node):
        await node.sleep(1)
        await node.send(1, tiny.Halt())

    world.run(server, client).happened((2, "abandoned"))
