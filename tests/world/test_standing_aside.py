"""Messages to or from a party that is away: they stand aside, against timelines worked out by hand.

A link of 8 bit/s moves a byte a second.
"""

from __future__ import annotations

from typing import Any

import pytest

from vflsim.timing.availability import Intervals

BYTE_A_SECOND = 8.0


def away(*times: float) -> Intervals:
    """Away from the first time to the second, from the third to the fourth, …"""
    return Intervals(down=tuple(zip(times[::2], times[1::2], strict=True)), interrupted="resumed")


def arrivals(
    virtual: Any,
    network: str,
    messages: list[tuple[float, int, int, int]],
    links: dict[int, dict[str, float]],
    gone: dict[int, Intervals],
    stop_at: float = 99.0,
) -> list[float | None]:
    """Return when each message (sent at, from, to, bytes) arrives; None: not by ``stop_at``."""
    world = virtual(
        4,
        network=getattr(virtual, network)(),
        links={party: virtual.Link(**link) for party, link in links.items()},
        availability=gone,
    )
    ends: dict[int, float] = {}

    def deliver(place: int) -> Any:
        return lambda message: ends.setdefault(place, world.world.now())

    for place, (time, sender, receiver, size) in enumerate(messages):
        ball = virtual.ball(size, round=place)
        ball.sender, ball.receiver, ball.sent = sender, receiver, time
        world.world.after(
            time, lambda ball=ball, size=size, place=place: world.transport.send(ball, size, deliver(place))
        )

    async def idle(node: Any) -> None:
        await node.sleep(999)

    world.run(*[idle] * 5, stop_at=stop_at)
    world.transport.close()
    return [ends.get(place) for place in range(len(messages))]


CASES: dict[str, tuple[list[Any], dict[int, Any], dict[int, Any], dict[str, list[float]]]] = {
    "a receiver comes back after the other message has arrived": (
        [(0, 0, 1, 2), (0, 0, 2, 2)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(1, 5)},
        {"Fifo": [6, 3], "Fair": [6.5, 2.5], "Dedicated": [6, 2]},
    ),
    "and before: it takes the link from nobody": (
        [(0, 0, 1, 2), (0, 0, 2, 2)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(1, 2)},
        {"Fifo": [4, 3], "Fair": [4, 3], "Dedicated": [3, 2]},
    ),
    "a sender comes back after": (
        [(0, 1, 0, 2), (0, 2, 0, 2)],
        {0: {"down": BYTE_A_SECOND}},
        {1: away(1, 5)},
        {"Fifo": [6, 3], "Fair": [6.5, 2.5], "Dedicated": [6, 2]},
    ),
    "a sender comes back before": (
        [(0, 1, 0, 2), (0, 2, 0, 2)],
        {0: {"down": BYTE_A_SECOND}},
        {1: away(1, 2)},
        {"Fifo": [4, 3], "Fair": [4, 3], "Dedicated": [3, 2]},
    ),
    "both ends are away in turn": (
        [(0, 1, 2, 4)],
        {1: {"up": BYTE_A_SECOND}},
        {1: away(1, 3), 2: away(2, 5)},
        {"Fifo": [8], "Fair": [8], "Dedicated": [8]},
    ),
    "two receivers are away": (
        [(0, 0, 1, 2), (0, 0, 2, 2), (0, 0, 3, 2)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(1, 4), 2: away(2, 6)},
        {"Fifo": [5, 7, 4], "Dedicated": [5, 2, 2]},
    ),
    "away from the start": (
        [(0, 0, 1, 1), (0, 0, 2, 2)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(0, 9)},
        {"Fifo": [10, 2], "Fair": [10, 2], "Dedicated": [10, 2]},
    ),
    "two come back at one instant: they keep their order": (
        [(0, 0, 1, 2), (0, 0, 2, 2), (0, 0, 3, 1)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(0, 3), 2: away(0, 3)},
        {"Fifo": [5, 7, 1], "Fair": [7, 7, 1], "Dedicated": [5, 5, 1]},
    ),
    "one that comes back keeps its place before those that wait": (
        [(0, 0, 1, 2), (0, 0, 2, 2), (0.5, 0, 3, 1)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(1, 2)},
        {"Fifo": [4, 3, 5]},
    ),
    "one that is sent as a party comes back overtakes nobody": (
        [(0, 0, 1, 2), (3, 0, 2, 1)],
        {0: {"up": BYTE_A_SECOND}},
        {1: away(0, 3)},
        {"Fifo": [5, 6]},
    ),
    "a receiver that is slower than its sender": (
        [(0, 0, 1, 2), (0, 0, 2, 2)],
        {0: {"up": 2 * BYTE_A_SECOND}, 1: {"down": BYTE_A_SECOND}},
        {},
        {"Fifo": [2, 3], "Fair": [2, 2], "Dedicated": [2, 1]},
    ),
    "a receiver that is busy with another sender": (
        [(0, 0, 3, 4), (1, 1, 3, 2), (1, 1, 2, 1)],
        {party: {"up": BYTE_A_SECOND, "down": BYTE_A_SECOND} for party in range(4)},
        {},
        {"Fifo": [4, 6, 2]},
    ),
    "a sender that becomes free passes over one whose receiver is busy": (
        [(0, 0, 3, 4), (0, 1, 0, 2), (0, 1, 3, 2), (0, 1, 2, 1)],
        {party: {"up": BYTE_A_SECOND, "down": BYTE_A_SECOND} for party in range(4)},
        {},
        {"Fifo": [4, 2, 6, 3]},
    ),
    "a link at rate 0, as a party that is away": (
        [(0, 0, 1, 2), (0, 0, 2, 2)],
        {0: {"up": BYTE_A_SECOND}, 1: {"down": [[0, 8], [1, 0], [5, 8]]}},
        {},
        {"Fifo": [6, 3], "Fair": [6.5, 2.5], "Dedicated": [6, 2]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "network"), [(case, network) for case in CASES for network in CASES[case][3]])
def test_a_message_whose_party_is_away_stands_aside(virtual, case: str, network: str) -> None:
    messages, links, gone, expected = CASES[case]
    assert arrivals(virtual, network, messages, links, gone) == expected[network]


@pytest.mark.parametrize("network", ["Fifo", "Fair", "Dedicated"])
def test_what_is_through_of_a_message_that_stands_aside_counts(virtual, network) -> None:
    """One byte by 1, and half a byte more from 5 to 5.5; or one alone, if the run ends at 4."""
    for stop_at, through in ((4.0, 1), (6.5, 2)):
        world = virtual(
            1,
            network=getattr(virtual, network)(),
            links={0: virtual.Link(up=BYTE_A_SECOND)},
            availability={1: away(1, 5)},
        )

        async def server(node):
            await node.send(1, virtual.ball(9))
            await node.sleep(999)

        world.run(server, virtual.idle, stop_at=stop_at)
        (row,) = world.events("transfer.ball")
        assert (row["start"], row["end"], row["bytes"], row["outcome"]) == (0, stop_at, through, "unfinished")


def test_a_message_that_moved_before_it_was_to_be_looked_at_can_be_abandoned(virtual: Any) -> None:
    """Rounding puts the look at what waits for client 1 an ulp after it is back; another message comes just then."""
    sent, back = 1.2, 3.9
    assert sent + (back - sent) > back
    world = virtual(
        2, network=virtual.Fifo(), links={0: virtual.Link(up=BYTE_A_SECOND)}, availability={1: away(1, back)}
    )
    ended: list[int] = []

    def send(receiver: int) -> Any:
        ball = virtual.ball(2, round=receiver)
        ball.sender, ball.receiver, ball.sent = 0, receiver, world.world.now()
        return world.transport.send(ball, 2, lambda message: ended.append(receiver))

    waiting: list[Any] = []
    world.world.at(sent, lambda: waiting.append(send(1)))
    world.world.at(back, lambda: (send(2), world.transport.abandon(waiting[0])))

    async def idle(node: Any) -> None:
        await node.sleep(9)

    world.run(*[idle] * 3, stop_at=8)
    world.transport.close()
    assert ended == [2]
