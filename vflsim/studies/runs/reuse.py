"""Decides for each run in a study's folder: keep it, continue it, or move it aside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from vflsim.errors import CheckpointError, ResultsError, VflsimError
from vflsim.results.archive import grow_folder
from vflsim.results.read import StoredRun
from vflsim.results.store.folder import Prepared, clear_leftovers, prepare_folder
from vflsim.results.store.json_files import read_scenario
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import SCENARIO, errors_named, run_folder
from vflsim.scenario.changes import changed
from vflsim.scenario.depends import course_part, owns_code, part_of
from vflsim.scenario.document import Document
from vflsim.scenario.load import validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.simulation.checkpoints.files import Waypoint
from vflsim.studies.runs.growth import Growth, Run
from vflsim.studies.runs.inputs import inputs_of
from vflsim.studies.runs.resume import Finished, differences, outdated
from vflsim.studies.runs.stop_compatibility import ends_alike, hindrance, rules_of
from vflsim.studies.runs.work import TIMING_ONLY, Work

_ENTRY = re.compile(r"seed-(\d+)|\.seed-(\d+)\.(?:checkpoint|log)")


def prepare(growth: Growth, work: Work) -> Prepared:
    """Move aside the runs that do not match, and write the new scenario. Raises ResultsError."""
    if growth.kept or growth.continued:
        return grow_folder(work.folder, work.text, growth.entries, work.aside)
    return prepare_folder(work.folder, work.text, bool(growth.entries), work.aside)


def planned(work: Work) -> Growth:
    """Compare the runs in the folder of a study with those that it asks for. Raises ResultsError.

    Nothing is deleted except what a killed process left half-written.
    """
    wanted = dict.fromkeys(work.runs)
    with errors_named(work.folder):
        if (work.folder / SCENARIO).is_file():
            clear_leftovers(work.folder)
        there = _entries(work.folder)
    if not there or not (work.folder / SCENARIO).is_file():
        return Growth({}, [*wanted], {}, {}, (), (), False)
    if work.options.anew:
        return Growth({}, [*wanted], {}, dict.fromkeys(there, ("--anew",)), _all(there.values()), (), True)
    earlier, finished, strict = _Earlier(work), Finished(work), work.options.resume
    kept: dict[Run, RunInfo] = {}
    aside: dict[Run, tuple[str, ...]] = {}
    entries: list[str] = []
    continued: dict[Run, Waypoint] = {}
    notes = [finished.damage] if finished.damage else []
    for run in {**wanted, **there}:
        if run not in there:
            notes += filter(None, [finished.find(*run)[1]])  # it was listed, and is gone
            continue
        reasons, repeated = earlier.misfit(run), ""
        waypoint, unfit = None, True
        if run in wanted:
            info, repeated = finished.find(*run)
            if reasons and info is not None and earlier.ends_alike(run, info):
                reasons = ()
            if info is not None and not reasons:
                reasons = outdated(info, inputs_of(work.scenario, run[0]))
                if not reasons or (strict and info.inputs is None):
                    kept[run] = info
                    continue
            waypoint, unfit = (None, False) if strict or work.options.cluster is not None else _waypoint(work, run)
        if not reasons and repeated:
            notes.append(repeated)
        if waypoint is not None:
            continued[run] = waypoint
        moved = [name for name in there[run] if (unfit if name.endswith(".checkpoint") else reasons)]
        if moved and not strict:
            entries += moved
            aside[run] = reasons or ("its checkpoint does not fit",)
        elif strict and reasons and run in wanted:
            notes.append(f"{run[0]}/seed-{run[1]} is run again: {reasons[0]}")
    left = [run for run in wanted if run not in kept]
    notes += differences([*kept.values()], work)
    return Growth(kept, left, continued, aside, tuple(entries), tuple(notes), True)


class _Earlier:
    """The scenario that the runs of a folder belong to."""

    def __init__(self, work: Work) -> None:
        self._work = work
        path = work.folder / SCENARIO
        self._same = path.read_bytes() == work.text.encode()
        self._timing_only = path.read_text(errors="replace").endswith(TIMING_ONLY)
        self._damage = ""
        self._raw: Mapping[str, Any] = {}
        self._misfits: dict[str, tuple[str, ...]] = {}
        try:
            self._raw = read_scenario(path)
        except ResultsError as error:
            self._damage = f"{SCENARIO} is {error.what}"

    def misfit(self, run: Run) -> tuple[str, ...]:
        """Say why a run does not belong to the study. Empty if all that it depends on in the scenario is the same."""
        name, seed = run
        scenario = self._work.scenario
        if name not in scenario.protocols:
            return ("not in the scenario",)
        if seed not in scenario.seeds:
            return ("a seed that is not in the scenario",)
        if self._same:
            return ()
        if name not in self._misfits:
            self._misfits[name] = self._of_protocol(name)
        return self._misfits[name]

    def ends_alike(self, run: Run, info: RunInfo) -> bool:
        """Whether a finished run would end at the same place under the study's stop rules."""
        name, scenario = run[0], self._work.scenario
        before = None if info.status != "finished" or self._timing_only != self._work.timing_only else self._scenario
        if before is None or name not in before.protocols or course_part(before, name) != course_part(scenario, name):
            return False
        last = StoredRun(run_folder(self._work.folder, *run), info).table("metrics")["time_s"][-1].as_py()
        end = {"time": last, "rounds": info.counts["rounds"], "updates": info.counts["updates"]}
        end["wall_clock"] = info.wall_clock_s
        return ends_alike(info.stop_reason, end, rules_of(before.stop_of(name)), rules_of(scenario.stop_of(name)))

    @cached_property
    def _scenario(self) -> Scenario | None:
        if not code_of(self._raw) <= code_of(self._work.scenario.document.raw):
            return None  # results may come from others: no code runs that the scenario at hand does not name
        try:
            return validate(Document(dict(self._raw)))
        except VflsimError:
            return None

    def _of_protocol(self, name: str) -> tuple[str, ...]:
        if self._damage:
            return (self._damage,)
        if name not in self._raw["protocols"]:
            return ("the scenario that is stored beside it does not have it",)
        if self._timing_only != self._work.timing_only:
            return ("training or timing alone (--timing-only)",)
        own = owns_code(self._work.scenario, name)
        return tuple(changed(part_of(self._raw, name, own), part_of(self._work.scenario.document.raw, name, own)))


def _waypoint(work: Work, run: Run) -> tuple[Waypoint | None, bool]:
    """Return the checkpoint from which a run can continue, if any, and whether there is one that it cannot use."""
    try:
        found = None if work.timing_only else work.checkpoints_of(*run).waypoint()
    except CheckpointError:  # of another scenario, or of other libraries
        return None, True
    if found is None:
        return None, work.timing_only
    place = {
        "time": found.position.time_s,
        "rounds": found.position.rounds,
        "updates": found.position.updates,
        "wall_clock": found.elapsed_s,
    }
    now = rules_of(work.scenario.stop_of(run[0]))
    return (None, True) if hindrance(place, found.until, now) else (found, False)


def _entries(folder: Path) -> dict[Run, list[str]]:
    """List what a folder holds of each run: its folder, checkpoints and log."""
    found: dict[Run, list[str]] = {}
    for protocol in sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else ():
        for entry in sorted(protocol.iterdir()):
            if match := _ENTRY.fullmatch(entry.name):
                run = protocol.name, int(match[1] or match[2])
                found.setdefault(run, []).append(f"{protocol.name}/{entry.name}")
    return found


def _all(lists: Iterable[list[str]]) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names)
