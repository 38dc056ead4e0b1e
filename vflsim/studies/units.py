"""A file of units, ``units.jsonl``: a head with the studies, then one line for each unit; any machine can do its share.

Reading such a file evaluates nothing: scenarios are checked as any scenario file is, and a unit's folder must be the
one that its study, protocol and seed determine.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model

from vflsim.errors import ScenarioError
from vflsim.files import text as text_of
from vflsim.learning.data.shelf import Shelf
from vflsim.results.store.folder import run_folder
from vflsim.scenario.load import load
from vflsim.scenario.models import FolderName, Scenario, Seed
from vflsim.studies.plan import SweepPlan, checked_point
from vflsim.studies.runs.simulator_choice import PathWish, choices
from vflsim.studies.runs.spec import StudySpec, stored_text
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
