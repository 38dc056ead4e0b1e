"""Shards: shares of a plan's units that machines compute without knowing of each other, each in its own folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import ScenarioError
from vflsim.learning.data.shelf import Shelf
from vflsim.results.store.folder import locked
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.options import RunOptions
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.runs.resume import refuse_another
from vflsim.studies.shards.unit_file import PlannedStudy, PlannedUnit, UnitPlan
from vflsim.studies.study import checked, engine_of

_ID, _COUNT, _LEAST, _STEP = (f"SLURM_ARRAY_TASK_{what}" for what in ("ID", "COUNT", "MIN", "STEP"))
FOLDER = re.compile(r"shard-0*(\d+)-of-(\d+)")


@dataclass(frozen=True, slots=True)
class Shard:
    """Share ``number`` (from 1) of ``total``."""

    number: int
    total: int

    @classmethod
    def of(cls, text: str | None, environment: Mapping[str, str]) -> Shard:
        """Read ``3/20``; without a text take the task of a Slurm array. Raises ScenarioError."""
        allowed = "NUMBER/TOTAL, NUMBER from 1 to TOTAL: 3/20"
        if text is None:
            if _ID not in environment:
                raise ScenarioError("which share of the units?", "--shard", allowed, "--shard 1/1 computes all of them")
            number, total = _of_slurm(environment)
            text, where = f"{number}/{total}", f"{_ID}={environment[_ID]}"
            allowed, remedy = "an array without gaps, such as --array=1-20", "or give --shard NUMBER/TOTAL"
        else:
            where, remedy = f"--shard {text}", ""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ScenarioError(f"there is no shard {text}", where, allowed, remedy)
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"shard-{self.number:0{len(str(self.total))}}-of-{self.total}"

    def units(self, plan: UnitPlan) -> list[PlannedUnit]:
        """Return its units, in the plan's order."""
        return [unit for unit, own in zip(plan.units, dealt(plan, self.total), strict=True) if own == self]


def dealt(plan: UnitPlan, total: int) -> list[Shard]:
    """Return the shard of every unit: dealt in turn, protocol by protocol, so that shards get as many of each."""
    order = sorted(range(len(plan.units)), key=lambda place: plan.units[place].protocol)
    shards = {place: Shard(rank % total + 1, total) for rank, place in enumerate(order)}
    return [shards[place] for place in range(len(plan.units))]


def work_on(
    plan: UnitPlan,
    shard: Shard,
    out: Path,
    options: RunOptions,
    watcher_of: Callable[[PlannedStudy], Watcher] = lambda _: Watcher(),
) -> list[Study]:
    """Execute the units of a shard into a folder of its own in ``out``; return them as studies, one for each point.

    Units that have finished there are kept, interrupted ones continue from their checkpoints. Raises the errors of
    ``run_study``, and ScenarioError for a shard without units.
    """
    units, folder = shard.units(plan), out / shard.folder
    if not units:
        what, allowed = f"shard {shard} has no unit", f"at most {len(plan.units)} shards"
        raise ScenarioError(what, "--shard", allowed, "choose fewer shards")
    mine = {study.folder: [unit for unit in units if unit.folder == study.folder_of(*unit.run)]
            for study in plan.head.studies}  # fmt: skip
    studies = [study for study in plan.head.studies if mine[study.folder]]
    specs = [plan.spec(study, folder / study.folder, options, mine[study.folder]) for study in studies]
    shelf = Shelf()
    for spec in specs:
        checked(spec.scenario, spec.timing_only, shelf=shelf)
    with locked(folder) if plan.head.keys else contextlib.nullcontext():
        for spec in specs:
            refuse_another(spec.folder, spec.text)
        return Pool(specs, lambda position: watcher_of(studies[position])).run(engine_of(options, len(units), shelf))


def _of_slurm(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of a task in its array, and the number of tasks; 0, 0 if they are no numbers."""
    try:
        task, count = int(environment[_ID]), int(environment[_COUNT])
        return (task - int(environment[_LEAST])) // int(environment.get(_STEP, "1")) + 1, count
    except (KeyError, ValueError, ZeroDivisionError):
        return 0, 0
