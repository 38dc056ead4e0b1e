"""The world of one live party: what becomes of a computation that the end of the run finds under way."""

from __future__ import annotations

import select
import time
from typing import Any

import pytest

from vflsim.learning.execution.operations import Operation
from vflsim.remote.world import LiveWorld, precise_loop, timer_lateness


def ended_during(takes_s: float, ends_at: float, lasts_s: float) -> tuple[list[str], list[str]]:
    """Have the run end while a computation is under way; return what has run, and what the world tells of it."""
    loop = precise_loop()
    world, ran, left = LiveWorld(loop), list[str](), list[str]()

    def work() -> None:
        time.sleep(takes_s)
        ran.append("client_step")

    operation: Any = Operation("client_step", 1, work, None)
    world.on_leftover = lambda operation: left.append(operation.kind)

    async def compute() -> None:
        operation.at = 0, lasts_s
        world.until_work(operation, lasts_s)
        await world.perform(operation)

    def begin() -> None:
        world.spawn(compute(), "client-1", 1)
        world.after(ends_at, lambda: world.finish("done"))

    world.begin_at(loop.time(), begin)
    assert world.run() == "done"
    world.close()
    loop.close()
    return ran, left


@pytest.mark.parametrize("takes_s", [0.0, 0.4], ids=["it has run", "it runs"])
def test_a_computation_that_has_run_when_the_run_ends_is_told(takes_s: float) -> None:
    ran, left = ended_during(takes_s, ends_at=0.2, lasts_s=5.0)
    assert ran == left == ["client_step"]


def test_a_computation_that_was_over_before_is_none_that_was_left() -> None:
    assert ended_during(0.0, ends_at=0.4, lasts_s=0.01) == (["client_step"], [])


def test_the_lateness_of_timers_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, slow = select.select, 0.004

    def late(*arguments: Any) -> Any:
        ready = waits(*arguments)
        time.sleep(slow)
        return ready

    monkeypatch.setattr("vflsim.remote.world.select.select", late)
    usual, most = timer_lateness(times=3)
    assert slow * 0.9 < usual <= most
