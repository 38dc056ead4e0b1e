"""Position of a run's timing plane; comparing two detects a repetition that deviates."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Self

import numpy as np
from pydantic import BaseModel

from vflsim.learning.execution.operations import Handle
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


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
        found = [f"{name} {two[name]}, not {one[name]}" for name in one if one[name] != two[name] != two["recorded"]]
        return found or (["other rows recorded"] if self.recorded != other.recorded else [])


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
