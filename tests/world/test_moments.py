"""What happens at one instant happens in the order of moments, whichever queue it waits in."""

from __future__ import annotations

import heapq
import threading
from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import DeadlockError, StandstillError
from vflsim.learning.execution.operations import ImmediateExecutor, TimingOnlyExecutor
from vflsim.world.kernel import Moment, World
from vflsim.world.virtual import VirtualWorld

MOMENTS = [moment for moment in Moment if moment not in (Moment.RESUME, Moment.COLLECT)]


def call(world: World, delay: float, moment: Moment, callback) -> None:
    """Have ``callback`` called; what takes no time and is first or last goes where coroutines and receives go."""
    if delay == 0 and moment is Moment.RESUME:
        world.soon(callback)
    elif delay == 0 and moment is Moment.COLLECT:
        world.at_end(callback)
    else:
        world.after(delay, callback, moment)


@st.composite
def programs(draw) -> list[list[tuple[int, float, Moment]]]:
    """What each call makes happen: (number of the call, delay, moment); calls cause later ones only, so all end."""
    size = draw(st.integers(2, 14))
    plan: list[list[tuple[int, float, Moment]]] = [[] for _ in range(size)]
    for number in range(1, size):
        delay = draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0]))
        moment = draw(st.sampled_from(list(Moment) if delay == 0 else MOMENTS))
        plan[draw(st.integers(0, number - 1))].append((number, delay, moment))
    return plan


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(plan=programs())
def test_any_program_runs_as_on_one_heap_of_time_moment_and_turn(plan) -> None:
    found: list[tuple[int, float]] = []
    world = VirtualWorld(TimingOnlyExecutor())

    def run(number: int) -> None:
        found.append((number, world.now()))
        for caused, delay, moment in plan[number]:
            call(world, delay, moment, partial(run, caused))

    world.after(0.0, lambda: run(0))
    with pytest.raises(DeadlockError):  # nothing is left to happen
        world.run()

    expected: list[tuple[int, float]] = []
    turn, heap = count(), [(0.0, Moment.EVENT, 0, 0)]
    next(turn)
    while heap:
        now, _, _, number = heapq.heappop(heap)
        expected.append((number, now))
        for caused, delay, moment in plan[number]:
            heapq.heappush(heap, (now + delay, moment, next(turn), caused))
    assert found == expected


def test_what_a_coroutine_does_on_waking_comes_before_the_instants_end(virtual) -> None:
    """Woken as the instant ends, it sends a message that takes no time: still of the instant, in party order."""
    world = virtual(3)

    async def server(node):
        for ball in await node.gather("ball", count=2):
            world.log("server", ball.sender)
            await node.send(ball.sender, virtual.ball())
        world.log("again", *[ball.sender for ball in await node.gather("ball", count=3)])

    async def client(node):
        await node.sleep(1)
        await node.send("server", virtual.ball())
        if node.party < 3:
            await node.recv("ball")
            world.log("client", node.party)
            await node.send("server", virtual.ball())

    world.run(server, client, client, client).happened(
        (1, "server", 1), (1, "server", 2), (1, "client", 1), (1, "client", 2), (1, "again", 1, 2, 3)
    )


def test_an_abandoned_pause_keeps_no_run_alive(virtual) -> None:
    world = virtual(1)

    async def client(node):
        async with node.until("halt"):
            await node.sleep(1000)
        await node.recv("ball")

    with pytest.raises(DeadlockError, match=r"client-1 waits for 'ball'"):
        world.run(virtual.halt_at(2.0), client)
    assert world.world.now() == 2


# --- pauses -----------------------------------------------------------------------------------------------------------


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


# --- visits -----------------------------------------------------------------------------------------------------------


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
