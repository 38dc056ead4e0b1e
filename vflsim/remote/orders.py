"""Orders of a server: what it asks of clients in a live run, and what a client does of that by its own scenario."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from vflsim.protocol import Setting, party_name
from vflsim.remote.control import ControlError, EvaluateNow, Prepare, Start
from vflsim.remote.world import machine
from vflsim.scenario import Scenario
from vflsim.worlds import Conductor, errors_named, evaluated_splits, evaluates_wired

MOST_WAIT_S = 3_600
"""The longest that a run may begin after the order to begin it (s)."""


MOST_BESIDES = 3
"""Evaluations besides those at multiples of ``evaluate.every``: at the start, at the end, and one for rounding."""


APART_S = 60
"""By how much clocks of two machines may be apart, and a message late (s)."""


class StudyOrders:
    """The runs that a client takes part in: those of its scenario, each once.

    Where a mechanism protects embeddings, that holds for all processes of the client with the same ``parts``: two runs
    of one protocol and seed release the same embeddings under two noises, whose mean has less noise.
    """

    def __init__(self, scenario: Scenario, party: int, parts: Path) -> None:
        self._scenario, self._party, self._parts = scenario, party, parts
        self._runs = set[tuple[str, int]]()

    def folder(self, announced: Prepare) -> Path:
        """Return where the client writes its part of a run."""
        return self._parts / announced.protocol / f"seed-{announced.seed}"

    def begin(self, announced: Prepare) -> None:
        """Note a run. Raises ``ControlError`` for one that is not the scenario's, and for one that has been."""
        scenario, name, run = self._scenario, announced.protocol, (announced.protocol, announced.seed)
        what = f"the server announces a run of {name!r} with seed {announced.seed}"
        if name not in scenario.protocols or announced.seed not in scenario.seeds:
            seeds = ", ".join(map(str, scenario.seeds))
            raise ControlError(what, allowed=f"{', '.join(scenario.protocols)}; seeds {seeds}")
        if self._party not in scenario.participants_of(name):
            raise ControlError(what, allowed=f"protocols in which {party_name(self._party)} takes part")
        if run in self._runs or (announced.again and self._runs):
            raise ControlError(f"{what} again", allowed="each run once, and one that goes on only in a new process")
        self._runs.add(run)

    def release(self, announced: Prepare) -> None:
        """Note on disk that a run releases embeddings under noise.

        Raises ``ControlError`` if another run of this protocol and seed has, ``ResultsError`` if it cannot be noted.
        """
        folder = self.folder(announced)
        file = folder / f"{party_name(self._party)}.released.json"
        with errors_named(file):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with file.open("x", encoding="utf-8") as new:
                    json.dump({"run": announced.run}, new)
            except FileExistsError:
                if not announced.again:
                    raise ControlError(
                        f"{party_name(self._party)} has released embeddings of {announced.protocol!r} with seed "
                        f"{announced.seed} in another run, as {file} says",
                        allowed="one run: the mean of two has less noise, and their ε add up",
                        remedy="if both may be released, start the client with another --parts",
                    ) from None


class RunOrders:
    """What a client does in one run: one start, and the evaluations of its scenario, each once and in order.

    ``now`` gives the time of the client's loop (s). An evaluation shows the server embeddings of the evaluated rows
    without noise and without masks: so other rows, more evaluations, and those that leave out the codec are refused.
    """

    def __init__(self, scenario: Scenario, resolved: Setting, announced: Prepare, now: Callable[[], float]) -> None:
        protocol, every = scenario.protocols[announced.protocol].protocol, scenario.evaluate_of(announced.protocol)
        stop = scenario.stop_of(announced.protocol)
        self._announced, self._now, self._prepared = announced, now, now()
        self._splits, self._wired = evaluated_splits(resolved.data), evaluates_wired(protocol, resolved)
        self._every, self._costs_time = every.every, every.costs_time
        limit = {"seconds": stop.time, "rounds": stop.rounds, "updates": stop.updates}[self._every.unit]
        self._most = math.inf if limit is None else MOST_BESIDES + limit / self._every.amount
        self._number = 0
        self._began: float | None = None

    def start(self, order: Start) -> float:
        """Return the loop's time at the start of the run (s). Raises ``ControlError`` for an order to start otherwise.

        A clock that is ahead would have evaluations follow each other at once.
        """
        now = self._now()
        at = order.at if order.machine == machine() else now + order.in_s - order.since_s
        if self._began is not None:
            raise ControlError("the server starts the run a second time", allowed="one start")
        since = order.since_s if self._announced.again else 0.0
        if order.since_s != since or not self._prepared <= at + since <= now + MOST_WAIT_S:
            what = f"the server starts the run at {at - now:.6g} s from now, {order.since_s:g} s after its begin"
            raise ControlError(what, allowed=f"once the client was ready, within {MOST_WAIT_S} s, from its begin")
        self._began = at
        return at

    def evaluate(self, asked: EvaluateNow) -> None:
        """Note an evaluation. Raises ``ControlError`` for one that is not the scenario's."""
        what = f"the server asks for evaluation {asked.number} of {', '.join(asked.splits)}"
        if asked.splits != self._splits:
            raise ControlError(what, allowed=f"of {', '.join(self._splits)}, the rows that this scenario evaluates")
        if asked.wired != self._wired or not (asked.free or self._costs_time):
            how = f"{'with' if asked.wired else 'without'} the codec, {'outside' if asked.free else 'in'} time"
            raise ControlError(f"{what} {how}", allowed="as this scenario evaluates")
        first = self._announced.again and self._number == 0 < asked.number  # the former process answered others
        if asked.number != self._number + 1 and not first:
            raise ControlError(what, allowed=f"evaluation {self._number + 1}, each once")
        if asked.number > self._due():
            every = f"{self._every.amount:g} {self._every.unit}"
            raise ControlError(what, allowed=f"at most {self._due():.0f} until now, one every {every}")
        self._number = asked.number

    def _due(self) -> float:
        """Return how many evaluations there may have been until now."""
        if self._every.unit != "seconds":
            return self._most
        since = 0.0 if self._began is None else self._now() - self._began + APART_S
        return min(self._most, MOST_BESIDES + max(0.0, since) / self._every.amount)


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
