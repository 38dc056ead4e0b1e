"""Decides which finished runs a resumed study keeps, and refuses to resume a different study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError
from vflsim.results.store.json_files import MOST_VALUES, read_info, read_scenario
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.schema import FileFacts, RunInfo
from vflsim.results.store.write import MANIFEST, SCENARIO, VIEWS, WEIGHTS, changes
from vflsim.scenario.changes import at_most, changed
from vflsim.simulation.info import versions
from vflsim.studies.runs.spec import StudySpec
from vflsim.vocabulary.execution_options import Execution
from vflsim.vocabulary.plain_yaml import parse_value


def refuse_another(folder: Path, text: str) -> None:
    """Raise ResultsError if a folder holds results of another scenario. The error lists every differing key."""
    path = folder / SCENARIO
    if path.is_file() and path.read_bytes() != text.encode():
        try:
            there = read_scenario(path)
        except ResultsError as error:
            remedy = "restore it, or run without --resume: that keeps the earlier results apart"
            raise ResultsError(error.what, error.where, "the scenario that earlier results are of", remedy) from error
        raise another(folder, there, parse_value(text, SCENARIO, MOST_VALUES)[0])


def another(folder: Path, old: Any, new: Any) -> ResultsError:
    """Make the error that lists the differences between the scenario of earlier results and the one to resume."""
    changes = [*changed(old, new)] or ["training or timing alone (--timing-only)"]
    return ResultsError(
        "\n    ".join(["holds results of another scenario, which cannot be resumed", *at_most(changes)]),
        str(folder),
        "to resume, the very same scenario, seeds and overrides",
        "change it back, or choose another --out; without --resume runs that fit stay, others are kept apart",
    )


class Finished:
    """The runs of a folder that need no repetition: finished or diverged (they would again), all files unchanged."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self.damage = ""
        """The problem of the manifest; empty if there is none."""
        self._listed: Mapping[str, FileFacts] = {}
        try:
            manifest = Manifest.read(spec.folder)
            self._listed = {} if manifest is None else manifest.files
        except ResultsError as error:
            self.damage = f"{MANIFEST} is {error.what}; it is written anew"

    def find(self, protocol: str, seed: int) -> tuple[RunInfo | None, str]:
        """Return a finished run, and why it has to be repeated if a file of it is missing or has changed."""
        folder, page = self._spec.address(protocol, seed), entry_of(protocol, seed)
        problems = [*changes(self._spec.folder, {page: self._listed[page]} if page in self._listed else {})]
        info, complete = _readable(folder), False
        if info is not None and info.status != "failed":
            problems += changes(folder, info.files or {})
            complete = _complete(folder, self._spec)
        if problems:
            name = f"{protocol}/seed-{seed}"
            return None, f"{name} is run again: {problems[0].removeprefix(f'{name}/')}"
        return (info if complete else None), ""


def differences(infos: Sequence[RunInfo], spec: StudySpec) -> list[str]:
    """Describe how the execution of finished runs differs from now: ``2 of 3 with torch 2.3 (now 2.4)``."""
    found = Counter(each for info in infos for each in executed_otherwise(info, spec))
    return [f"{count} of {len(infos)} with {what}" for what, count in found.items()]


def executed_otherwise(info: RunInfo, spec: StudySpec) -> list[str]:
    """Describe how the execution of a finished run differs from now: ``torch 2.3 (now 2.4)``."""
    training, before = not spec.timing_only, Execution.of_facts(vars(info))
    now = versions() | spec.options.execution.words(spec.device_of(info.protocol), training)
    then = info.versions | before.words(info.device, info.learning_plane is not None)
    return [f"{what} {then.get(what, 'unknown')} (now {now[what]})" for what in now if then.get(what) != now[what]]


def _readable(folder: Path) -> RunInfo | None:
    try:
        return read_info(folder)
    except ResultsError:
        return None


def _complete(folder: Path, spec: StudySpec) -> bool:
    """Return whether a run has all its files, whatever its page lists."""
    tables = {"events": 3, "rounds": 2, "summary": 1}[spec.scenario.record.tables]
    try:
        for name in ("metrics", "rounds", "events")[:tables]:
            pq.read_metadata(folder / f"{name}.parquet")
    except (OSError, pa.ArrowException):
        return False
    viewed = spec.scenario.record.views is None or (folder / VIEWS).is_file()
    return viewed and (folder / WEIGHTS).is_file()
