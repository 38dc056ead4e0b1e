"""What only real time has: threads, a clock of its own, a speed."""

from __future__ import annotations

import threading
import time

import pytest

from vflsim.errors import DisconnectedError, RunError
from vflsim.timing.availability import Intervals


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


def test_in_real_time_the_clock_stands_still_during_a_turn(real) -> None:
    world = real(1)

    async def server(node):
        await node.sleep(1)
        before = world.world.now()
        time.sleep(0.01)
        assert world.world.now() == before
        await node.sleep(0)
        assert world.world.now() > before

    world.run(server)


def test_in_real_time_a_receive_ends_with_its_sender_even_if_that_is_back_before_anybody_looks(patient) -> None:
    world = patient(1, availability={1: Intervals(down=((1.0, 1.5),), interrupted="lost")})

    async def server(node):
        with pytest.raises(DisconnectedError, match="client 1 went down before it sent 'halt'"):
            await node.recv("halt", sender=1)
        assert not node.down
        world.log("answered")

    async def client(node):
        try:
            await node.sleep(5)
        finally:
            world.world.pass_time(1)  # the end of the outage is due before the server's turn

    world.run(server, client).happened((1, "answered"))


def test_in_real_time_an_outage_that_ends_in_the_turn_of_the_runs_end_is_recorded_once(patient) -> None:
    world = patient(1, availability={1: Intervals(down=((1.0, 1.5),), interrupted="lost")})

    async def server(node):
        await node.sleep(1.2)
        world.world.pass_time(1)
        world.world.finish("here")

    async def evaluate() -> None:
        world.shared.close()
        for _ in range(3):
            await world.world.breathe()

    world._last = evaluate
    world.run(server, patient.idle)
    assert [event["outcome"] for event in world.events("outage")] == ["unfinished"]


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
