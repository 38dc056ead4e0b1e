"""What happens at one instant happens in the order of moments, whichever queue it waits in."""

from __future__ import annotations

import heapq
from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import DeadlockError
from vflsim.learning.execution.operations import TimingOnlyExecutor
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
