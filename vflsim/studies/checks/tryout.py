"""Try out code from outside before a study: check that it runs, ends, and repeats itself from a checkpoint."""

from __future__ import annotations

import json
import math
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from typing import Any

from vflsim.errors import (
    BlindingError,
    BudgetError,
    CheckpointError,
    DeadlockError,
    DisconnectedError,
    IncompleteRoundError,
    NonFiniteError,
    NoProgressError,
    StandstillError,
    VflsimError,
    WeightBoundError,
)
from vflsim.files import parsed_json
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Operation, TimingOnlyExecutor
from vflsim.learning.learners.watch import from_outside
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.hook_checks import check_answers
from vflsim.results.store.schema import comparable
from vflsim.scenario.checks import broken
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.scenario.sections import Every, Recording
from vflsim.setting import Setting
from vflsim.simulation.build import brings_code
from vflsim.simulation.checkpoints.snapshot import Return, Snapshot, take, went_elsewhere
from vflsim.simulation.conductor import Course
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.standstill import awaited_by
from vflsim.stopping import Stop
from vflsim.studies.checks.rounds import settings_that_end
from vflsim.studies.checks.run_speed import few_to_evaluate
from vflsim.timing.availability import Always
from vflsim.vocabulary.imported import origin
from vflsim.vocabulary.on_demand import Tensor
from vflsim.vocabulary.trial import alike
from vflsim.world.virtual import VirtualWorld

_NODE = re.compile(r"^\w+Node\.")
"""The class of a node that is not the usual one, such as that of a trace."""
_PACKAGE = str(Path(__file__).parents[2])


@contextmanager
def forgotten_awaits() -> Iterator[list[str]]:
    """Collect the calls inside that nobody awaited, each with its place; none of those that vflsim makes itself.

    The list is complete when the block has ended. All other warnings are given again then.
    """
    calls: list[str] = []
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", "coroutine .* was never awaited", RuntimeWarning)
            yield calls
    finally:
        sys.set_coroutine_origin_tracking_depth(depth)
    for warning in caught:
        coroutine = warning.source
        if not iscoroutine(coroutine):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            continue
        for file, line, function in coroutine.cr_origin or ():
            if not file.startswith(_PACKAGE):
                called = _NODE.sub("Node.", coroutine.__qualname__)
                calls.append(f"{called}(…) at {file}:{line}, {function}")


BUDGET_S = 2.0
"""Wall-clock seconds after which a run ends early, but not before a snapshot after so many rounds:"""
ENOUGH = 2
FIRST = 8
"""Events until the first snapshot; each of the next comes after twice as many."""


class Stations:
    """Takes snapshots of a run in memory, or begins at one; ``end`` is the number of events after which it ends."""

    note = ""

    def __init__(self, start: tuple[Snapshot, Mapping[str, Tensor]] | None = None, end: int | None = None) -> None:
        self._start, self._end, self._began = start, end, time.monotonic()
        self.stations: list[tuple[Snapshot, Mapping[str, Tensor]]] = []
        self.last = end
        """The count of events at which the run was ended early; None if its stop rule ended it."""

    @contextmanager
    def along(self, course: Course) -> Iterator[None]:
        """Take snapshots, or go on from one, while the body executes the run. Raises ``CheckpointError``."""
        there: list[bool] = []
        if self._start is not None:
            journey = Return(course, *self._start)

            def arrive() -> None:
                journey.arrive()
                there.append(True)
                self._to_end(course)

            course.world.visit(arrive, self._start[0].position.events)
        elif self._end is not None:
            self._to_end(course)
        else:
            course.world.visit(partial(self._stop_by, course), FIRST)
        yield
        if self._start is not None and not there:
            raise went_elsewhere("it ended before")

    def _to_end(self, course: Course) -> None:
        if self._end is not None:
            course.world.visit(partial(course.world.finish, "tried out"), self._end)

    def _stop_by(self, course: Course) -> None:
        events = course.world.events
        enough = self.stations and self.stations[-1][0].position.counts["rounds"] >= ENOUGH
        if enough and time.monotonic() - self._began > BUDGET_S:
            self.last = events
            course.world.finish("tried out")
            return
        snapshot, storages = take(course)
        content = parsed_json(json.dumps(snapshot.model_dump()), math.inf)  # as read from a file
        copies = {key: tensor.clone() for key, tensor in storages.items()}
        self.stations = [(Snapshot.model_validate(content), copies)]
        course.world.visit(partial(self._stop_by, course), 2 * events)


def differing(one: Outcome, two: Outcome) -> str:
    """Name the first weights or table that differ; empty if none do."""
    if (one.error is None) != (two.error is None):
        return str(two.error or one.error)
    first, second = (
        {f"the weights {name}": tensor for name, tensor in each.weights.items()}
        | {f"the table {name}": content for name, content in comparable(each.tables).items()}
        for each in (one, two)
    )
    return next((name for name in first if not alike(first[name], second.get(name))), "")


TIMED, TRAINED = 2, 4
"""Rounds without and with training."""
EVENTS, EVENTS_A_CLIENT = 1_000_000, 1_000
"""Events after which a trial without training ends."""
QUEUED_BYTES = 2**20
"""Bytes of results that may wait in a trial with training, so that the trial ends soon after its time is over."""
_LATER = (
    NonFiniteError, BudgetError, WeightBoundError, BlindingError, DisconnectedError, IncompleteRoundError
)  # fmt: skip
"""Errors caused by seeds, data or outages: the run fails, not the protocol's code. See ``refuse_hopeless``."""
_KEEP = "keep what operations change in self.kept (docs/adding-a-protocol.md, What a run remembers)"


def refuse_broken(scenario: Scenario, data: ScenarioData, timing_only: bool = False) -> None:
    """Raise ``ScenarioError`` for code from outside that fails, or does not repeat itself; write nothing.

    Protocols that are not vflsim's own run ``TIMED`` rounds without training. Unless the study is ``timing_only``,
    protocols with any code from outside (models, aggregates and codecs, too) then run ``TRAINED`` rounds with training,
    on all training rows and few others, and again from a checkpoint in the second half. Others are not run.
    """
    problems: list[Problem] = []
    for name, entry in scenario.protocols.items():
        trial = _Tryout(scenario, name, data.of(scenario.training_of(name)))
        if type(entry.protocol) not in PROTOCOLS:
            problems += trial.without_training() or ([] if timing_only else trial.with_training(reported=True))
        elif not timing_only and trial.brings_code:
            problems += trial.with_training(reported=False)
    if problems:
        raise failure(problems, scenario.document)


class _Tryout:
    """Trials of one protocol of a scenario, with its first seed and an evaluation after each round."""

    def __init__(self, scenario: Scenario, name: str, data: LoadedData) -> None:
        self._scenario, self._name, self._data = scenario, name, few_to_evaluate(data)
        self._loc, self._protocol = ("protocols", name), scenario.protocols[name].protocol
        self._resolved: Setting = setting(scenario, name, data)

    @property
    def brings_code(self) -> bool:
        """Whether the protocol, a model, the aggregate or the codec is from outside."""
        codec = self._resolved.codec
        return brings_code(self._protocol, self._resolved) or any(from_outside(codec.towards(to)) for to in (0, 1))

    def without_training(self) -> list[Problem]:
        """Return the problem of a run without training, if there is one."""
        with forgotten_awaits() as calls:
            problems = self._timed()
        if calls:  # whatever else went wrong may follow from it
            what = f"{type(self._protocol).__name__} calls and never awaits {calls[0]}"
            return [Problem(self._loc, what, remedy="write await before the call: without it nothing happens")]
        return problems

    def _timed(self) -> list[Problem]:
        try:
            check_answers(self._protocol, self._resolved)
            world = _Limited(self._scenario.clients)
            return self._problem(self._run(TIMED, world=world, timing_only=True).error, self._always_ends)
        except VflsimError as error:
            return self._problem(error, ends=True)
        except Exception as error:  # the user's code may raise anything
            return [broken(self._name, error)]

    def with_training(self, reported: bool) -> list[Problem]:
        """Return the problem of a run with training or of its repetition; without ``reported``, only of the repetition.

        Runs report other failures of vflsim's own protocols themselves.
        """
        try:
            stations = Stations()
            whole = self._run(TRAINED, keeper=stations)
            if whole.error is not None:
                return self._problem(whole.error, ends=True) if reported else []
            return self._repeated(whole, stations) if stations.stations else []
        except CheckpointError as error:
            what = f"a run of it cannot be resumed: {error.what}"
            return [Problem(self._loc, what, error.allowed, error.remedy if error.allowed else _KEEP)]
        except Exception as error:
            return [broken(self._name, error)] if reported else []

    def _repeated(self, whole: Outcome, stations: Stations) -> list[Problem]:
        """Compare a run to one from its last snapshot and, if they differ, to one from the start."""
        resumed = differing(whole, self._run(TRAINED, keeper=Stations(stations.stations[-1], stations.last)))
        if not resumed:
            return []
        if again := differing(whole, self._run(TRAINED, keeper=Stations(end=stations.last))):
            what = f"two runs with the same seed differ ({again}): something in it follows from no seed"
            remedy = "draw from torch, numpy.random or random, which are seeded, or from vflsim.streams; read no clock"
            return [Problem(self._loc, what, remedy=remedy)]
        what = f"a run that is resumed from a checkpoint differs from one that is not ({resumed})"
        return [Problem(self._loc, what, "state in models, in `kept`, and in what state() returns", _KEEP)]

    def _run(
        self, rounds: int, *, keeper: Stations | None = None, world: VirtualWorld | None = None,
        timing_only: bool = False,
    ) -> Outcome:  # fmt: skip
        scenario, name = self._scenario, self._name
        evaluate = scenario.evaluate_of(name)
        wanted = awaited_by(scenario.stop_of(name).each(), evaluate.every.unit)
        counted = Stop(
            rounds=rounds if wanted != {"update"} else None,
            updates=rounds * scenario.clients if wanted != {"round"} else None,
        )
        entry = scenario.protocols[name].model_copy(update={"stop": None, "evaluate": None})
        changed: dict[str, Any] = {
            "stop": counted,
            "evaluate": evaluate.model_copy(update={"every": Every(amount=1, unit="rounds")}),
            "record": Recording(tables="summary" if timing_only else "events", views=scenario.record.views),
            "protocols": {**scenario.protocols, name: entry},
        }
        return run_protocol(
            scenario.model_copy(update=changed),
            name,
            scenario.seeds[0],
            self._data,
            world=world or VirtualWorld(DeferredExecutor(QUEUED_BYTES)),
            timing_only=timing_only,
            keeper=keeper,
        )

    @property
    def _always_ends(self) -> bool:
        return any(rule.by == "time" for rule in self._scenario.stop_of(self._name).each())

    def _problem(self, error: VflsimError | None, ends: bool) -> list[Problem]:
        """Return the problem of a failed trial; none if it is not the protocol's, or no matter where a run ``ends``."""
        if error is None or isinstance(error, _LATER):
            return []
        endless = isinstance(error, NoProgressError) and not isinstance(error, StandstillError)
        if endless and ends:
            return []
        if (endless or isinstance(error, DeadlockError)) and self._can_be_cut_off:
            return []
        protocol = type(self._protocol).__name__
        failed = f"{protocol} fails when it is tried out: " if from_outside(self._protocol) else ""
        what = failed + (f"{error.where}: " if error.where else "") + error.what
        raised = "" if error.__cause__ is None else f"; raised in: {origin(error.__cause__)}"
        return [Problem(self._loc, what, error.allowed, (error.remedy or "mend the protocol") + raised)]

    @property
    def _can_be_cut_off(self) -> bool:
        """Whether outages, or links and activations that end for good, may explain a run that cannot go on."""
        timings = [self._resolved.timings[client] for client in self._resolved.clients]
        crashing = any(not isinstance(timing.availability, Always) for timing in timings)
        ending = any(settings_that_end(self._scenario, self._name, self._scenario.seeds[0]))
        return ending or (crashing and not self._protocol.traits.reference)


class _Limited(VirtualWorld):
    """A world that ends after so many events: with an error if nobody has computed anything, else without a verdict."""

    def __init__(self, clients: int) -> None:
        super().__init__(TimingOnlyExecutor())
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
