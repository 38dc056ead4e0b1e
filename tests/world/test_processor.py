"""A party's processor: one computation at a time, first come, first served."""

from __future__ import annotations

import math
import threading

import pytest

from vflsim.errors import RunError
from vflsim.timing.activation import Poisson
from vflsim.timing.compute import Flops
from vflsim.timing.delays import Exponential


def test_a_party_computes_one_thing_at_a_time_in_the_order_asked(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))

    async def beside(node, name):
        await node.compute(tiny.work(name, 1))
        world.log(name)

    async def client(node):
        for name in "abc":
            node.start(beside(node, name))
            await node.sleep(0.5)
        await node.sleep(6)

    world.run(tiny.idle, client).happened((2, "a"), (4, "b"), (6, "c"))
    rows = world.events("compute")
    assert all(early["end"] <= late["start"] for early, late in zip(rows, rows[1:], strict=False))
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
        await node.compute(virtual.work("work", 1, flops=lambda: 15.0))
        world.log("done")

    world.run(virtual.idle, client).happened((3, "done"))
    assert world.events("compute.work")[0]["drawn"] == 2.0


def test_flops_are_not_counted_where_the_time_is_sampled(tiny) -> None:
    def never() -> float:
        raise AssertionError("needless work")

    async def client(node):
        await node.compute(tiny.work("work", 1, flops=never))

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


# --- a free node ------------------------------------------------------------------------------------------------------


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


# --- real time --------------------------------------------------------------------------------------------------------


def test_in_real_time_a_party_computes_in_a_thread_of_its_own_in_order(real) -> None:
    world = real(2, compute=real.constant(0.01))
    threads: dict[int, set[int]] = {1: set(), 2: set()}
    order: dict[int, list[int]] = {1: [], 2: []}

    async def client(node):
        for k in range(5):

            def run(party=node.party, k=k) -> None:
                threads[party].add(threading.get_ident())
                order[party].append(k)

            await node.compute(real.work("embed", node.party, run))

    world.run(real.idle, client, client)
    assert order == {1: [0, 1, 2, 3, 4], 2: [0, 1, 2, 3, 4]}
    assert {len(used) for used in threads.values()} == {1}
    assert len(threads[1] | threads[2] | {threading.get_ident()}) == 3


def test_in_real_time_long_work_is_no_deadlock_and_others_go_on_meanwhile(real) -> None:
    world = real(2, compute=real.constant(0.0))
    may_end = threading.Event()

    async def first(node):
        await node.compute(real.work("embed", 1, lambda: may_end.wait(10)))
        world.log("first")

    async def second(node):
        await node.sleep(4)
        world.log("second")
        may_end.set()

    world.run(real.idle, first, second).happened((0, "second"), (0, "first"))


def test_in_real_time_an_abandoned_computation_that_has_begun_runs_to_its_end_unseen(real) -> None:
    world = real(1, compute=real.constant(0.0))
    may_end, ran = threading.Event(), []

    def run() -> None:
        may_end.wait(10)
        ran.append("begun")

    async def beside(node):
        async with node.until("halt"):
            await node.compute(real.work("embed", 1, run, counts="update"))
        world.log("abandoned")
        async with node.until("halt", round=2):
            await node.compute(real.work("embed", 1, lambda: ran.append("not begun")))
        may_end.set()

    async def server(node):
        for k in (1, 2):
            await node.sleep(1)
            await node.send(1, real.Halt(round=k))

    async def client(node):
        node.start(beside(node))
        await node.sleep(4)

    world.run(server, client).happened((1, "abandoned"))
    assert world.recorder.updates == 0
    assert ran == ["begun"]


def test_in_real_time_the_clock_stops_with_the_run(real) -> None:
    world = real(1)

    async def server(node):
        await node.sleep(1)

    world.run(server)
    assert world.world.now() == world.world.now() >= 1


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_an_error(real, speed) -> None:
    with pytest.raises(RunError, match="real-time speed"):
        type(real(1).world)(speed=speed)


def test_an_error_in_a_timers_callback_ends_the_run(tiny) -> None:
    world = tiny(1)

    def fail() -> None:
        raise ValueError("in a callback")

    async def server(node):
        await node.sleep(5)

    world.world.after(1, fail)
    with pytest.raises((RunError, ValueError), match="in a callback"):
        world.run(server)
