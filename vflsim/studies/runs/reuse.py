"""Decides for each run in a study's folder: keep it, continue it, or move it aside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vflsim.errors import CheckpointError, ResultsError, VflsimError
from vflsim.files import content
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import Prepared, clear_leftovers, free_previous, locked, prepare_folder
from vflsim.results.store.json_files import read_scenario
from vflsim.results.store.manifest import ManifestWriter
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import (
    MANIFEST,
    PAGES,
    SCENARIO,
    SUMMARIES,
    errors_named,
    followed,
    run_folder,
    write_file,
)
from vflsim.results.tables.comparison import write_summary
from vflsim.scenario.document import Document
from vflsim.scenario.load import narrowed, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.simulation.checkpoints.files import Waypoint
from vflsim.studies.runs.identity import Identity, outdated
from vflsim.studies.runs.progress import Growth, Run
from vflsim.studies.runs.resume import Finished, differences
from vflsim.studies.runs.spec import TIMING_ONLY, StudySpec
from vflsim.vocabulary.execution_options import RunOptions

_ENTRY = re.compile(r"seed-(\d+)|\.seed-(\d+)\.(?:checkpoint|log)")


def prepare(growth: Growth, spec: StudySpec) -> Prepared:
    """Move aside the runs that do not match, and write the new scenario. Raises ResultsError."""
    if growth.kept or growth.continued:
        return grow_folder(spec.folder, spec.text, growth.entries, spec.aside)
    return prepare_folder(spec.folder, spec.text, bool(growth.entries), spec.aside)


def planned(spec: StudySpec) -> Growth:
    """Compare the runs in the folder of a study with those that it asks for. Raises ResultsError.

    Nothing is deleted except what a killed process left half-written.
    """
    wanted = dict.fromkeys(spec.runs)
    with errors_named(spec.folder):
        if (spec.folder / SCENARIO).is_file():
            clear_leftovers(spec.folder)
        there = _entries(spec.folder)
    if not there or not (spec.folder / SCENARIO).is_file():
        return Growth({}, [*wanted], {}, {}, (), (), False)
    if spec.options.anew:
        return Growth({}, [*wanted], {}, dict.fromkeys(there, ("--anew",)), _all(there.values()), (), True)
    earlier, strict = _Earlier(spec), spec.options.resume
    kept: dict[Run, RunInfo] = {}
    aside: dict[Run, tuple[str, ...]] = {}
    entries: list[str] = []
    continued: dict[Run, Waypoint] = {}
    notes = [earlier.finished.damage] if earlier.finished.damage else []
    for run in {**wanted, **there}:
        if run not in there:
            notes += filter(None, [earlier.finished.find(*run)[1]])  # the manifest lists a run that no longer exists
            continue
        found = earlier.verdict(run, run in wanted)
        if found.kept is not None:
            kept[run] = found.kept
            continue
        notes += filter(None, [found.note])
        if found.waypoint is not None:
            continued[run] = found.waypoint
        moved = [name for name in there[run] if (found.unfit if name.endswith(".checkpoint") else found.reasons)]
        if moved and not strict:
            entries += moved
            aside[run] = found.reasons or ("its checkpoint does not fit",)
        elif strict and found.reasons and run in wanted:
            notes.append(f"{run[0]}/seed-{run[1]} is run again: {found.reasons[0]}")
    left = [run for run in wanted if run not in kept]
    notes += differences([*kept.values()], spec)
    return Growth(kept, left, continued, aside, tuple(entries), tuple(notes), True)


class _Verdict(NamedTuple):
    """The decision about a run in a folder: it is ``kept``, continues from a ``waypoint``, or is computed.

    Its folder moves aside for the given ``reasons``; its checkpoints move aside if they are ``unfit``. ``note``: why a
    matching run is repeated.
    """

    kept: RunInfo | None = None
    waypoint: Waypoint | None = None
    reasons: tuple[str, ...] = ()
    unfit: bool = True
    note: str = ""


class _Earlier:
    """The runs of a folder, judged by the identities that a study gives them."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec, self.finished = spec, Finished(spec)
        path = spec.folder / SCENARIO
        self._same = path.read_bytes() == spec.text.encode()
        self._timing_only = path.read_text(errors="replace").endswith(TIMING_ONLY)
        self._damage = ""
        self._raw: Mapping[str, Any] = {}
        self._changes: dict[str, tuple[str, ...]] = {}
        try:
            self._raw = read_scenario(path)
        except ResultsError as error:
            self._damage = f"{SCENARIO} is {error.what}"

    def verdict(self, run: Run, wanted: bool) -> _Verdict:
        """Decide whether to keep, continue or compute a run."""
        reasons = self._misfit(run)
        if not wanted:
            return _Verdict(reasons=reasons)
        identity, options = self._spec.identity(run[0]), self._spec.options
        info, note = self.finished.find(*run)
        if info is not None and info.path == "live":
            return _Verdict(reasons=("a live run, which no simulation repeats",))
        if info is not None:
            if reasons and self._ends_alike(run, identity, info):
                reasons = ()
            reasons = reasons or outdated(info, identity.inputs)
            if not reasons:
                return _Verdict(kept=info)
        itself = options.resume or options.cluster is not None  # the run looks for its checkpoint itself
        waypoint, unfit = (None, False) if itself else self._waypoint(run, identity)
        return _Verdict(None, waypoint, reasons, unfit, "" if reasons else note)

    def _misfit(self, run: Run) -> tuple[str, ...]:
        """Say why a run does not belong to the study. Empty if all that it depends on in the scenario is the same."""
        name, seed = run
        if name not in self._spec.scenario.protocols:
            return ("not in the scenario",)
        if seed not in self._spec.scenario.seeds:
            return ("a seed that is not in the scenario",)
        if self._same:
            return ()
        if self._damage:
            return (self._damage,)
        if name not in self._changes:
            self._changes[name] = self._spec.identity(name).changes(self._raw, self._timing_only)
        return self._changes[name]

    def _ends_alike(self, run: Run, identity: Identity, info: RunInfo) -> bool:
        """Whether a finished run would end at the same place under the study's stop rules."""
        if info.status != "finished" or self._scenario is None:
            return False
        earlier = Identity(self._scenario, run[0], self._timing_only)
        return identity.ends_like(earlier, StoredRun(run_folder(self._spec.folder, *run), info))

    def _waypoint(self, run: Run, identity: Identity) -> tuple[Waypoint | None, bool]:
        """Return the checkpoint from which a run can continue, if any, and whether there is one that it cannot use."""
        timing_only = self._spec.timing_only
        try:
            found = None if timing_only else self._spec.checkpoints_of(*run).waypoint()
        except CheckpointError:  # it belongs to another scenario, or to other libraries
            return None, True
        if found is None:
            return None, timing_only
        return (found, False) if identity.passes(found) else (None, True)

    @cached_property
    def _scenario(self) -> Scenario | None:
        if not code_of(self._raw) <= code_of(self._spec.scenario.document.raw):
            return None  # results may come from others: no code runs that the scenario at hand does not name
        try:
            return validate(Document(dict(self._raw)))
        except VflsimError:
            return None


def _entries(folder: Path) -> dict[Run, list[str]]:
    """List the entries of each run in a folder: its folder, checkpoints and log."""
    found: dict[Run, list[str]] = {}
    for protocol in sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else ():
        for entry in sorted(protocol.iterdir()):
            if match := _ENTRY.fullmatch(entry.name):
                run = protocol.name, int(match[1] or match[2])
                found.setdefault(run, []).append(f"{protocol.name}/{entry.name}")
    return found


def _all(lists: Iterable[list[str]]) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names)


def grow_folder(out: Path | str, scenario_text: str, moved: Iterable[str], place: Path | None = None) -> Prepared:
    """Make ``out``, which holds results, a folder of the scenario with this text; move entries of it aside.

    ``moved`` are paths inside ``out`` that do not belong to the new scenario. They go to ``place``, or to
    ``<out>.previous-1`` (2, …): a results folder with the old scenario. Invariant: whenever the process is killed, all
    runs in either folder are runs of its scenario. Raises ResultsError if a folder cannot be written; then all is as
    before.
    """
    out, entries = Path(os.path.abspath(followed(out))), tuple(moved)
    with errors_named(out):
        previous = (place or free_previous(out)) if entries else None
        prepared = Prepared("grown", out, previous, (), entries, content(out / SCENARIO))
    try:
        if prepared.moved_to is not None:
            _move(prepared, prepared.moved_to)
        write_file(out / SCENARIO, scenario_text)
        if prepared.moved_to is not None:
            with contextlib.suppress(VflsimError):  # checkpoints alone, or damaged runs: nothing to sum up
                _describe(prepared.moved_to)
    except BaseException:
        shrink_folder(prepared)
        raise
    return prepared


def shrink_folder(prepared: Prepared) -> None:
    """Undo :func:`grow_folder`."""
    out, place = prepared.folder, prepared.moved_to
    with contextlib.suppress(OSError, VflsimError):
        write_file(out / SCENARIO, prepared.before)
        if place is None:
            return
        for name in prepared.moved:
            if (place / name).exists() and not (out / name).exists():
                (out / name).parent.mkdir(exist_ok=True)
                (place / name).rename(out / name)
        for page in (*PAGES, MANIFEST):
            (place / page).unlink(missing_ok=True)
        for entry in (*place.iterdir(), place):
            entry.rmdir()


def _move(prepared: Prepared, place: Path) -> None:
    write_file(place / SCENARIO, prepared.before)
    for page in (page for page in PAGES if page not in (SCENARIO, *SUMMARIES)):
        if (prepared.folder / page).is_file():
            with errors_named(place):
                shutil.copyfile(prepared.folder / page, place / page)
    with errors_named(place):
        for name in prepared.moved:
            (place / name).parent.mkdir(exist_ok=True)
            (prepared.folder / name).rename(place / name)
        for folder in {(prepared.folder / name).parent for name in prepared.moved}:
            with contextlib.suppress(OSError):  # other runs are in it
                folder.rmdir()


def _describe(place: Path) -> None:
    """Write the summary and the manifest of runs that were moved."""
    results = Results.open(place)
    manifest = ManifestWriter(place)
    manifest.begin([(run.protocol, run.seed) for run in results.runs], [])
    write_summary(results)
    manifest.finish(PAGES)


def chosen(
    scenario: Scenario, protocols: Sequence[str], folder: Path, timing_only: bool, options: RunOptions
) -> Scenario:
    """Return the scenario with the named ``protocols`` (default: all) and those of which the folder has every run.

    So a study runs the named ones alone, and keeps the others that it has, as far as they fit the scenario. Raises
    ScenarioError for an unknown name, ResultsError if another process uses the folder.
    """
    narrow = narrowed(scenario, protocols)
    if narrow is scenario or not (folder / SCENARIO).is_file():
        return narrow
    with locked(folder):
        kept = planned(StudySpec(scenario, folder, {}, timing_only, options)).kept
    there = [name for name in scenario.protocols if all((name, seed) in kept for seed in scenario.seeds)]
    return narrowed(scenario, [*protocols, *there])
