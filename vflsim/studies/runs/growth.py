"""What becomes of the runs in a study's folder, as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vflsim.results.store.schema import RunInfo
from vflsim.simulation.checkpoints.files import Waypoint

Run: TypeAlias = tuple[str, int]
"""Protocol and seed."""


@dataclass(frozen=True)
class Growth:
    """The plan of a study in a folder: which runs are ``kept``, and which are ``left`` to do, in starting order.

    ``continued`` are the runs of ``left`` that start from a checkpoint. ``aside`` has the runs that are moved aside,
    each with the reasons, and ``entries`` their paths in the folder. ``notes`` tell how kept runs differ from new
    ones, and which runs are repeated. ``there`` says whether the folder holds any runs or checkpoints.
    """

    kept: Mapping[Run, RunInfo]
    left: Sequence[Run]
    continued: Mapping[Run, Waypoint]
    aside: Mapping[Run, tuple[str, ...]]
    entries: tuple[str, ...]
    notes: tuple[str, ...]
    there: bool
