"""Visits between two events of virtual time: they change nothing."""

from __future__ import annotations

import threading

import pytest

from vflsim.errors import DeadlockError
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.world.virtual import VirtualWorld


def world_of(steps: int = 20) -> tuple[VirtualWorld, list[float]]:
    """A world whose only task sleeps so often, and when it woke up."""
    world, woke = VirtualWorld(ImmediateExecutor()), []

    async def sleeper() -> None:
        for _ in range(steps):
            await world.pause(1.0, "morning")
            woke.append(world.now())
        world.finish("slept")

    world.spawn(sleeper(), "sleeper", 1)
    return world, woke


@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_a_visitor_comes_after_so_many_events(after: int) -> None:
    world, woke = world_of()
    came: list[tuple[int, int]] = []
    world.visit(lambda: came.append((world.events, len(woke))), after)
    assert world.run() == "slept"
    assert came == [(after, max(0, after - 1))]
    assert woke == [float(n) for n in range(1, 21)]
    assert world.events == world_of_events()


def world_of_events() -> int:
    world, _ = world_of()
    world.run()
    return world.events


def test_a_visitor_who_is_late_comes_at_once_and_may_send_for_another() -> None:
    world, _ = world_of()
    came: list[int] = []

    def first() -> None:
        came.append(world.events)
        world.visit(lambda: came.append(world.events), 3)

    world.visit(first, 8)
    world.run()
    assert came == [8, 8]


def test_nobody_comes_once_the_run_has_ended() -> None:
    world, _ = world_of(3)
    came: list[int] = []
    world.visit(lambda: came.append(world.events), 1000)
    world.run()
    assert came == []


def test_a_visitor_can_be_sent_for_from_within_an_event_and_from_another_thread() -> None:
    world, woke = world_of(5)
    came: list[float] = []
    world.after(2.5, lambda: world.visit(lambda: came.append(world.now())))

    def from_outside() -> None:
        thread = threading.Thread(target=world.visit, args=(lambda: came.append(world.now()),))
        thread.start()
        thread.join()

    world.after(3.5, from_outside)
    world.run()
    assert came == [2.5, 3.5]
    assert woke == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_a_visitor_raises_ends_the_run_and_leaves_no_coroutine() -> None:
    world, _ = world_of()

    def interrupt() -> None:
        raise KeyboardInterrupt

    world.visit(interrupt, 4)
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert not world._tasks


def test_a_deadlock_is_still_one_with_a_visitor_to_come() -> None:
    world = VirtualWorld(ImmediateExecutor())

    async def waiting() -> None:
        await world.signal("for ever")

    world.spawn(waiting(), "somebody", 1)
    world.visit(lambda: None, 1000)
    with pytest.raises(DeadlockError, match="for ever"):
        world.run()
