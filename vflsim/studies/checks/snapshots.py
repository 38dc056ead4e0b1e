"""Takes snapshots of a run in memory, begins a run at one of them, and compares the two runs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from torch import Tensor

from vflsim.files import parsed_json
from vflsim.simulation.checkpoints.snapshot import Return, Snapshot, take, went_elsewhere
from vflsim.simulation.resumable import Course
from vflsim.simulation.run import Outcome

BUDGET_S = 2.0
"""Wall-clock seconds after which a run ends early, but not before the first snapshot."""
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
        if self.stations and time.monotonic() - self._began > BUDGET_S:
            self.last = events
            course.world.finish("tried out")
            return
        snapshot, storages = take(course)
        content = parsed_json(json.dumps(snapshot.model_dump()), math.inf)  # as read from a file
        copies = {key: tensor.clone() for key, tensor in storages.items()}
        self.stations = [(Snapshot.model_validate(content), copies)]
        course.world.visit(partial(self._stop_by, course), 2 * events)


def differing(one: Outcome, two: Outcome) -> str:
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
