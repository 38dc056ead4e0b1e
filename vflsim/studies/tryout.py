"""Try out protocols from outside before they are believed: an evaluation and two rounds, with and without training."""

from __future__ import annotations

from typing import Any

from vflsim.errors import (
    BlindingError,
    BudgetError,
    DisconnectedError,
    NonFiniteError,
    NoProgressError,
    WeightBoundError,
)
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.deferred import DeferredExecutor
from vflsim.learning.executor import Executor, TimingOnlyExecutor
from vflsim.learning.operations import Operation
from vflsim.protocols import PROTOCOLS
from vflsim.scenario.checks import broken
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Recording, Scenario
from vflsim.scenario.problems import Problem, failure
from vflsim.scenario.stop import Every, Stop
from vflsim.simulation.endless import awaited_by
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.studies.calibrate import few_to_evaluate
from vflsim.studies.hopeless import HOPELESS
from vflsim.vocabulary.imported import origin
from vflsim.world.virtual import VirtualWorld

WALL_CLOCK_S = 2.0
"""Real seconds after which a trial with training ends without a verdict: rounds may be long."""
EVENTS, EVENTS_A_CLIENT = 1_000_000, 1_000
"""Events after which a trial ends."""
_LATER = (NonFiniteError, BudgetError, WeightBoundError, BlindingError, DisconnectedError, *HOPELESS)
"""Errors that follow from seeds, data and settings: of a run, not of a protocol's text. See ``refuse_hopeless``."""


def refuse_broken(scenario: Scenario, data: ScenarioData, timing_only: bool = False) -> None:
    """Raise ``ScenarioError`` for protocols that are not vflsim's own and fail in a trial; write nothing.

    Two rounds are awaited without training, and then, unless the study is ``timing_only``, trained and evaluated: on
    all training rows and few others.
    """
    problems = [
        problem
        for name, entry in scenario.protocols.items()
        if type(entry.protocol) not in PROTOCOLS
        for problem in _problems(scenario, name, data.of(scenario.training_of(name)), timing_only)
    ]
    if problems:
        raise failure(problems, scenario.document)


def _problems(scenario: Scenario, name: str, data: LoadedData, timing_only: bool) -> list[Problem]:
    """Return the first problem that a trial meets, if any."""
    stop, clients = scenario.stop_of(name), scenario.clients
    wanted = awaited_by(stop, scenario.evaluate_of(name))
    counted = Stop(rounds=2 if wanted != {"update"} else None, updates=2 if wanted != {"round"} else None)
    try:
        timed = _Limited(TimingOnlyExecutor(), clients)
        found = _problem(scenario, name, _trial(scenario, name, data, counted, timed), ends=_always_ends(stop))
        if not found and not timing_only:
            limits = Stop(rounds=2, wall_clock=WALL_CLOCK_S)
            trained = _Limited(DeferredExecutor(), clients)
            found = _problem(scenario, name, _trial(scenario, name, data, limits, trained), ends=True)
    except Exception as error:  # the user's code may raise anything
        found = [broken(name, error)]
    return found


class _Limited(VirtualWorld):
    """A world that ends after so many events: with an error if nobody has computed anything, else without a verdict."""

    def __init__(self, executor: Executor, clients: int) -> None:
        super().__init__(executor)
        self._computed = False
        self._most = EVENTS + EVENTS_A_CLIENT * clients
        self.visit(self._give_up, self._most)

    def perform(self, operation: Operation[Any]) -> None:
        """Queue the operation."""
        self._computed = True
        super().perform(operation)

    def _give_up(self) -> None:
        if not self._computed:
            what = f"{self._most:,} events, and no party has computed anything"
            raise NoProgressError(what, remedy="await node.compute(…) of the learners' operations")
        self.finish("limit")


def _always_ends(stop: Stop) -> bool:
    return stop.time is not None or stop.wall_clock is not None


def _trial(scenario: Scenario, name: str, data: LoadedData, stop: Stop, world: VirtualWorld) -> Outcome:
    """Run a protocol with the first seed until ``stop``, with an evaluation after each round."""
    entry = scenario.protocols[name].model_copy(update={"stop": None, "evaluate": None})
    tried = scenario.model_copy(update={
        "stop": stop,
        "evaluate": scenario.evaluate_of(name).model_copy(update={"every": Every(amount=1, unit="rounds")}),
        "record": Recording(tables="summary", views=scenario.record.views),
        "protocols": {**scenario.protocols, name: entry},
    })  # fmt: skip
    seed, timing_only = scenario.seeds[0], not world.executor.values
    return run_protocol(tried, name, seed, few_to_evaluate(data), world=world, timing_only=timing_only)


def _problem(scenario: Scenario, name: str, outcome: Outcome, ends: bool) -> list[Problem]:
    """Return the problem of a failed trial; none if the error is not the protocol's, or only without an end."""
    error = outcome.error
    if error is None or isinstance(error, _LATER) or (ends and isinstance(error, NoProgressError)):
        return []
    protocol = type(scenario.protocols[name].protocol).__name__
    what = f"{protocol} fails when it is tried out: " + (f"{error.where}: " if error.where else "") + error.what
    raised = "" if error.__cause__ is None else f"; raised in: {origin(error.__cause__)}"
    return [Problem(("protocols", name), what, error.allowed, (error.remedy or "mend the protocol") + raised)]
