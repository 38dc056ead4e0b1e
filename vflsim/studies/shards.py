"""Shards: shares of a plan that machines compute without knowing of each other, and their results in one folder."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import NonFiniteError, ResultsError, RunError, ScenarioError
from vflsim.files import opened
from vflsim.learning.data.shelf import Shelf
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import RUN, SCENARIO, locked
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.pages import read_info
from vflsim.results.store.write import changes, facts_of, foreign, write_arrived
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.engines import OneByOne, Unit
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, Watcher
from vflsim.studies.runs.spec import differences, refuse_another
from vflsim.studies.study import checked, engine_of
from vflsim.studies.units import PlannedStudy, PlannedUnit, UnitPlan
from vflsim.vocabulary.execution_options import RunOptions

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
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ScenarioError(f"there is no shard {text}", where, allowed, remedy)
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"shard-{self.number:0{len(str(self.total))}}-of-{self.total}"

    def units(self, plan: UnitPlan) -> list[PlannedUnit]:
        """Return its units, in the plan's order."""
        return [unit for unit, shard in zip(plan.units, dealt(plan, self.total), strict=True) if shard == self]


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
        pool = Pool(specs, lambda place: watcher_of(studies[place]), lambda spec: ScenarioData(spec.scenario, shelf))
        return pool.run(engine_of(options, len(units), shelf))


def _of_slurm(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of a task in its array, and the number of tasks; 0, 0 if they are no numbers."""
    try:
        task, count = int(environment[_ID]), int(environment[_COUNT])
        return (task - int(environment[_LEAST])) // int(environment.get(_STEP, "1")) + 1, count
    except (KeyError, ValueError, ZeroDivisionError):
        return 0, 0


_SHOWN = 10


class Collected(OneByOne):
    """The engine that copies runs instead of executing them. Raises ResultsError for a file that has changed."""

    def __init__(self, runs: Mapping[tuple[str, str, int], StoredRun]) -> None:
        self._runs = runs

    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report:
        run, digest = unit.run, hashlib.sha256(unit.spec.text.encode()).hexdigest()
        if (stored := self._runs.get((digest, run.protocol, run.seed))) is None:
            what = f"the plan has no unit of {run.protocol} with seed {run.seed}"
            raise ResultsError(what, str(unit.spec.folder), remedy="write the plan anew with vflsim plan")
        write_arrived(unit.place, stored.info, lambda name: opened(stored.folder / name))
        unit.spec.settle(run.protocol, run.seed)
        rows, text = stored.table("metrics"), stored.info.error
        error = None if text is None else (NonFiniteError if stored.diverged else RunError)(text)
        return Report(stored.info, dict(*rows.slice(max(0, rows.num_rows - 1)).to_pylist()), error=error)


def otherwise(plan: UnitPlan, results: Sequence[Results]) -> list[str]:
    """Say which runs were executed under other conditions than here, such as other versions of packages."""
    specs = (plan.spec(study, Path(), plan.head.options(), ()) for study in plan.head.studies)
    pairs = zip(specs, results, strict=True)
    return [each for spec, study in pairs for each in differences([run.info for run in study.runs], spec)]


def runs_of(plan: UnitPlan, folders: Sequence[Path]) -> dict[tuple[str, str, int], StoredRun]:
    """Find the run of every unit by scenario, protocol and seed. Of several, choose one that did not fail."""
    roots = list(dict.fromkeys(root for folder in folders for root in (folder, *sorted(folder.glob("shard-*")))))
    runs: dict[tuple[str, str, int], StoredRun] = {}
    problems: dict[int, str] = {}
    for place, unit in enumerate(plan.units):
        tried = [_of(root, unit) for root in roots]
        if sound := [each for each in tried if isinstance(each, StoredRun)]:
            runs[unit.scenario, *unit.run] = min(sound, key=lambda each: each.info.status == "failed")
        else:
            whys = [each for each in tried if isinstance(each, str)]
            problems[place] = f"{unit.folder}: {whys[0] if whys else 'missing'}"
    if problems:
        raise _incomplete(plan, problems, roots, folders)
    return runs


def _of(root: Path, unit: PlannedUnit) -> StoredRun | str | None:
    """Look for a unit in the folder of a shard. Return a sentence if its files have changed since they were written."""
    place = root / unit.folder
    page = place.parents[1] / SCENARIO
    try:
        if not (place / RUN).is_file() or facts_of(page).sha256 != unit.scenario:
            return None
        info = read_info(place)
        manifest = Manifest.read(page.parent)
    except OSError as error:
        return str(error)
    except ResultsError as error:
        return f"{error.where}: {error.what}"
    files, entry = info.files or {}, entry_of(*unit.run)
    if strange := foreign(info) or next((name for name in files if (place / name).is_symlink()), ""):
        return f"{strange!r} is no file of a run"
    if "metrics.parquet" not in files:
        return "run.json lists no metrics.parquet"
    listed = {} if manifest is None else manifest.files
    problems = [*changes(page.parent, {entry: listed[entry]} if entry in listed else {}), *changes(place, files)]
    return f"in {root}: {problems[0]}" if problems else StoredRun(place, info)


def _incomplete(
    plan: UnitPlan, problems: Mapping[int, str], roots: Sequence[Path], folders: Sequence[Path]
) -> ResultsError:
    """Make the error that names missing units, and the commands that compute them."""
    counts = {int(match[2]) for root in roots if (match := FOLDER.fullmatch(root.name)) is not None}
    shards = dealt(plan, counts.pop() if len(counts) == 1 else 1)
    out = next((root.parent for root in roots if FOLDER.fullmatch(root.name)), folders[0])
    lines = [f"{text} (shard {shards[place]})" for place, text in problems.items()]
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    commands = [
        shlex.join(["vflsim", "work", plan.where, "--shard", str(shard), "--out", str(out)])
        for shard in dict.fromkeys(shards[place] for place in problems)
    ]
    what = "\n    ".join([f"{len(lines)} of {len(plan.units)} units are missing", *lines[:_SHOWN], *more])
    return ResultsError(what, plan.where, remedy="\n    ".join(["compute them:", *commands]))
