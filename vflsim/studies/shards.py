"""Shards: shares of a plan that machines compute without knowing of each other, and their results in one folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model

from vflsim.errors import NonFiniteError, ResultsError, RunError, ScenarioError
from vflsim.files import opened, text as text_of
from vflsim.learning.data.shelf import Shelf
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import locked
from vflsim.results.store.json_files import read_info
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.write import RUN, SCENARIO, changes, facts_of, foreign, run_folder, write_arrived
from vflsim.scenario.load import load
from vflsim.scenario.models import FolderName, Scenario, Seed
from vflsim.studies.engines import Reports, Unit
from vflsim.studies.plan import SweepPlan, checked_point
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, Watcher
from vflsim.studies.runs.simulator_choice import PathWish, choices
from vflsim.studies.runs.spec import StudySpec, differences, refuse_another, stored_text
from vflsim.studies.study import checked, engine_of, run_study
from vflsim.studies.sweep import SweepDone, SweepWatcher, run_sweep
from vflsim.vocabulary.execution_options import OPTIONS, RECORDED, DeviceWish, RunOptions
from vflsim.vocabulary.quantities import Quantity

_M = TypeVar("_M", bound=BaseModel)
_REMEDY = "write the file anew with vflsim plan"


class PlannedStudy(BaseModel, frozen=True, extra="forbid"):
    """A resolved scenario: ``text`` is stored with its results; ``folder`` and ``values`` are those of a sweep's point.

    The folder of a single study is empty: its runs are in the results folder itself.
    """

    folder: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.+-]*)?$")
    values: tuple[Any, ...] = ()
    text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def folder_of(self, protocol: str, seed: int) -> str:
        """Return the folder of a run in the results folder."""
        return run_folder(self.folder, protocol, seed).as_posix()


def _field(name: str) -> tuple[Any, Any]:
    kind, option = OPTIONS[name]
    number = option.number or Quantity()
    return kind, Field(default=option.default, ge=number.at_least, le=number.at_most)


_Recorded = create_model("_Recorded", **{name: _field(name) for name in RECORDED})  # type: ignore[call-overload]


class PlanHead(_Recorded, frozen=True, extra="forbid"):
    """The first line: the studies, and how their units are executed. ``plan`` is the version of the format.

    ``keys`` are those of a sweep; none for a single study.
    """

    plan: Literal[1] = 1
    timing_only: bool = False
    path: PathWish = "auto"
    if TYPE_CHECKING:
        device: DeviceWish
    keys: tuple[str, ...] = ()
    studies: tuple[PlannedStudy, ...] = ()

    def options(self, **more: Any) -> RunOptions:
        """Return the options of a study, with ``more`` that do not change results, such as ``workers``."""
        return RunOptions.of(**{name: getattr(self, name) for name in RECORDED}, **more)


class PlannedUnit(BaseModel, frozen=True, extra="forbid"):
    """One line: a unit and ``folder``, the place of its results in the results folder.

    ``scenario`` is the digest of its study's text, ``values`` are those of a sweep's keys.
    """

    folder: str
    scenario: str
    values: dict[str, Any]
    protocol: FolderName
    seed: Seed

    @property
    def run(self) -> tuple[str, int]:
        """The protocol and the seed."""
        return self.protocol, self.seed


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The content of a file of units. Scenarios are loaded when they are needed."""

    head: PlanHead
    units: tuple[PlannedUnit, ...]
    where: str = "plan"
    _loaded: dict[str, Scenario] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, head: PlanHead, sweep: SweepPlan) -> Self:
        """Plan the runs of a sweep, or of a study, in their order; those that several points share once."""
        studies = tuple(
            PlannedStudy(folder=point.folder.name, values=point.values, text=point.text) for point in sweep.points
        )
        owners = sweep.owners()
        units = tuple(
            _unit(sweep.keys, studies[place], *run)
            for place, point in enumerate(sweep.points)
            for run in point.runs
            if owners[place, run[0]] == place
        )
        return cls(head.model_copy(update={"studies": studies, "keys": sweep.keys}), units)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        for each in (self.head, *self.units):
            yield json.dumps(each.model_dump(), ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file of units; ``-`` is the standard input. Raises ScenarioError with the line of a mistake."""
        try:
            lines = (sys.stdin.read() if str(path) == "-" else text_of(path)).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"cannot be read: {error}", str(path), "a file that vflsim plan has written") from error
        if len(lines) < 2:
            raise ScenarioError("holds no unit", str(path), "a head, then one line for each unit", _REMEDY)
        head = _line(PlanHead, f"{path}:1", lines[0])
        studies = {(study.folder, study.digest): study for study in head.studies}
        if len({study.folder for study in head.studies}) < len(head.studies) or len(head.studies) > 1 > len(head.keys):
            raise ScenarioError("several studies have the same place", f"{path}:1", remedy=_REMEDY)
        units = []
        for number, line in enumerate(lines[1:], start=2):
            unit = _line(PlannedUnit, where := f"{path}:{number}", line)
            study = studies.get((unit.folder.rpartition("/")[0].rpartition("/")[0], unit.scenario))
            if study is None or study.folder_of(*unit.run) != unit.folder:
                what = f"{unit.folder!r} is no folder of {unit.protocol} with seed {unit.seed} in a study of this plan"
                raise ScenarioError(what, where, remedy=_REMEDY)
            units.append(unit)
        twice = [folder for folder, times in Counter(unit.folder for unit in units).items() if times > 1]
        if twice:
            raise ScenarioError(f"{twice[0]} stands twice", str(path), "every unit once", _REMEDY)
        return cls(head, tuple(units), str(path))

    def scenario(self, study: PlannedStudy) -> Scenario:
        """Load the scenario of a study. Raises ScenarioError unless it is resolved: the text that results will have."""
        if study.folder not in self._loaded:
            where = f"{self.where}:1: {study.folder or 'the study'}"
            try:
                scenario = load(study.text if "\n" in study.text else f"{study.text}\n")
            except ScenarioError as error:
                raise ScenarioError(error.what, f"{where}: {error.where}", error.allowed, error.remedy) from error
            if stored_text(scenario, self.head.timing_only) != study.text:
                raise ScenarioError("the text is no resolved scenario", where, remedy=_REMEDY)
            self._loaded[study.folder] = scenario
        return self._loaded[study.folder]

    def spec(self, study: PlannedStudy, folder: Path, options: RunOptions, units: Sequence[PlannedUnit]) -> StudySpec:
        """Return a study in ``folder`` with these units alone. Raises ScenarioError."""
        scenario, timing_only = self.scenario(study), self.head.timing_only
        for unit in units:
            if unit.protocol not in scenario.protocols or unit.seed not in scenario.seeds:
                raise ScenarioError(f"the scenario has no run {unit.folder}", self.where, remedy=_REMEDY)
        paths, only = choices(scenario, self.head.path, timing_only), frozenset(unit.run for unit in units)
        return StudySpec(scenario, folder, paths, timing_only, options, only=only)

    def sweep(self) -> SweepPlan:
        """Return the sweep that this is a plan of. Raises ScenarioError and DataError."""
        timing_only, shelf = self.head.timing_only, Shelf()
        points = (
            checked_point(self.scenario(study), timing_only, study.folder, study.values, shelf=shelf)
            for study in self.head.studies
        )
        return SweepPlan(self.head.keys, tuple(points), timing_only, shelf)


def _unit(keys: Sequence[str], study: PlannedStudy, protocol: str, seed: int) -> PlannedUnit:
    values = dict(zip(keys, study.values, strict=True))
    folder = study.folder_of(protocol, seed)
    return PlannedUnit(folder=folder, scenario=study.digest, values=values, protocol=protocol, seed=seed)


def _line(kind: type[_M], where: str, line: str) -> _M:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        what = f"{key}: {first['msg']}" if key else first["msg"]
        raise ScenarioError(f"is no line of a plan: {what}", where, remedy=_REMEDY) from None


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
        return Pool(specs, lambda position: watcher_of(studies[position])).run(engine_of(options, len(units), shelf))


def _of_slurm(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of a task in its array, and the number of tasks; 0, 0 if they are no numbers."""
    try:
        task, count = int(environment[_ID]), int(environment[_COUNT])
        return (task - int(environment[_LEAST])) // int(environment.get(_STEP, "1")) + 1, count
    except (KeyError, ValueError, ZeroDivisionError):
        return 0, 0


_SHOWN = 10


class Collected:
    """The engine that copies runs instead of executing them."""

    def __init__(self, runs: Mapping[tuple[str, str, int], StoredRun]) -> None:
        self._runs = runs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Copy the run of every unit. Raises ResultsError if a file has changed or cannot be written."""
        for unit in units:
            interrupt.check()
            unit.watcher.began(unit.run)
            digest = hashlib.sha256(unit.spec.text.encode()).hexdigest()
            if (stored := self._runs.get((digest, unit.run.protocol, unit.run.seed))) is None:
                what = f"the plan has no unit of {unit.run.protocol} with seed {unit.run.seed}"
                raise ResultsError(what, str(unit.spec.folder), remedy="write the plan anew with vflsim plan")
            write_arrived(unit.place, stored.info, lambda name, run=stored: opened(run.folder / name))  # type: ignore[misc]
            unit.spec.settle(unit.run.protocol, unit.run.seed)
            yield unit, report_of(stored)


def collect_study(
    plan: UnitPlan, folders: Sequence[Path], out: Path | None = None, watcher: Watcher | None = None
) -> Study:
    """Merge the results of shards in ``folders`` (those of shards, or folders that hold them) into ``out``.

    The files are those of a single process. Raises ResultsError with every missing or changed run and the command that
    computes it, and the errors of ``run_study``.
    """
    engine = Collected(_runs_of(plan, folders))
    scenario, head = plan.scenario(plan.head.studies[0]), plan.head
    return run_study(
        scenario, out, timing_only=head.timing_only, path=head.path, options=head.options(), watcher=watcher,
        engine=engine,
    )  # fmt: skip


def collect_sweep(
    plan: UnitPlan, folders: Sequence[Path], out: Path | None = None, watcher: SweepWatcher | None = None
) -> SweepDone:
    """Merge the results of a sweep's shards as ``collect_study`` does. Raises also the errors of ``run_sweep``."""
    engine = Collected(_runs_of(plan, folders))
    return run_sweep(plan.sweep(), out, options=plan.head.options(), watcher=watcher, engine=engine)


def otherwise(plan: UnitPlan, results: Sequence[Results]) -> list[str]:
    """Say which runs were executed under other conditions than here, such as other versions of packages."""
    specs = (plan.spec(study, Path(), plan.head.options(), ()) for study in plan.head.studies)
    pairs = zip(specs, results, strict=True)
    return [each for spec, study in pairs for each in differences([run.info for run in study.runs], spec)]


def _runs_of(plan: UnitPlan, folders: Sequence[Path]) -> dict[tuple[str, str, int], StoredRun]:
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


def report_of(run: StoredRun) -> Report:
    """Return the report of a run from its folder."""
    rows, text = run.table("metrics"), run.info.error
    error = None if text is None else (NonFiniteError if run.diverged else RunError)(text)
    return Report(run.info, dict(*rows.slice(max(0, rows.num_rows - 1)).to_pylist()), error=error)


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
