"""What rounds leave whose acts have been played."""

from __future__ import annotations

from dataclasses import dataclass

from vflsim.recurrences.chunk import Bools, EventCourse, Moves, Stretches
from vflsim.timing.delays.base import Floats


@dataclass(frozen=True, slots=True)
class Played:
    """What n rounds leave: ends and starts (n,) of the steps that end them; client steps (n, steps, M); transfers.

    ``used`` (n, M) are the clients for whom the server has waited, None if for all.
    """

    ends: Floats
    waited: Floats
    steps: Floats
    steps_during: bool
    during: tuple[Moves, ...]
    after: tuple[Moves, ...]
    used: Bools | None
    spans: tuple[Stretches, ...]
    course: EventCourse | None = None
