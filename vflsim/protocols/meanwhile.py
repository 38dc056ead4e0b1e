"""Work that a party does while it waits for something else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from vflsim.learning.execution.operations import Operation
from vflsim.world.node import Node

T = TypeVar("T")


async def while_waiting(
    node: Node, await_it: Callable[[], Coroutine[Any, Any, T]], next_operation: Callable[[], Operation[Any] | None]
) -> T:
    """Return what the coroutine that ``await_it`` makes gives; until it is there, compute one operation after another.

    ``next_operation`` makes the next one, or returns None when there is nothing to do. An operation under way
    when the coroutine ends is finished first.
    """
    found: list[T] = []

    async def wait() -> None:
        found.append(await await_it())

    async def work() -> None:
        while not found and (operation := next_operation()) is not None:
            await node.compute(operation)

    await node.together(wait(), work())
    return found[0]
