"""Waits for a time: a task uses one object for all of them, and verbs that let no time pass are limited."""

from __future__ import annotations

import pytest

from vflsim.errors import StandstillError
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.world.virtual import VirtualWorld


def test_an_abandoned_pause_does_not_end_the_next_one(virtual) -> None:
    world = virtual(1)

    async def client(node):
        async with node.until("halt"):
            await node.sleep(3)  # would end at 3, in the middle of the next one
        await node.sleep(5)
        world.log("awake")
        await node.sleep(1)
        world.log("again")

    world.run(virtual.halt_at(1.0), client).happened((6, "awake"), (7, "again"))


def test_tasks_pause_beside_each_other(virtual) -> None:
    world = virtual(1)

    async def beside(node):
        await node.sleep(2)
        world.log("beside")

    async def client(node):
        node.start(beside(node))
        await node.sleep(1)
        await node.sleep(2)
        world.log("main")

    async def server(node):
        await node.sleep(0)

    world.run(server, client).happened((2, "beside"), (3, "main"))


def test_a_task_that_has_ended_holds_no_pause_that_leads_back_to_it() -> None:
    world = VirtualWorld(TimingOnlyExecutor())

    async def sleeper() -> None:
        await world.pause(1.0, "morning")
        world.finish("slept")

    async def last() -> None:
        pass

    task = world.spawn(sleeper(), "sleeper", 1)
    world.run()
    world.conclude(last())
    assert (task.done, task.pause) == (True, None)


@pytest.mark.parametrize("verb", ["activated", "sleep", "send", "free"])
def test_verbs_that_let_no_time_pass_are_limited(virtual, monkeypatch, verb: str) -> None:
    monkeypatch.setattr("vflsim.world.virtual.STANDSTILL", 1000)
    world = virtual(1)

    async def server(node):
        await node.recv("never")

    async def client(node):
        free = node.free()
        for _ in range(1100):  # more than may be
            if verb == "activated":
                await node.activated()
            elif verb == "sleep":
                await node.sleep(0)
            elif verb == "send":
                await node.send("server", virtual.ball())
            else:
                await free.delay("encoding")
        await node.sleep(1)
        world.log("went on")

    with pytest.raises(StandstillError, match=r"without the clock moving"):
        world.run(server, client)


def test_a_cancelled_event_keeps_no_run_alive_and_does_not_happen() -> None:
    world, came = VirtualWorld(TimingOnlyExecutor()), []

    world.schedule(1.0, came.append, "early")
    world.schedule(2.0, came.append, "late")
    world.after(0.5, lambda: world.cancel("late"))
    world.after(3.0, lambda: world.finish("over"))
    assert world.run() == "over"
    assert came == ["early"]
