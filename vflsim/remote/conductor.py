"""Control of a live run: evaluations that clients answer over their connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from typing_extensions import override

from vflsim.remote.control import EvaluateNow
from vflsim.worlds import Conductor


class LiveConductor(Conductor):
    """Evaluates and ends a live run: clients are asked over their connections, in order with the protocol's messages.

    ``ask`` has all clients answer an evaluation; ``start`` has all parties begin at one instant.
    Invariant: a client answers an evaluation with the weights that it has before it reads any message that the server
    has sent after the evaluation was due.
    """

    def __init__(
        self,
        ask: Callable[[EvaluateNow], None],
        start: Callable[[Callable[[], None]], None],
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._ask_clients, self._start_all = ask, start
        self._announced = 0

    @override
    def _begin(self, begin: Callable[[], None]) -> None:
        self._start_all(partial(super()._begin, begin))

    @override
    def _spawn_answering(self, free: bool) -> None:
        if self._announced != self._number:
            self._announce(self._number, free)

    def _announce(self, number: int, free: bool) -> None:
        self._announced = number
        self._ask_clients(EvaluateNow(number=number, splits=self._splits, free=free, wired=self._wired))

    @override
    def _on_progress(self) -> None:
        before = self._last_count
        super()._on_progress()
        if self._last_count != before and self._announced == self._number and not self._world.over:
            self._announce(self._number + 1, free=not self._every.costs_time)
