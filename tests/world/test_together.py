"""Running coroutines beside each other, and waiting for all of them."""

import pytest


async def echo(node, seconds, value):
    await node.sleep(seconds)
    return value


def test_results_come_in_the_order_of_the_coroutines_when_all_have_ended(tiny) -> None:
    world = tiny(0)

    async def server(node):
        world.log(await node.together(echo(node, 2, "slow"), echo(node, 1, "fast"), echo(node, 0, "at once")))

    world.run(server).happened((2, ["slow", "fast", "at once"]))


def test_nothing_together_takes_no_time(tiny) -> None:
    world = tiny(0)

    async def server(node):
        world.log(await node.together())

    world.run(server).happened((0, []))


def test_an_abandoned_block_takes_them_with_it(tiny) -> None:
    world = tiny(1)

    async def work(node, name):
        try:
            await node.sleep(5)
        finally:
            world.log("abandoned", name)

    async def client(node):
        async with node.until("halt"):
            await node.together(work(node, "one"), work(node, "other"))
        await node.recv("halt")
        world.log("on")
        await node.sleep(6)

    world.run(tiny.halt_at(1.0), client).happened((1, "abandoned", "one"), (1, "abandoned", "other"), (1, "on"))


def test_what_never_began_is_closed_with_them(virtual) -> None:
    world = virtual(1)

    async def client(node):
        async with node.until("halt"):
            await node.sleep(1)
            await node.together(echo(node, 1, None), echo(node, 2, None))
        world.log("on")

    world.run(virtual.halt_at(1.0), client).happened((1, "on"))


def test_a_failure_of_one_ends_the_run(tiny) -> None:
    async def fails(node):
        await node.sleep(1)
        raise ValueError("one of them")

    async def server(node):
        await node.together(echo(node, 2, None), fails(node))

    with pytest.raises(Exception, match="one of them"):
        tiny(0).run(server)
