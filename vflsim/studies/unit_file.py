"""A file of units, ``units.jsonl``: a head, then one line for each unit; any machine can execute its share.

Reading such a file evaluates nothing: scenarios are checked as any scenario file is, and a unit's folder must be the
one that its scenario, protocol and seed determine.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vflsim.errors import ScenarioError
from vflsim.files import text as text_of
from vflsim.results.write import run_folder
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.studies.options import DeviceWish, RunOptions
from vflsim.studies.paths import PathWish, choices
from vflsim.studies.work import Work, stored_text

_M = TypeVar("_M", bound=BaseModel)
_REMEDY = "write the file anew with vflsim plan"


class PlanHead(BaseModel):
    """The first line: how all units are executed. ``plan`` is the version of the format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: Literal[1] = 1
    timing_only: bool = False
    path: PathWish = "auto"
    eager: bool = False
    device: DeviceWish = "auto"
    threads: int = Field(default=1, ge=1, le=1024)
    tf32: bool = False

    def options(self, **more: Any) -> RunOptions:
        """Return the options of a study with ``more`` that do not change results, such as ``workers``."""
        return RunOptions.of(eager=self.eager, device=self.device, threads=self.threads, tf32=self.tf32, **more)


class PlannedUnit(BaseModel):
    """One line: a unit and ``folder``, the place of its results in the study's folder.

    ``scenario`` is the SHA-256 of the resolved scenario's text, which the first of its units has in ``text``.
    ``values`` are those of a sweep's keys.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    values: dict[str, Any] = Field(default_factory=dict)
    protocol: str
    seed: int
    scenario: str = Field(pattern=r"^[0-9a-f]{64}$")
    text: str | None = None

    @property
    def run(self) -> tuple[str, int]:
        """The protocol and the seed."""
        return self.protocol, self.seed


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The content of a file of units; ``scenarios`` are its scenarios by digest."""

    head: PlanHead
    units: tuple[PlannedUnit, ...]
    scenarios: Mapping[str, Scenario]

    @classmethod
    def of(cls, head: PlanHead, scenario: Scenario) -> Self:
        """Plan every protocol of a scenario with every seed, in a study's order."""
        text = stored_text(scenario, head.timing_only)
        digest = _digest(text)
        runs = [(name, seed) for seed in scenario.seeds for name in scenario.protocols]
        units = tuple(
            PlannedUnit(
                folder=run_folder("", *run).as_posix(),
                protocol=run[0],
                seed=run[1],
                scenario=digest,
                text=None if number else text,
            )
            for number, run in enumerate(runs)
        )
        return cls(head, units, {digest: scenario})

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        yield self.head.model_dump_json() + "\n"
        for unit in self.units:
            yield json.dumps(unit.model_dump(exclude_none=True), ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file of units; ``-`` is the standard input. Raises ScenarioError with the line of a mistake."""
        try:
            lines = (sys.stdin.read() if str(path) == "-" else text_of(path)).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"cannot be read: {error}", str(path), "a file that vflsim plan has written") from error
        if not lines:
            raise ScenarioError("has no line", str(path), "a head, then one line for each unit", _REMEDY)
        head = _line(PlanHead, path, 1, lines[0])
        units, scenarios = list[PlannedUnit](), dict[str, Scenario]()
        for number, line in enumerate(lines[1:], start=2):
            unit = _line(PlannedUnit, path, number, line)
            if unit.text is not None and unit.scenario not in scenarios:
                scenarios[unit.scenario] = _scenario(unit, head, f"{path}:{number}")
            _must_fit(unit, scenarios.get(unit.scenario), f"{path}:{number}")
            units.append(unit.model_copy(update={"text": None}))
        twice = [folder for folder, times in Counter(unit.folder for unit in units).items() if times > 1]
        if twice or not units:
            what = f"{twice[0]} stands twice" if twice else "holds no unit"
            raise ScenarioError(what, str(path), "every unit once", _REMEDY)
        return cls(head, tuple(units), scenarios)

    def work(self, digest: str, folder: Path, options: RunOptions, units: Sequence[PlannedUnit] | None = None) -> Work:
        """Return the study of a scenario in ``folder``, of these units alone (None: of all). Raises ScenarioError."""
        scenario, timing_only = self.scenarios[digest], self.head.timing_only
        only = None if units is None else frozenset(unit.run for unit in units)
        return Work(scenario, folder, choices(scenario, self.head.path, timing_only), timing_only, options, only)


def _line(kind: type[_M], path: Path | str, number: int, line: str) -> _M:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        what = f"{key}: {first['msg']}" if key else first["msg"]
        raise ScenarioError(f"is no line of a plan: {what}", f"{path}:{number}", remedy=_REMEDY) from None


def _scenario(unit: PlannedUnit, head: PlanHead, where: str) -> Scenario:
    """Load the scenario of a line; it must be resolved: the very text that its results will have."""
    assert unit.text is not None, "the line has a text"
    try:
        scenario = load(unit.text if "\n" in unit.text else f"{unit.text}\n")
    except ScenarioError as error:
        raise ScenarioError(error.what, f"{where}: {error.where}", error.allowed, error.remedy) from error
    if _digest(unit.text) != unit.scenario or stored_text(scenario, head.timing_only) != unit.text:
        raise ScenarioError("the text is not the resolved scenario that its digest names", where, remedy=_REMEDY)
    return scenario


def _must_fit(unit: PlannedUnit, scenario: Scenario | None, where: str) -> None:
    """Raise ScenarioError for a unit that its scenario does not have, or whose folder is another."""
    if scenario is None:
        raise ScenarioError(f"no line before has the text of scenario {unit.scenario[:8]}…", where, remedy=_REMEDY)
    if unit.protocol not in scenario.protocols or unit.seed not in scenario.seeds:
        raise ScenarioError(f"the scenario has no run of {unit.protocol} with seed {unit.seed}", where, remedy=_REMEDY)
    place = run_folder("", *unit.run).as_posix()
    if unit.folder != place:
        raise ScenarioError(f"the folder of this unit is {unit.folder!r}", where, place, _REMEDY)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
