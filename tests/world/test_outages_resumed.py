"""Pauses: work, delays and transfers stand still while their party is down, and go on afterwards."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vflsim.timing.activation import Poisson, Schedule
from vflsim.timing.availability import Failure, Intervals


def down(*times: float) -> Intervals:
    """Down from the first time to the second, from the third to the fourth, …"""
    return Intervals(down=tuple(zip(times[::2], times[1::2], strict=True)), interrupted="resumed")


def spans(world: Any, kind: str) -> list[tuple[float, float, str]]:
    return [(e["start"], e["end"], e["outcome"]) for e in world.events(kind)]


async def patient(node) -> None:
    """A server that is there for 99 s."""
    await node.sleep(99)


def test_time_spent_down_does_not_count_for_work_delays_and_sleep(tiny) -> None:
    world = tiny(1, compute=tiny.constant(3.0), upload=tiny.constant(2.0), availability={1: down(1, 2, 6, 8, 9, 10)})

    async def client(node):
        await node.compute(tiny.work(party=1))  # 1 s, and 2 s from 2 on
        world.log("computed")
        await node.sleep(1)
        world.log("slept")
        await node.upload("server", tiny.ball())  # 1 s, and 1 s from 8 on
        world.log("uploaded")
        await node.sleep(2)  # from 10 on: what ends at the instant of an outage has ended
        world.log("slept")

    world.run(tiny.idle, client).happened((4, "computed"), (5, "slept"), (9, "uploaded"), (12, "slept"))
    if not tiny.real:
        assert spans(world, "compute") == [(0, 4, "done")]
        assert spans(world, "upload") == [(5, 9, "done")]
        assert spans(world, "outage") == [(1, 2, "done"), (6, 8, "done"), (9, 10, "done")]


def test_work_that_would_begin_while_down_begins_to_count_when_the_party_is_up(virtual) -> None:
    world = virtual(1, availability={1: down(0, 2)})

    async def client(node):
        world.log("begins")
        await node.sleep(0)
        await node.compute(virtual.work(party=1))
        world.log("computed")

    world.run(virtual.idle, client).happened((0, "begins"), (3, "computed"))


def test_a_transfer_stands_still_in_either_direction_and_its_latency_passes(virtual) -> None:
    link = virtual.Link(up=8.0, down=8.0, latency=1.0)  # a byte a second
    world = virtual(1, links={1: link}, availability={1: down(2, 5)})

    async def client(node):
        await node.send("server", virtual.ball(3))
        world.log("received", (await node.recv("ball")).arrived)

    async def server(node):
        await node.sleep(0.5)
        await node.send(1, virtual.ball(2))
        world.log("received", (await node.recv("ball")).arrived)

    world.run(server, client)
    assert sorted(world.entries) == [(6.5, ("received", 6.5)), (7.0, ("received", 7.0))]
    assert sorted(spans(world, "latency")) == [(0, 1, "done"), (0.5, 1.5, "done")]
    assert sorted(spans(world, "transfer")) == [(1, 7, "done"), (1.5, 6.5, "done")]


def test_a_message_that_comes_while_down_arrives_afterwards(tiny) -> None:
    world = tiny(1, availability={1: down(1, 3)})

    async def server(node):
        await node.sleep(2)
        await node.send(1, tiny.ball())

    async def client(node):
        await node.recv("ball")
        world.log("received")

    world.run(server, client).happened((3, "received"))


def test_an_immediate_activation_waits_until_the_party_is_up(tiny) -> None:
    world = tiny(1, availability={1: down(0, 2)})

    async def client(node):
        await node.activated()
        world.log("active")

    world.run(tiny.idle, client).happened((2, "active"))


@pytest.mark.parametrize(("busy", "taken"), [("skip", [1, 5, 7]), ("queue", [1, 4, 4, 4, 5, 7])])
def test_an_arrival_while_down_finds_its_party_busy(virtual, busy, taken) -> None:
    schedule = Schedule(times=(1, 2, 3, 3.5, 5, 7), busy=busy)
    world = virtual(1, activation=lambda party: schedule.process(0, party), availability={1: down(1.5, 4)})

    async def client(node):
        for _ in taken:
            await node.activated()
            world.log(node.now)

    world.run(virtual.idle, client)
    assert [what for _, (what,) in world.entries] == taken


def test_an_arrival_at_the_very_return_finds_its_party_up(virtual) -> None:
    schedule = Schedule(times=(2, 3, 4, 9))
    world = virtual(1, activation=lambda party: schedule.process(0, party), availability={1: down(1, 4)})

    async def client(node):
        await node.activated()

    world.run(virtual.idle, client)
    assert spans(world, "activation") == [(0, 4, "done")]


def test_poisson_arrivals_are_the_same_with_outages_and_those_while_down_are_lost(virtual) -> None:
    def taken(availability):
        process = Poisson(rate=5.0).process(3, 1)
        world = virtual(1, activation=lambda party: process, availability=availability)

        async def client(node):
            while True:
                await node.activated()

        world.run(patient, client, stop_at=20.0)
        return [(e["index"], e["end"]) for e in world.events("activation") if e["outcome"] == "done"]

    whole, gated = taken(None), taken({1: down(3, 6, 9.5, 11)})
    assert gated == [(k, t) for k, t in whole if not (3 <= t < 6 or 9.5 <= t < 11)]
    assert len(gated) < len(whole)


def test_an_outage_that_is_for_good_loses_what_is_in_flight(virtual) -> None:
    availability = Failure(at=2, repair=None, interrupted="resumed")
    world = virtual(2, compute=virtual.constant(3.0), availability={1: availability}, links={1: virtual.Link(up=8.0)})

    async def client(node):
        await node.send("server", virtual.ball(9))
        await node.compute(virtual.work(party=1))

    async def server(node):
        await node.sleep(1)
        await node.send(1, virtual.ball())
        await node.sleep(3)
        await node.send(1, virtual.ball())  # in nobody's way
        await node.send(2, virtual.ball())

    async def other(node):
        world.log((await node.recv("ball")).arrived)
        await node.recv("never")

    world.run(server, client, other, stop_at=4.0)
    assert spans(world, "compute") == [(0, 2, "lost")]
    assert [span for span in spans(world, "transfer") if span[2] == "lost"] == [(0, 2, "lost")]
    assert spans(world, "outage") == [(2, 4, "unfinished")]


def test_an_outage_that_is_for_good_frees_the_links_for_others(virtual) -> None:
    world = virtual(2, availability={1: Intervals(down=((1, 2), (3, math.inf)), interrupted="resumed")})

    async def client(node):
        await node.recv("never")

    async def server(node):
        await node.sleep(1.5)
        await node.send(1, virtual.ball())
        await node.sleep(2.5)
        await node.send(1, virtual.ball())
        await node.send(2, virtual.ball())

    async def other(node):
        world.log((await node.recv("ball")).arrived)

    async def end(node):
        await other(node)
        world.world.finish("enough")

    world.run(server, client, end).happened((4, 4.0))
    assert spans(world, "transfer") == [(1.5, 2, "done"), (4, 4, "lost"), (4, 4, "done")]


def test_a_receive_from_one_party_outlasts_a_pause(tiny) -> None:
    world = tiny(1, availability={1: down(1, 3)})

    async def server(node):
        await node.sleep(2)
        await node.back(1)
        await node.recv("ball", sender=1)
        world.log("received")

    async def client(node):
        await node.sleep(2)
        await node.send("server", tiny.ball())

    world.run(server, client).happened((4, "received"))
