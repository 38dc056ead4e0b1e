"""Links that change, gates that shut, and outages, against timelines worked out by hand. 8 bit/s is a byte a second."""

from __future__ import annotations

import pytest

from vflsim.errors import DeadlockError
from vflsim.timing.capacity import LatencyMatrix
from vflsim.timing.profile import StepProfile
from vflsim.world.networks import Dedicated, Fair, Fifo

BYTE_A_SECOND = 8.0
PAUSED = [[0, 8], [2, 0], [5, 8]]  # a byte a second, but for the three seconds from 2 on
DRAWN = {"kind": "uniform", "low": 0.1, "high": 0.2}
EVERY = pytest.mark.parametrize("network", [Fifo(), Dedicated(), Fair()], ids=lambda network: network.kind)


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


@EVERY
def test_a_transfer_waits_out_a_link_that_carries_nothing(tiny, network) -> None:
    world = tiny(1, network=network, links={1: tiny.Link(up=PAUSED)})
    world.run(receives(tiny, world, 1), sends(tiny, (0, 4))).happened((7, 1, 0))


@EVERY
def test_the_slower_link_counts_at_every_instant(virtual, network) -> None:
    """Up: 2 bytes a second, from 4 on 4. Down: 1 byte a second in even turns of 2 s, 3 in odd ones."""
    down = {"kind": "steps", "steps": [[0, "8 bps"], [2, "24 bps"]], "period": 4}
    world = virtual(
        1, network=network, links={0: virtual.Link(down=down), 1: virtual.Link(up=[[0, "2 B/s"], [4, "4 B/s"]])}
    )
    # 2 by 2, 4 more by 4, 2 more by 6, 6 more by 8, and one more.
    world.run(receives(virtual, world, 1), sends(virtual, (0, 15))).happened((9, 1, 0))


@EVERY
def test_an_empty_message_waits_for_a_link_that_carries_something(virtual, network) -> None:
    world = virtual(1, network=network, links={1: virtual.Link(up=PAUSED)})
    world.run(receives(virtual, world, 3), sends(virtual, (1, 0), (3, 0), (4, 0))).happened(
        (1, 1, 0), (5, 1, 1), (5, 1, 2)
    )


@EVERY
@pytest.mark.parametrize("gated", [0, 1])
def test_nothing_of_a_party_moves_behind_its_gate(tiny, network, gated) -> None:
    world = tiny(
        1,
        network=network,
        links={1: tiny.Link(up=BYTE_A_SECOND, latency=1.0)},
        gates={gated: StepProfile([0, 3, 6], [1, 0, 1])},
    )
    # Latency until 1, two bytes by 3, two more by 8.
    world.run(receives(tiny, world, 1), sends(tiny, (0, 4))).happened((8, 1, 0))


@EVERY
def test_latency_passes_behind_a_gate(virtual, network) -> None:
    world = virtual(
        1,
        network=network,
        links={1: virtual.Link(up=BYTE_A_SECOND, latency=2.0)},
        gates={1: StepProfile([0, 1, 2.5], [1, 0, 1])},
    )
    world.run(receives(virtual, world, 1), sends(virtual, (0, 1))).happened((3.5, 1, 0))
    begins = 2.5 if network.queued else 2  # it waits for a link, or stands still on it
    assert [(row["start"], row["end"]) for row in world.events()] == [(0, 2), (begins, 3.5)]


@EVERY
def test_what_is_through_of_an_abandoned_transfer_counts(virtual, network) -> None:
    world = virtual(1, network=network, links={1: virtual.Link(up=PAUSED)})

    async def client(node):
        async with node.until("halt"):
            await node.send("server", virtual.ball(9))
            await node.sleep(99)

    world.run(virtual.halt_at(6.5), client)
    (row,) = world.events("transfer.ball")
    assert (row["start"], row["end"], row["bytes"], row["outcome"]) == (0, 6.5, 3, "abandoned")


@EVERY
def test_a_link_that_never_carries_anything_again_is_a_deadlock(tiny, network) -> None:
    world = tiny(1, network=network, links={1: tiny.Link(up=[[0, 8], [4, 0]])})
    with pytest.raises(DeadlockError, match="'ball'"):
        world.run(receives(tiny, world, 2), sends(tiny, (0, 1), (0, 9)))
    assert [entry for _, entry in world.entries] == [(1, 0)]


@EVERY
def test_links_that_never_carry_anything_at_the_same_time_are_a_deadlock(virtual, network, monkeypatch) -> None:
    monkeypatch.setattr("vflsim.timing.profile.NEVER_AFTER", 1000)
    odd, even = ({"kind": "steps", "steps": [[0, a], [1, 8 - a]], "period": 2} for a in (0, 8))
    world = virtual(1, network=network, links={0: virtual.Link(down=odd), 1: virtual.Link(up=even)})
    with pytest.raises(DeadlockError, match="'ball'"):
        world.run(receives(virtual, world, 1), sends(virtual, (0, 1)))


@EVERY
def test_what_is_under_way_from_a_lost_party_never_arrives(tiny, network) -> None:
    """Client 1 is lost at 5: one message from it moves, another has still its latency to pay."""
    world = tiny(2, network=network, links={m: tiny.Link(up=BYTE_A_SECOND, latency=3.0) for m in (1, 2)})

    async def server(node):
        node.start(receives(tiny, world, 1)(node))
        await node.sleep(5)
        world.transport.lose(1)
        await node.sleep(8)

    world.run(server, sends(tiny, (0, 9), (3, 1)), sends(tiny, (6, 1)))
    rows = {(row["party"], row["index"]): row for row in world.events("transfer.ball")}
    assert rows[1, 0]["outcome"] == rows[1, 1]["outcome"] == "lost"
    assert rows[2, 0]["outcome"] == "done"
    assert [entry for _, entry in world.entries] == [(2, 0)]
    if not tiny.real:
        assert (rows[1, 0]["start"], rows[1, 0]["end"], rows[1, 0]["bytes"]) == (3, 5, 2)
        assert (rows[1, 1]["start"], rows[1, 1]["end"], rows[1, 1]["bytes"]) == (5, 5, 0)
        (latency,) = [row for row in world.events("latency.client-1") if row["outcome"] == "lost"]
        assert (latency["start"], latency["end"]) == (3, 5)


def test_a_lost_head_lets_those_behind_it_move(virtual) -> None:
    """fifo: clients 1, 2, 3 stand at the server's down-link; 1 and 2 are lost while 1 moves."""
    world = virtual(3, links={0: virtual.Link(down=BYTE_A_SECOND)})

    async def server(node):
        node.start(receives(virtual, world, 1)(node))
        await node.sleep(2)
        world.transport.lose(2)
        world.transport.lose(1)
        await node.sleep(8)

    balls = [sends(virtual, (0, 9)), sends(virtual, (0, 9)), sends(virtual, (0, 3))]
    world.run(server, *balls).happened((5, 3, 0))
    assert [(row["party"], row["bytes"], row["outcome"]) for row in world.events("transfer")] == [
        (2, 0, "lost"),
        (1, 2, "lost"),
        (3, 3, "done"),
    ]


@EVERY
def test_a_party_that_is_shut_neither_sends_nor_receives(virtual, network) -> None:
    world = virtual(2, network=network, links={1: virtual.Link(latency=DRAWN)})

    async def server(node):
        node.start(receives(virtual, world, 3)(node))
        await node.sleep(1.5)
        world.transport.shut(1)
        await node.send(1, virtual.ball(3))
        await node.sleep(2)
        world.transport.open(1)
        await node.sleep(9)

    world.run(server, sends(virtual, (0, 1), (2, 1), (3, 1), (4, 1)), sends(virtual, (2, 1)))
    rows = [row for row in world.events("transfer") if row["outcome"] == "lost"]
    assert [(row["party"], row["start"], row["end"], row["bytes"]) for row in rows] == [
        (0, 1.5, 1.5, 0),
        (1, 2, 2, 0),
        (1, 3, 3, 0),
    ]
    assert [entry for _, entry in world.entries] == [(1, 0), (2, 0), (1, 3)]
    # Messages are numbered as they are sent; the lost ones drew no latency.
    assert [row["index"] for row in world.events("latency.client-1")] == [0, 1]
    assert sorted(row["index"] for row in world.events("transfer") if row["party"] == 1) == [0, 1, 2, 3]


@EVERY
def test_a_matrix_adds_its_latency_to_that_of_the_links(virtual, network, tmp_path) -> None:
    file = tmp_path / "latency.csv"
    file.write_text("0,1,2\n3,0,4\n5,6,0\n")
    matrix = LatencyMatrix(file=str(file), unit="s")
    links = {1: virtual.Link(latency=0.5)}
    world = virtual(2, network=network.model_copy(update={"latency": matrix}), links=links)

    async def server(node):
        await node.send(1, virtual.ball())
        await node.send(2, virtual.ball())
        await receives(virtual, world, 2)(node)

    async def client(node):
        await receives(virtual, world, 1)(node)
        await node.send(3 - node.party, virtual.ball(round=node.party))
        await node.send("server", virtual.ball())
        await receives(virtual, world, 1)(node)

    world.run(server, client, client)
    drawn = {row["kind"]: (row["drawn"], row["end"] - row["start"]) for row in world.events("latency")}
    assert drawn == {
        "latency.server→client-1": (1.5, 1.5),
        "latency.server→client-2": (2.0, 2.0),
        "latency.client-1→server": (3.5, 3.5),
        "latency.client-2→server": (5.0, 5.0),
        "latency.client-1→client-2": (4.5, 4.5),
        "latency.client-2→client-1": (6.5, 6.5),
    }


@EVERY
def test_clients_send_to_each_other_over_every_network(tiny, network) -> None:
    """Everybody to everybody, as coded protocols do: each link carries three bytes each way at a byte a second."""
    world = tiny(4, network=network, links={m: tiny.Link(up=BYTE_A_SECOND, down=BYTE_A_SECOND) for m in range(1, 5)})

    async def client(node):
        for other in node.clients:
            if other != node.party:
                await node.send(other, tiny.ball(1))
        await node.gather("ball", senders=[other for other in node.clients if other != node.party])
        world.log("all here")

    world.run(tiny.idle, *[client] * 4)
    assert (world.recorder.bytes_peer, world.recorder.bytes_up, world.recorder.bytes_down) == (12, 0, 0)
    assert len(world.entries) == 4
    if not tiny.real:
        ends = {"dedicated": 1, "fair": 3}.get(network.kind)
        assert ends is None or {time for time, _ in world.entries} == {ends}
        assert max(time for time, _ in world.entries) >= (1 if network.kind == "dedicated" else 3)


@EVERY
@pytest.mark.parametrize(
    ("steps", "size"), [([[0, 5], [9.7, 25], [9.7 + 6.7, 0]], 27), ([[0, 15], [7.2, 86], [7.2 + 6.0, 0]], 78)]
)
def test_rounding_does_not_keep_the_last_trace_of_a_message_from_arriving(virtual, network, steps, size) -> None:
    """All bits are through by the time at which the link stops, but for what rounding leaves of them."""
    world = virtual(1, network=network, links={1: virtual.Link(up=steps)})
    world.run(receives(virtual, world, 1), sends(virtual, (0, size))).happened((round(steps[-1][0], 9), 1, 0))
