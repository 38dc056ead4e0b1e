"""The identity of a run: all inputs that determine its bytes. It alone decides whether earlier runs are kept.

The end of a run does not affect anything before it. The exception is noise that is calibrated for the whole run
(``scenario.resolve.course_part``).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from vflsim.books import OF_RUN
from vflsim.files import opened
from vflsim.results.read import StoredRun
from vflsim.results.store.pages import RunInfo
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.scenario.resolve import course_part, owns_code, part_of, run_part, run_text
from vflsim.simulation.checkpoints.files import Waypoint
from vflsim.stopping import RULES
from vflsim.stopping.end_rule import Plain
from vflsim.vocabulary.plain_yaml import changed, walked

Rules = Mapping[str, Plain]
"""Stop rules as plain values, by name."""
Place = Mapping[str, float]
"""The progress of a run: ``time``, ``rounds``, ``updates`` and ``wall_clock`` (times in seconds)."""


def hindrance(place: Place, before: Rules, now: Rules) -> str:
    """Name a rule of ``now`` that may end a run before ``place``, which it reached under ``before``; empty for none."""

    def passes(key: str, limit: Plain) -> bool:
        if key in place:
            return bool(limit > place[key])
        return key in before and RULES[key].later(limit, before[key])

    return next((key for key, limit in now.items() if not passes(key, limit)), "")


def ends_alike(reason: str | None, end: Place, before: Rules, now: Rules) -> bool:
    """Whether a run that ``reason``, by a rule of ``before``, ended at ``end`` also ends there under ``now``."""
    key = next((key for key, rule in RULES.items() if reason in rule.reasons(before.get(key))), None)
    if key is None or key not in now or now[key] != before.get(key):
        return False
    others = {other: limit for other, limit in now.items() if other != key}
    return not hindrance(end, before, others)


UNSEEN = "unseen"
"""Replaces the digest of a class without a source file, which was defined in a notebook or a console."""


@dataclass(frozen=True)
class Identity:
    """All inputs that determine the bytes of a run, except its seed and the options of execution.

    They are the part of the scenario that the run depends on, whether it trains, and the files and modules that it
    reads. Stop rules count only if they change the result: a run is kept if it ends at the same place under new stop
    rules, and a checkpoint is kept if the run passes it under them.
    """

    scenario: Scenario
    protocol: str
    timing_only: bool

    @property
    def digest(self) -> str:
        """The digest of the run's part of the scenario and of its inputs; runs of a study with equal ones are equal."""
        return _digest_of([run_text(self.scenario, self.protocol), self.timing_only, self.inputs])

    @property
    def course(self) -> Mapping[str, str]:
        """The digests of all inputs that determine the bytes of the run before its end. Checkpoints belong to them."""
        inputs = self.inputs
        return {
            "scenario": _digest_of(course_part(self.scenario, self.protocol)),
            **({"files": _digest_of(inputs)} if inputs else {}),
        }

    @property
    def inputs(self) -> dict[str, str]:
        """The current digests of the files and modules that the run reads."""
        return inputs_of(self.scenario, self.protocol)

    @property
    def rules(self) -> Rules:
        """The run's stop rules."""
        return self.scenario.stop_of(self.protocol).plain()

    def changes(self, raw: Mapping[str, Any], timing_only: bool) -> tuple[str, ...]:
        """List the differences of an earlier run, by its stored scenario ``raw``; return an empty result for none."""
        name = self.protocol
        if name not in raw["protocols"]:
            return ("the scenario that is stored beside it does not have it",)
        if self.timing_only != timing_only:
            return ("training or timing alone (--timing-only)",)
        with_code = owns_code(self.scenario, name)
        return tuple(changed(part_of(raw, name, with_code), part_of(self.scenario.document.raw, name, with_code)))

    def ends_like(self, earlier: Identity, run: StoredRun) -> bool:
        """Whether a finished run of an ``earlier`` identity would end at the same place under these stop rules."""
        if self.timing_only != earlier.timing_only or self.protocol not in earlier.scenario.protocols:
            return False
        if course_part(earlier.scenario, self.protocol) != course_part(self.scenario, self.protocol):
            return False
        end = {"time": run.table("metrics")["time_s"][-1].as_py(), "wall_clock": run.info.wall_clock_s}
        end |= {count: run.info.counts[count] for count in OF_RUN}
        return ends_alike(run.info.stop_reason, end, earlier.rules, self.rules)

    def passes(self, waypoint: Waypoint) -> bool:
        """Whether the run passes the place of a checkpoint that has the same ``course``."""
        position = waypoint.position
        place = {"time": position.time_s, **position.counts}
        return not hindrance({**place, "wall_clock": waypoint.elapsed_s}, waypoint.until, self.rules)


def inputs_of(scenario: Scenario, protocol: str) -> dict[str, str]:
    """Return the SHA-256 of every file that a run of ``protocol`` reads, by path.

    For a module of the user's own, include the modules of the same folder that it imports.
    """
    part = run_part(scenario, protocol)
    files = set[Path]()
    for loc, value in walked(part):
        key = next((step for step in reversed(loc) if isinstance(step, str)), "")
        if key in ("file", "labels", "parties") and isinstance(value, str):
            files.add(Path(value))
    modules = {path.partition(":")[0] for _, path in code_of(part)}
    if owns_code(scenario, protocol):
        modules.add(type(scenario.protocols[protocol].protocol).__module__)
    unseen = {}
    for name in sorted(modules):
        module = sys.modules.get(name)
        if module is None or (file := getattr(module, "__file__", None)) is None:
            unseen[name] = UNSEEN
        else:
            files |= _imported(module, Path(file).resolve().parent)
    return {str(path): _digest(path, *_state(path)) for path in sorted(files)} | unseen


def outdated(info: RunInfo, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """List the input files that have changed since the run."""
    before = info.inputs or {}
    return tuple(
        f"{Path(path).name} is defined in a notebook or a console, whose changes nobody can see"
        if inputs.get(path) == UNSEEN
        else f"{Path(path).name} {'has changed' if path in before else 'may have changed'} since"
        for path in {**before, **inputs}
        if before.get(path) != inputs.get(path) or inputs.get(path) == UNSEEN
    )


def _imported(module: ModuleType, folder: Path) -> set[Path]:
    """Return the source files of a module, and of all that it imports from ``folder``."""
    files: dict[Path, ModuleType] = {}
    modules = [module]
    while modules:
        each = modules.pop()
        path = Path(getattr(each, "__file__", None) or "").resolve()
        if path in files or not _beneath(path, folder):
            continue
        files[path] = each
        values = [*vars(each).values()]
        types = (value if isinstance(value, type | FunctionType) else type(value) for value in values)
        modules += [value for value in values if isinstance(value, ModuleType)]
        modules += [sys.modules[name] for name in {thing.__module__ for thing in types} if name in sys.modules]
    return set(files)


def _beneath(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    except OSError:
        return 0, 0


@cache
def _digest(path: Path, changed: int, size: int) -> str:
    """Compute a file's digest; once for each state of the file."""
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
