"""A party's processor: one computation at a time, first come, first served."""

from __future__ import annotations

import itertools
import math

import pytest

from vflsim.errors import RunError
from vflsim.timing.compute import Flops
from vflsim.timing.delays import Exponential


def test_a_party_computes_one_thing_at_a_time_in_the_order_asked(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))

    async def beside(node, name, after):
        await node.sleep(after)
        await node.compute(tiny.work(name, 1))
        world.log(name)

    async def client(node):
        await node.together(beside(node, "a", 0), beside(node, "b", 0.5), beside(node, "c", 1))

    world.run(tiny.idle, client).happened((2, "a"), (4, "b"), (6, "c"))
    rows = world.events("compute")
    assert all(early["end"] <= late["start"] for early, late in itertools.pairwise(rows))
    if not tiny.real:
        assert [(row["start"], row["end"]) for row in rows] == [(0, 2), (2, 4), (4, 6)]


def test_a_newcomer_does_not_jump_the_queue_in_the_instant_of_a_hand_over(virtual) -> None:
    world = virtual(1, compute=virtual.constant(2))

    async def loop(node, name):
        for _ in range(2):
            await node.compute(virtual.work(name, 1))
            world.log(name)

    async def client(node):
        node.start(loop(node, "a"))
        node.start(loop(node, "b"))
        await node.sleep(9)

    world.run(virtual.idle, client).happened((2, "a"), (4, "b"), (6, "a"), (8, "b"))


def test_parties_compute_side_by_side(tiny) -> None:
    world = tiny(2, compute=tiny.constant(2))

    async def client(node):
        await node.sleep(node.party)
        await node.compute(tiny.work("work", node.party))
        world.log(node.party)

    world.run(tiny.idle, client, client).happened((3, 1), (4, 2))


def test_a_computation_hands_back_what_the_operation_promises_after_it_ran(tiny) -> None:
    world = tiny(1)
    ran = []

    async def client(node):
        result = await node.compute(tiny.work("work", 1, lambda: ran.append(world.world.now()), result="promise"))
        assert len(ran) == 1
        assert ran[0] >= 1 if not tiny.real else ran[0] > 0
        world.log(result)

    world.run(tiny.idle, client).happened((1, "promise"))


def test_an_operation_of_several_units_takes_as_many_times_as_long(tiny) -> None:
    world = tiny(1)

    async def client(node):
        await node.compute(tiny.work("work", 1, units=2.5))
        world.log("done")

    world.run(tiny.idle, client).happened((2.5, "done"))


def test_flops_over_the_rate_is_the_time_and_the_jitter_is_what_is_drawn(virtual) -> None:
    world = virtual(1, compute=Flops(rate=10.0, jitter=virtual.constant(2.0)))

    async def client(node):
        await node.compute(virtual.work("work", 1, rows=3, cost=lambda kind, rows: 5.0 * rows))
        world.log("done")

    world.run(virtual.idle, client).happened((3, "done"))
    assert world.events("compute.work")[0]["drawn"] == 2.0


def test_flops_are_not_counted_where_the_time_is_sampled(tiny) -> None:
    def never(kind: str, rows: int) -> float:
        raise AssertionError("needless work")

    async def client(node):
        await node.compute(tiny.work("work", 1, cost=never))

    tiny(1, compute=tiny.constant(0.1)).run(tiny.idle, client)


@pytest.mark.parametrize("error", [ValueError("bad shape"), MemoryError("too big")])
def test_an_operation_that_fails_is_blamed_on_its_party(tiny, error) -> None:
    def fail() -> None:
        raise error

    async def client(node):
        await node.compute(tiny.work("embed", 1, fail))

    with pytest.raises(RunError, match=r"client-1, embed, round 0 at 1\S* s: embed failed: ") as caught:
        tiny(1).run(tiny.idle, client)
    assert caught.value.__cause__ is error


def test_completed_work_counts_and_abandoned_work_does_not(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))
    seen = []
    world.shared.progressed = lambda: seen.append(world.recorder.updates)

    async def client(node):
        await node.compute(tiny.work("step", 1, counts="update"))
        async with node.until("halt"):
            await node.compute(tiny.work("step", 1, counts="update"))
        await node.compute(tiny.work("embed", 1))

    async def server(node):
        await node.sleep(3)
        await node.send(1, tiny.Halt())

    world.run(server, client)
    assert (world.recorder.updates, seen) == (1, [1])


def test_what_is_under_way_at_the_end_is_unfinished(tiny) -> None:
    world = tiny(1, compute=tiny.constant(5), upload=tiny.constant(5), links={1: tiny.Link(up=8.0)})

    async def beside(node):
        await node.upload("server", tiny.ball())

    async def client(node):
        node.start(beside(node))
        await node.send("server", tiny.ball(5))
        await node.compute(tiny.work("embed", 1))

    world.run(tiny.idle, client, stop_at=2, until_all_end=False)
    rows = {row["kind"]: row for row in world.events()}
    assert {row["outcome"] for row in rows.values()} == {"unfinished"}
    assert set(rows) == {"compute.embed", "upload.ball", "transfer.ball"}
    if not tiny.real:
        assert all(row["end"] == 2 for row in rows.values())
        assert world.recorder.bytes_up == rows["transfer.ball"]["bytes"] == 2
    assert world.reason == "time"


def test_the_draw_of_a_computation_is_recorded_as_drawn(virtual) -> None:
    world = virtual(1, compute=Exponential(mean=1.0))

    async def client(node):
        await node.sleep(0.1)
        for _ in range(3):
            await node.compute(virtual.work("embed", 1, units=3.0))

    world.run(virtual.idle, client)
    rows = world.events("compute.embed")
    assert [row["index"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["end"] - row["start"] == pytest.approx(3 * row["drawn"], rel=1e-12)
        assert not math.isnan(row["drawn"])


def test_workers_of_a_party_have_a_processor_each(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))

    async def client(node):
        worker = node.worker()

        async def twice(its, name):
            for turn in (1, 2):
                await its.compute(tiny.work(f"{name}{turn}", 1))
                world.log(f"{name}{turn}")

        await node.together(twice(node, "a"), twice(worker, "b"))

    world.run(tiny.idle, client).happened((2, "a1"), (2, "b1"), (4, "a2"), (4, "b2"))
