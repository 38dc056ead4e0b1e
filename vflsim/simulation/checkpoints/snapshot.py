"""Snapshots of a run at an event boundary; return of a new run to a snapshot, without computations."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Self, TypeAlias

import numpy as np
from pydantic import BaseModel

from vflsim.errors import CheckpointError
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.inputs import Plain
from vflsim.learning.learners.watch import Unkept
from vflsim.simulation.checkpoints.values import (
    Place,
    TensorReader,
    TensorWriter,
    ValueReader,
    ValueWriter,
    load_states,
    nodes_of,
    states_of,
)
from vflsim.simulation.conductor import Course
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

Entry: TypeAlias = float | dict[str, float]
Runs: TypeAlias = list[tuple[int, list[str] | None]]
"""Numbers of consecutive entries with the same names; None for bare numbers."""


def packed(journal: Sequence[Entry]) -> tuple[Runs, Tensor]:
    """Return the description of the entries, and their numbers (n,) in float64."""
    runs: Runs = []
    numbers: list[float] = []
    for names, some in groupby(journal, key=_names):
        entries = list(some)
        runs.append((len(entries), None if names is None else list(names)))
        for entry in entries:
            numbers.extend(entry.values() if isinstance(entry, dict) else (entry,))
    return runs, torch.tensor(numbers, dtype=torch.float64)


def unpacked(runs: Runs, numbers: Tensor) -> list[Entry]:
    """Restore the entries."""
    values = iter(numbers.tolist())
    journal: list[Entry] = []
    for count, names in runs:
        for _ in range(count):
            journal.append(next(values) if names is None else {name: next(values) for name in names})
    return journal


def _names(entry: Entry) -> tuple[str, ...] | None:
    return tuple(entry) if isinstance(entry, dict) else None


# --- position ---------------------------------------------------------------------------------------------------------


class Position(BaseModel, frozen=True, extra="forbid"):
    """Position of a run. ``recorded`` is a digest of all recorded rows."""

    events: int
    time_s: float
    counts: dict[str, int]
    recorded: str

    @classmethod
    def of(cls, world: VirtualWorld, recorder: Recorder) -> Self:
        """Return the current position."""
        return cls(events=world.events, time_s=world.now(), counts=recorder.counted(), recorded=_digest(recorder))

    def differences(self, other: Position) -> list[str]:
        """Describe how ``other`` differs: ``rounds 12, not 13``."""
        one, two = ({**each.model_dump(exclude={"counts"}), **each.counts} for each in (self, other))
        changes = [f"{name} {two[name]}, not {one[name]}" for name in one if one[name] != two[name] != two["recorded"]]
        return changes or (["other rows recorded"] if self.recorded != other.recorded else [])


def _digest(recorder: Recorder) -> str:
    digest = sha256(recorder.events.table.view(np.uint8).data)
    digest.update(recorder.round_rows.packed())
    if recorder.meter is not None:
        recorder.meter.settle()
        digest.update(recorder.meter.rounds.tobytes())
    rest = [list(recorder.events.kinds), recorder.metric_rows, recorder.own.rows]
    digest.update(json.dumps(rest, default=_named).encode())
    return digest.hexdigest()


def _named(value: object) -> str:
    """Name a value that JSON does not know; a recorded handle has no value yet."""
    return "a value to come" if isinstance(value, Handle) else repr(value)


# --- snapshot ---------------------------------------------------------------------------------------------------------


class Snapshot(BaseModel, frozen=True, extra="forbid"):
    """All data of a checkpoint; numbers (see ``Place``) refer to the tensors, which are stored apart.

    ``ran``, ``journal`` and ``kept`` (number of the operation, index of its promise, value) are the executor's
    progress; ``shared`` holds parts that several values contain; ``states`` are the parties', and ``unkept`` what code
    from outside may have changed beside them, by party.
    """

    position: Position
    elapsed_s: float
    ran: dict[int, int]
    journal: Runs
    numbers: int
    kept: list[tuple[int, int, Plain]]
    shared: dict[str, list[Plain]]
    states: dict[str, dict[str, int]]
    unkept: dict[int, Unkept] = {}
    tensors: list[Place]


def take(course: Course) -> tuple[Snapshot, Mapping[str, Tensor]]:
    """Take a snapshot, and the storages that it refers to, not copied. Computes nothing."""
    tensors = TensorWriter()
    values = ValueWriter(course.parties, tensors)
    progress = course.executor.progress()
    journal, numbers = packed(progress.journal)
    snapshot = Snapshot(
        position=Position.of(course.world, course.recorder),
        elapsed_s=time.monotonic() - course.conductor.began,
        ran=dict(progress.ran),
        journal=journal,
        numbers=tensors.add(numbers),
        kept=[(*key, values.handle(handle)) for key, handle in progress.kept.items()],
        shared=values.shared,
        states={
            owner: {name: tensors.add(tensor) for name, tensor in state.items()}
            for owner, state in states_of(course.parties).items()
        },
        unkept={node.party: node.watch.unkept() for node in nodes_of(course.parties) if node.watch is not None},
        tensors=tensors.places,
    )
    return snapshot, tensors.storages


class Return:
    """A new run that returns to a snapshot: its timing plane repeats all events, without computations."""

    def __init__(self, course: Course, snapshot: Snapshot, storages: Mapping[str, Tensor]) -> None:
        self._course, self._snapshot = course, snapshot
        self._tensors = TensorReader(snapshot.tensors, storages)
        handles = [(number, place) for number, place, _ in snapshot.kept]
        journal = unpacked(snapshot.journal, self._tensors[snapshot.numbers])
        course.executor.replay(snapshot.ran, journal, handles)
        course.conductor.began = math.inf  # stops the wall clock during the return

    def arrive(self) -> None:
        """Restore the learning plane. Raises ``CheckpointError`` for a run that is not there, or has lost state."""
        course, snapshot = self._course, self._snapshot
        elsewhere = snapshot.position.differences(Position.of(course.world, course.recorder))
        if elsewhere:
            raise went_elsewhere(", ".join(elsewhere))
        load_states(
            course.parties,
            {
                owner: {name: self._tensors.borrowed(number) for name, number in state.items()}
                for owner, state in snapshot.states.items()
            },
        )
        for node in nodes_of(course.parties):
            if node.watch is not None and node.party in snapshot.unkept:
                node.watch.compare(snapshot.unkept[node.party])
        values = ValueReader(course.parties, self._tensors, snapshot.shared)
        recalled = course.executor.recalled
        for number, place, value in snapshot.kept:
            if (number, place) not in recalled:
                raise went_elsewhere(f"its operation {number} promises other values than before")
            values.give(recalled[number, place], value)
        course.executor.resume()
        course.conductor.began = time.monotonic() - snapshot.elapsed_s


def went_elsewhere(how: str) -> CheckpointError:
    """Make the error for a run that does not repeat itself."""
    return CheckpointError(
        f"the run did not come back to its checkpoint: {how}",
        allowed="the same scenario, libraries and machine",
        remedy="run without --resume: it starts anew",
    )
