"""A server that handles so many messages at a time: against timelines worked out by hand, on every network.

A link of 8 bit/s moves a byte a second.
"""

from __future__ import annotations

from typing import Any

import pytest

from vflsim.timing.availability import Intervals

BYTE_A_SECOND = 8.0
NETWORKS = ("Fifo", "Fair", "Dedicated")
SERVER: dict[int, dict[str, Any]] = {0: {"up": BYTE_A_SECOND, "down": BYTE_A_SECOND}}


def times(
    virtual: Any,
    network: str,
    slots: int | None,
    messages: list[tuple[float, int, int, int]],
    links: dict[int, dict[str, Any]] = SERVER,
    away: tuple[float, ...] = (),
    abandoned: dict[int, float] | None = None,
) -> list[tuple[float, float] | None]:
    """Return from when to when each message (sent at, from, to, bytes) moves; None: it does not arrive.

    Client 1 is ``away`` from the first of these times to the second; messages are ``abandoned`` at a time.
    """
    gone = {1: Intervals(down=(away,), interrupted="resumed")} if away else {}
    world = virtual(
        3,
        network=getattr(virtual, network)(),
        links={party: virtual.Link(**link) for party, link in links.items()},
        availability=gone,
        concurrency=slots,
    )

    def send(place: int, ball: Any, size: int) -> None:
        transfer = world.transport.send(ball, size, lambda message: None)
        if place in (abandoned or {}):
            world.world.after(abandoned[place] - ball.sent, lambda: world.transport.abandon(transfer))

    for place, (time, sender, receiver, size) in enumerate(messages):
        ball = virtual.ball(size, round=place)
        ball.sender, ball.receiver, ball.sent = sender, receiver, time
        world.world.after(time, lambda place=place, ball=ball, size=size: send(place, ball, size))

    async def idle(node: Any) -> None:
        await node.sleep(999)

    world.run(*[idle] * 4, stop_at=99)
    world.transport.close()
    rows = {row["round"]: row for row in world.events("transfer.ball") if row["outcome"] == "done"}
    return [(rows[k]["start"], rows[k]["end"]) if k in rows else None for k in range(len(messages))]


UPLOADS = [(0, 1, 0, 2), (0, 2, 0, 2), (0, 3, 0, 2)]


@pytest.mark.parametrize(
    ("network", "slots", "expected"),
    [
        ("Fair", None, [(0, 6), (0, 6), (0, 6)]),
        ("Fair", 1, [(0, 2), (2, 4), (4, 6)]),
        ("Fair", 2, [(0, 4), (0, 4), (4, 6)]),
        ("Fair", 3, [(0, 6), (0, 6), (0, 6)]),
        ("Fifo", None, [(0, 2), (2, 4), (4, 6)]),
        ("Fifo", 1, [(0, 2), (2, 4), (4, 6)]),
        ("Fifo", 2, [(0, 2), (2, 4), (4, 6)]),
        ("Dedicated", None, [(0, 2), (0, 2), (0, 2)]),
        ("Dedicated", 1, [(0, 2), (2, 4), (4, 6)]),
        ("Dedicated", 2, [(0, 2), (0, 2), (2, 4)]),
    ],
)
def test_three_uploads_at_once(virtual, network: str, slots: int | None, expected: list[Any]) -> None:
    assert times(virtual, network, slots, UPLOADS) == expected


@pytest.mark.parametrize("network", NETWORKS)
def test_messages_from_the_server_take_slots_like_those_to_it(virtual, network: str) -> None:
    both = [(0, 0, 1, 2), (0, 2, 0, 2)]
    assert times(virtual, network, None, both) == [(0, 2), (0, 2)]
    assert times(virtual, network, 1, both) == [(0, 2), (2, 4)]


@pytest.mark.parametrize("network", NETWORKS)
def test_messages_between_clients_take_none(virtual, network: str) -> None:
    links = SERVER | {2: {"up": BYTE_A_SECOND}}
    sent = [(0, 1, 0, 2), (0, 2, 3, 2), (0, 3, 0, 2)]
    assert times(virtual, network, 1, sent, links) == [(0, 2), (0, 2), (2, 4)]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("away", "expected"),
    [
        ((1, 2), [(0, 6), (1, 3), (6, 7)]),  # back while another has the slot: it waits in its old place
        ((1, 3), [(0, 6), (1, 3), (6, 7)]),  # as the other ends
        ((1, 5), [(0, 8), (1, 3), (3, 4)]),  # after all others
        ((0, 2), [(2, 6), (0, 2), (6, 7)]),  # away from the start, and back as the other ends
        ((0, 5), [(5, 9), (0, 2), (2, 3)]),
    ],
)
def test_a_message_that_stands_aside_gives_its_slot_back(virtual, network: str, away: Any, expected: list[Any]) -> None:
    sent = [(0, 1, 0, 4), (0, 2, 0, 2), (0, 3, 0, 1)]
    assert times(virtual, network, 1, sent, away=away) == expected


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("sender", [0, 2])
def test_messages_for_a_client_that_comes_back_arrive_whatever_is_rounded(virtual, network: str, sender: int) -> None:
    """For the second message, the time of the return is rounded up: the first lets it move before."""
    back, later = 0.9, 0.3
    assert later + (back - later) > back
    sent = [(0, sender, 1, 2), (later, sender, 1, 2)]
    fast = {0: {"up": 1e18, "down": 1e18}}
    found = times(virtual, network, 2, sent, links=fast, away=(0, back))
    assert [message and message[1] for message in found] == pytest.approx([back, back])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_link_at_rate_0_takes_no_slot(virtual, network: str) -> None:
    links = SERVER | {1: {"up": [[0, 0], [9, BYTE_A_SECOND]]}}
    assert times(virtual, network, 1, UPLOADS, links) == [(9, 11), (0, 2), (2, 4)]


@pytest.mark.parametrize("network", NETWORKS)
def test_abandoned_messages_leave_their_slot_and_the_queue(virtual, network: str) -> None:
    assert times(virtual, network, 1, UPLOADS, abandoned={0: 1.0, 1: 0.5}) == [None, None, (1, 3)]


@pytest.mark.parametrize("network", NETWORKS)
def test_an_abandoned_message_that_stands_aside_does_not_come_back(virtual, network: str) -> None:
    found = times(virtual, network, 1, UPLOADS, away=(1, 2), abandoned={0: 1.5})
    assert found == [None, (1, 3), (3, 5)]


@pytest.mark.parametrize("network", NETWORKS)
def test_of_latencies_that_end_at_one_instant_the_message_sent_first_goes_first(virtual, network: str) -> None:
    links = SERVER | {1: {"latency": 1.0}, 2: {"latency": 2.0}}
    assert times(virtual, network, 1, [(1, 1, 0, 2), (0, 2, 0, 2)], links) == [(4, 6), (2, 4)]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_bytes_that_are_through_count_where_a_message_has_given_its_slot_back(virtual, network: str) -> None:
    world = virtual(
        1,
        network=getattr(virtual, network)(),
        links={0: virtual.Link(up=BYTE_A_SECOND)},
        availability={1: Intervals(down=((1.5, 5),), interrupted="resumed")},
        concurrency=1,
    )

    async def server(node: Any) -> None:
        await node.send(1, virtual.ball(9))
        await node.sleep(999)

    world.run(server, virtual.idle, stop_at=4.0)
    (row,) = world.events("transfer.ball")
    assert (row["start"], row["end"], row["bytes"], row["outcome"]) == (0, 4.0, 1, "unfinished")


@pytest.mark.parametrize("network", NETWORKS)
def test_slots_in_virtual_and_in_real_time(tiny, network: str) -> None:
    """The first upload has the only slot, so the short second one arrives after it."""
    world = tiny(2, network=getattr(tiny, network)(), links={0: tiny.Link(down=BYTE_A_SECOND)}, concurrency=1)

    async def server(node: Any) -> None:
        for _ in range(2):
            message = await node.recv("ball")
            world.log(message.sender)

    async def first(node: Any) -> None:
        await node.send("server", tiny.ball(3))

    async def second(node: Any) -> None:
        await node.sleep(1)
        await node.send("server", tiny.ball(1))

    world.run(server, first, second).happened((3, 1), (4, 2))
