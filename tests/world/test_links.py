"""Messages on their way, against timelines worked out by hand. A link of 8 bit/s moves a byte a second."""

from __future__ import annotations

import math

import pytest

from vflsim.errors import ProtocolError
from vflsim.timing.delays import Constant, Uniform
from vflsim.timing.sampler import Sampler

BYTE_A_SECOND = 8.0


def sends(tiny, *what, to="server"):
    """A party that sends balls of the given sizes, each at its time."""

    async def main(node):
        for k, (time, size) in enumerate(what):
            if time > node.now:
                await node.sleep(time - node.now)
            await node.send(to, tiny.ball(size, round=k))

    return main


def receives(tiny, world, count):
    """A party that logs the senders and rounds of what arrives."""

    async def main(node):
        for _ in range(count):
            message = await node.recv("ball")
            world.log(message.sender, message.round)

    return main


def test_latency_comes_first_and_then_the_bytes(tiny) -> None:
    world = tiny(1, links={0: tiny.Link(down=BYTE_A_SECOND, latency=2.0), 1: tiny.Link(latency=1.0)})
    world.run(receives(tiny, world, 1), sends(tiny, (0, 4))).happened((3 + 4, 1, 0))
    latency, transfer = world.events()
    assert (latency["kind"], latency["drawn"], latency["index"]) == ("latency.client-1→server", 3.0, 0)
    assert (transfer["kind"], transfer["bytes"], transfer["peer"]) == ("transfer.ball", 4, 0)
    if not tiny.real:
        assert (latency["start"], latency["end"], transfer["start"], transfer["end"]) == (0, 3, 3, 7)


def test_latency_does_not_occupy_the_link(tiny) -> None:
    """Three messages sent at 0 spend their five seconds of latency together, then follow one another."""
    world = tiny(1, links={1: tiny.Link(up=BYTE_A_SECOND, latency=5.0)})
    world.run(receives(tiny, world, 3), sends(tiny, (0, 1), (0, 2), (0, 1))).happened((6, 1, 0), (8, 1, 1), (9, 1, 2))


@pytest.mark.parametrize(
    ("up", "down", "seconds"), [(16.0, 8.0, 4), (8.0, 16.0, 4), (math.inf, 8.0, 4), (16.0, math.inf, 2)]
)
def test_the_rate_is_the_slower_of_the_senders_up_and_the_receivers_down(tiny, up, down, seconds) -> None:
    world = tiny(1, links={0: tiny.Link(down=down, up=1.0), 1: tiny.Link(up=up, down=1.0)})
    world.run(receives(tiny, world, 1), sends(tiny, (0, 4))).happened((seconds, 1, 0))


def test_without_limits_a_message_arrives_in_the_instant_it_is_sent(virtual) -> None:
    world = virtual(1)
    world.run(receives(virtual, world, 2), sends(virtual, (0, 10**9), (1, 1))).happened((0, 1, 0), (1, 1, 1))
    assert world.events("latency") == []


def test_a_receiver_takes_one_message_at_a_time_in_the_order_in_which_latencies_end(tiny) -> None:
    world = tiny(3, links={0: tiny.Link(down=BYTE_A_SECOND), 1: tiny.Link(latency=3.0), 2: tiny.Link(latency=1.0)})
    server = receives(tiny, world, 3)
    # 2 moves from 1 to 4; 3, there since 2, from 4 to 5; 1, there since 3, from 5 to 7.
    world.run(server, sends(tiny, (0, 2)), sends(tiny, (0, 3)), sends(tiny, (2, 1))).happened(
        (4, 2, 0), (5, 3, 0), (7, 1, 0)
    )


def test_a_sender_takes_the_next_message_that_can_move(tiny) -> None:
    """Client 1's message to busy client 3 waits, and its message to idle client 2 does not."""
    world = tiny(3, links={m: tiny.Link(up=BYTE_A_SECOND, down=BYTE_A_SECOND) for m in (0, 1, 2, 3)})

    async def first(node):
        await node.sleep(1)
        await node.send(3, tiny.ball(2, round=0))
        await node.send(2, tiny.ball(1, round=1))

    world.run(sends(tiny, (0, 4), to=3), first, receives(tiny, world, 1), receives(tiny, world, 2)).happened(
        (2, 1, 1), (4, 0, 0), (6, 1, 0)
    )


def test_a_free_receiver_takes_the_next_though_another_line_stands_still(tiny) -> None:
    world = tiny(4, links={m: tiny.Link(up=BYTE_A_SECOND, down=BYTE_A_SECOND) for m in range(5)})

    async def second(node):
        await node.sleep(1)
        await node.send(4, tiny.ball(1))

    # The server's line stands at busy client 3 from 2 on; client 2's message to client 4 does not care.
    async def server(node):
        await node.sleep(2)
        await node.send(3, tiny.ball(1))

    world.run(server, sends(tiny, (0, 4), to=3), second, receives(tiny, world, 2), receives(tiny, world, 1)).happened(
        (2, 2, -1), (4, 1, 0), (5, 0, -1)
    )


def test_the_two_directions_of_a_link_are_independent(tiny) -> None:
    world = tiny(1, links={1: tiny.Link(up=BYTE_A_SECOND, down=2 * BYTE_A_SECOND)})

    async def server(node):
        await node.send(1, tiny.ball(8, round=9))
        await receives(tiny, world, 1)(node)

    async def client(node):
        await node.send("server", tiny.ball(3))
        await receives(tiny, world, 1)(node)

    world.run(server, client).happened((3, 1, -1), (4, 0, 9))
    assert (world.recorder.bytes_up, world.recorder.bytes_down) == (3, 8)


def test_fifo_is_the_whole_story_of_a_small_crowd(virtual) -> None:
    """Four clients, one server that takes 2 byte/s: the server's down link is the bottleneck, its up link idle."""
    world = virtual(4, links={0: virtual.Link(down=16.0), 4: virtual.Link(up=8.0)})
    mains = [sends(virtual, (0, 4), (0, 2)), sends(virtual, (0.5, 2)), sends(virtual, (1, 6)), sends(virtual, (1, 1))]
    world.run(receives(virtual, world, 5), *mains).happened((2, 1, 0), (3, 1, 1), (4, 2, 0), (7, 3, 0), (8, 4, 0))


def test_dedicated_links_never_wait_for_one_another(tiny) -> None:
    world = tiny(
        2,
        network=tiny.Dedicated(),
        links={0: tiny.Link(down=BYTE_A_SECOND), 1: tiny.Link(up=BYTE_A_SECOND), 2: tiny.Link(latency=1.0)},
    )
    world.run(receives(tiny, world, 3), sends(tiny, (0, 4), (0, 2)), sends(tiny, (0, 2))).happened(
        (2, 1, 1), (3, 2, 0), (4, 1, 0)
    )


def test_under_dedicated_links_abandoned_transfers_leave_the_others_alone(tiny) -> None:
    world = tiny(1, network=tiny.Dedicated(), links={1: tiny.Link(up=BYTE_A_SECOND)})

    async def client(node):
        await node.send("server", tiny.ball(4, round=0))
        async with node.until("halt"):
            await node.send("server", tiny.ball(9, round=1))
            await node.sleep(9)

    async def server(node):
        await node.sleep(2)
        await node.send(1, tiny.Halt())
        await receives(tiny, world, 1)(node)

    world.run(server, client).happened((4, 1, 0))


def test_an_abandoned_message_in_the_queue_makes_way(tiny) -> None:
    """Client 2's message waits behind client 1's at the server; abandoned, client 3's takes its place."""
    world = tiny(3, links={0: tiny.Link(down=BYTE_A_SECOND)})

    async def second(node):
        await node.sleep(0.5)
        async with node.until("halt"):
            await node.send("server", tiny.ball(9))
            await node.sleep(9)

    async def server(node):
        node.start(receives(tiny, world, 2)(node))
        await node.sleep(2)
        await node.send(2, tiny.Halt())
        await node.sleep(7)

    world.run(server, sends(tiny, (0, 4)), second, sends(tiny, (1, 2))).happened((4, 1, 0), (6, 3, 0))
    assert {(row["party"], row["outcome"], row["bytes"]) for row in world.events("transfer.ball")} == {
        (1, "done", 4),
        (2, "abandoned", 0),
        (3, "done", 2),
    }


def test_an_abandoned_head_lets_both_its_lines_move(virtual) -> None:
    """Client 1's message to the server, moving, held up client 2's to the server and its own to client 2."""
    world = virtual(2, links={m: virtual.Link(up=8.0, down=8.0) for m in range(3)})

    async def first(node):
        async with node.until("halt"):
            await node.send("server", virtual.ball(9))
            await node.sleep(9)

    async def client(node):
        node.start(first(node))
        await node.sleep(0.25)
        await node.send(2, virtual.ball(2, round=1))

    async def second(node):
        await node.sleep(0.1)
        await node.send("server", virtual.ball(1, round=2))
        await receives(virtual, world, 1)(node)

    async def server(node):
        node.start(receives(virtual, world, 1)(node))
        await node.sleep(3)
        await node.free().send(1, virtual.Halt())
        await node.sleep(3)

    world.run(server, client, second).happened((4, 2, 2), (5, 1, 1))


def test_bytes_of_the_end_are_counted_once_and_nothing_arrives_afterwards(tiny) -> None:
    """The run ends in the instant in which a transfer would."""
    world = tiny(1, links={1: tiny.Link(up=BYTE_A_SECOND)})

    async def client(node):
        await node.send("server", tiny.ball(2, round=0))
        await node.send("server", tiny.ball(2, round=1))
        await node.sleep(9)

    async def server(node):
        await node.sleep(3)
        await node.send(1, tiny.ball(7))  # on its way for no time at all
        world.world.finish("now")

    world.run(server, client)
    rows = world.events("transfer.ball")
    assert [(row["party"], row["index"], row["outcome"]) for row in rows] == [
        (1, 0, "done"),
        (1, 1, "unfinished"),
        (0, 0, "unfinished"),
    ]
    assert world.recorder.bytes_up == sum(row["bytes"] for row in rows if row["party"] == 1)
    assert world.recorder.bytes_down == rows[2]["bytes"]
    if not tiny.real:
        assert [row["bytes"] for row in rows] == [2, 1, 0]


def test_unfinished_transfers_are_listed_in_the_order_sent(virtual) -> None:
    world = virtual(3, links={0: virtual.Link(up=1.0)})

    async def server(node):
        for k in range(8):
            for client in (2, 1, 3):
                await node.send(client, virtual.ball(1, round=k))
        await node.sleep(1)

    world.run(server)
    assert [(row["round"], row["peer"]) for row in world.events("transfer")] == [
        (k, client) for k in range(8) for client in (2, 1, 3)
    ]


def test_latency_is_drawn_per_message_from_both_links_and_keyed_by_the_pair(virtual) -> None:
    laws = {0: Uniform(low=0.0, high=1.0), 1: Uniform(low=1.0, high=2.0), 2: Constant(value=0.25)}
    world = virtual(2, links={m: virtual.Link(latency=law) for m, law in laws.items()}, seed=11)

    async def server(node):
        for _ in range(3):
            for client in (1, 2):
                await node.send(client, virtual.ball())
        await node.gather("ball", count=2)

    async def client(node):
        await node.send("server", virtual.ball())
        await node.gather("ball", count=3)

    world.run(server, client, client)

    def draws(i, j, count):
        purpose = "latency." + "→".join("server" if p == 0 else f"client-{p}" for p in (i, j))
        samplers = [Sampler(laws[p], 11, p, purpose) for p in (i, j)]
        return [(purpose, k, sum(sampler.draw(k) for sampler in samplers)) for k in range(count)]

    expected = [*draws(0, 1, 3), *draws(0, 2, 3), *draws(1, 0, 1), *draws(2, 0, 1)]
    found = [(row["kind"], row["index"], row["drawn"]) for row in world.events("latency")]
    assert sorted(row[:2] for row in found) == sorted(row[:2] for row in expected)
    by_key = {row[:2]: row[2] for row in found}
    assert all(by_key[kind, index] == pytest.approx(drawn, rel=1e-12) for kind, index, drawn in expected)


def test_a_transfers_index_counts_its_senders_messages_of_its_kind(tiny) -> None:
    world = tiny(2)

    async def server(node):
        for _ in range(2):
            for client in node.clients:
                await node.send(client, tiny.ball())
                await node.send(client, tiny.Halt())
        await node.sleep(1)

    world.run(server)
    for kind in ("transfer.ball", "transfer.halt"):
        assert sorted(row["index"] for row in world.events(kind)) == [0, 1, 2, 3]


def test_the_transport_itself_refuses_what_has_no_receiver(virtual) -> None:
    world = virtual(1)
    ball = virtual.ball()
    ball.sender, ball.receiver = 1, 1
    with pytest.raises(ProtocolError, match="to party 1"):
        world.transport.send(ball, 1, lambda message: None)
