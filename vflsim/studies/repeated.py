"""Try out whether code from outside repeats itself: a few rounds, and again from a checkpoint in the middle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from torch import Tensor

from vflsim.checkpoints.snapshot import Return, Snapshot, take, went_elsewhere
from vflsim.errors import CheckpointError, UnkeptStateError
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.watch import from_outside
from vflsim.scenario.models import Recording, Scenario
from vflsim.scenario.problems import Problem
from vflsim.scenario.resolve import setting
from vflsim.scenario.stop import Every, Stop
from vflsim.setting import Setting
from vflsim.simulation.build import brings_code
from vflsim.simulation.course import Course
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.studies.calibrate import few_to_evaluate

ROUNDS = 4
BUDGET_S = 2.0
"""Wall-clock seconds after which the rounds that are tried out end early, but not before the first checkpoint."""
_FIRST = 8
"""Events until the first checkpoint; each of the next comes after twice as many."""


def repeats(scenario: Scenario, name: str, data: LoadedData) -> Iterator[Problem]:
    """Check that a protocol with code from outside, or with models or a codec of such, repeats itself to the byte.

    It runs ``ROUNDS`` rounds with the first seed, and again from a checkpoint in their second half. Protocols of vflsim
    alone are not run. What else may go wrong in these rounds is for the run to report.
    """
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    if not brings_code(protocol, resolved) and not _brings_codec(resolved):
        return
    loc, few = ("protocols", name), few_to_evaluate(data)
    keeper = _Stations()
    try:
        whole = _run(scenario, name, few, keeper)
        if isinstance(whole.error, UnkeptStateError):
            yield Problem(loc, str(whole.error), whole.error.allowed, whole.error.remedy)
        if whole.error is not None or not keeper.stations:
            return
        differing = _differing(whole, _run(scenario, name, few, _Stations(keeper.stations[-1], keeper.last)))
    except CheckpointError as error:
        what = f"a run of it cannot be resumed: {error.what}"
        yield Problem(loc, what, error.allowed, error.remedy if error.allowed else _remedy())
        return
    except Exception:  # user's code may raise anything, and will again in the run, which says where
        return
    if differing and (again := _differing(whole, _run(scenario, name, few, _Stations(end=keeper.last)))):
        what = f"two runs with the same seed differ ({again}): something in it follows from no seed"
        remedy = "draw from torch, numpy.random or random, which are seeded, or from vflsim.streams; read no clock"
        yield Problem(loc, what, remedy=remedy)
    elif differing:
        what = f"a run that is resumed from a checkpoint differs from one that is not ({differing})"
        yield Problem(loc, what, "state in models, in `kept`, and in what state() returns", _remedy())


def _remedy() -> str:
    return "keep what operations change in self.kept (docs/outside-protocols.md, What a run remembers)"


def _brings_codec(resolved: Setting) -> bool:
    return any(from_outside(resolved.codec.towards(party)) for party in (0, 1))


class _Stations:
    """Takes snapshots on the way, into memory, or begins at one; ``end`` is the count of events to end at."""

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
            course.world.visit(partial(self._stop_by, course), _FIRST)
        yield
        if self._start is not None and not there:
            raise went_elsewhere("it ended before")

    def _to_end(self, course: Course) -> None:
        if self._end is not None:
            course.world.visit(partial(course.world.finish, "tried out"), self._end)

    def _stop_by(self, course: Course) -> None:
        events = course.world.events
        if self.stations and time.monotonic() - self._began > BUDGET_S:
            self.last = events
            course.world.finish("tried out")
            return
        snapshot, storages = take(course)
        content = json.loads(json.dumps(snapshot.model_dump()))  # what a file gives back
        copies = {key: tensor.clone() for key, tensor in storages.items()}
        self.stations = [(Snapshot.model_validate(content), copies)]
        course.world.visit(partial(self._stop_by, course), 2 * events)


def _run(scenario: Scenario, name: str, data: LoadedData, keeper: _Stations) -> Outcome:
    entry = scenario.protocols[name].model_copy(update={"evaluate": None, "stop": None})
    changed: dict[str, Any] = {
        "evaluate": scenario.evaluate_of(name).model_copy(update={"every": Every(amount=1, unit="rounds")}),
        "stop": Stop(rounds=ROUNDS),
        "record": Recording(tables="events", views=scenario.record.views),
        "protocols": {**scenario.protocols, name: entry},
    }
    return run_protocol(scenario.model_copy(update=changed), name, scenario.seeds[0], data, keeper=keeper)


def _differing(one: Outcome, two: Outcome) -> str:
    """Name the first table or weight whose bytes differ; empty if none does."""
    if (one.error is None) != (two.error is None):
        return str(two.error or one.error)
    names = ("metrics", "rounds", "events")
    tables = [name for name in names if _bytes(getattr(one.tables, name)) != _bytes(getattr(two.tables, name))]
    weights = [name for name, tensor in one.weights.items() if not _equal(tensor, two.weights.get(name))]
    return next(iter([*(f"the weights {name}" for name in weights), *(f"the table {name}" for name in tables)]), "")


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _equal(one: Tensor, two: Tensor | None) -> bool:
    return two is not None and one.shape == two.shape and one.cpu().numpy().tobytes() == two.cpu().numpy().tobytes()
