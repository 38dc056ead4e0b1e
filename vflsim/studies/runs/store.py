"""The store of a study's runs: where each is, whether it is complete, begun or missing, and what a new scenario does.

The runs of the scenario in a folder are at ``<protocol>/seed-<s>``. Those of an earlier scenario that this one does not
have are at ``earlier/<digest of that scenario>/<protocol>/seed-<s>``, from where they return when a scenario has them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from vflsim.errors import CheckpointError, ResultsError, VflsimError
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import (
    EARLIER,
    PAGES,
    SCENARIO,
    SUMMARIES,
    Prepared,
    clear_leftovers,
    content_of,
    errors_named,
    followed,
    locked,
    refuse_foreign,
    restore,
    returned,
)
from vflsim.results.store.manifest import ManifestWriter
from vflsim.results.store.pages import RunInfo, read_scenario
from vflsim.results.store.write import write_file
from vflsim.results.tables import write_summary
from vflsim.scenario.document import Document
from vflsim.scenario.load import narrowed, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.simulation.checkpoints.files import Waypoint
from vflsim.studies.runs.identity import Identity, outdated
from vflsim.studies.runs.progress import Growth, Run
from vflsim.studies.runs.simulator_choice import choices
from vflsim.studies.runs.spec import TIMING_ONLY, Finished, StudySpec, differences
from vflsim.vocabulary.execution_options import RunOptions

_DIGITS = 12
"""Of the SHA-256 of a scenario, in the name of its folder."""
_ENTRY = re.compile(r"seed-(\d+)|\.seed-(\d+)\.(?:checkpoint|log)")


class RunState(NamedTuple):
    """The state of a run: complete (``kept``), begun (it continues from a ``waypoint``), or missing.

    ``reasons`` say why what is in its place is a run of an earlier scenario; ``unfit``: so are its checkpoints.
    ``note``: why a matching run is repeated.
    """

    kept: RunInfo | None = None
    waypoint: Waypoint | None = None
    reasons: tuple[str, ...] = ()
    unfit: bool = True
    note: str = ""


class RunStore:
    """The runs in the folder of a study, judged by the identities that it gives them. Nothing is ever deleted."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self.folder = Path(os.path.abspath(followed(spec.folder)))
        page = self.folder / SCENARIO
        with errors_named(self.folder):
            self._before = page.read_bytes() if page.is_file() else None
            if self._before is not None:
                clear_leftovers(self.folder)
            self._there = _entries(self.folder)
        self._same = self._before == spec.text.encode()
        self._timing_only = (self._before or b"").endswith(TIMING_ONLY.encode())
        self._finished, self._damage = Finished(spec), ""
        self._raw: Mapping[str, Any] = {}
        self._changes: dict[str, tuple[str, ...]] = {}
        if self._before is not None:
            try:
                self._raw = read_scenario(page)
            except ResultsError as error:
                self._damage = f"{SCENARIO} is {error.what}"

    def plan(self) -> Growth:
        """Compare the runs that are there with those that the study asks for. Raises ResultsError."""
        spec, strict = self._spec, self._spec.options.resume
        wanted, there = dict.fromkeys(spec.runs), self._there
        if self._before is None:
            return Growth({}, [*wanted], {}, {}, (), {}, (), False)
        if spec.options.anew:
            return Growth({}, [*wanted], {}, dict.fromkeys(there, ("--anew",)), _all(there.values()), {}, (), True)
        kept: dict[Run, RunInfo] = {}
        aside: dict[Run, tuple[str, ...]] = {}
        back: dict[Run, Path] = {}
        entries: list[str] = []
        continued: dict[Run, Waypoint] = {}
        notes = [self._finished.damage] if self._finished.damage else []
        for run in {**wanted, **there}:
            state = self.state(run, run in wanted) if run in there else RunState()
            if run not in there:
                notes += filter(None, [self._finished.find(*run)[1]])  # the manifest lists a run that no longer exists
            if state.kept is not None:
                kept[run] = state.kept
                continue
            if run in wanted and (earlier := self._earlier(run)) is not None:
                kept[run], back[run] = earlier
                entries += there.get(run, [])
                if state.reasons:
                    aside[run] = state.reasons
                continue
            notes += filter(None, [state.note])
            if state.waypoint is not None:
                continued[run] = state.waypoint
            gone = [name for name in there.get(run, ())
                    if (state.unfit if name.endswith(".checkpoint") else state.reasons)]  # fmt: skip
            if gone and not strict:
                entries += gone
                aside[run] = state.reasons or ("its checkpoint does not fit",)
            elif strict and state.reasons and run in wanted:
                notes.append(f"{run[0]}/seed-{run[1]} is run again: {state.reasons[0]}")
        missing = [run for run in wanted if run not in kept]
        notes += differences([*kept.values()], spec)
        return Growth(kept, missing, continued, aside, tuple(entries), back, tuple(notes), bool(there or back))

    def begin(self, growth: Growth) -> Prepared:
        """Make the folder one of the study's scenario: other runs leave it, and those of this scenario return.

        Invariant: whenever the process is killed, every run is at an address of its scenario. Raises ResultsError if
        the folder holds anything but results, or cannot be written; then all is as before.
        """
        folder, before = self.folder, self._before
        stay = growth.kept.keys() - growth.back.keys() or growth.continued
        with errors_named(folder):
            if not stay and not (self._same and not growth.entries):
                refuse_foreign(folder)
            new_folders = tuple(place for place in (folder, *folder.parents) if not place.exists())
            folder.mkdir(parents=True, exist_ok=True)
        moved = growth.entries
        if before is not None and not stay and (moved or not self._same):  # with its pages it is a study of its own
            moved = tuple(entry.name for entry in content_of(folder) if entry.name not in (SCENARIO, EARLIER))
        leaving = before is not None and (moved or not (stay or self._same))
        place = self._place(before or b"", moved) if leaving else None
        prepared = Prepared(folder, place, new_folders, moved, before or b"")
        try:
            if place is not None:
                self._leave(prepared, place)
            if not self._same:
                write_file(folder / SCENARIO, self._spec.text)
            for run, source in growth.back.items():
                with errors_named(folder):
                    returned(source, folder, _entries(source)[run])
            if place is not None and stay:
                with contextlib.suppress(VflsimError):  # checkpoints alone, or damaged runs: nothing to sum up
                    _describe(place)
        except BaseException:
            restore(prepared)
            raise
        return prepared

    def state(self, run: Run, wanted: bool) -> RunState:
        """Return the state of a run in the folder."""
        reasons = self._misfit(run)
        if not wanted:
            return RunState(reasons=reasons)
        identity, options = self._spec.identity(run[0]), self._spec.options
        info, note = self._finished.find(*run)
        if info is not None and info.path == "live":
            return RunState(reasons=("a live run, which no simulation repeats",))
        if info is not None:
            if reasons and self._ends_alike(run, identity, info):
                reasons = ()
            reasons = reasons or outdated(info, identity.inputs)
            if not reasons:
                return RunState(kept=info)
        itself = options.resume or options.cluster is not None  # the run looks for its checkpoint itself
        waypoint, unfit = (None, False) if itself else self._waypoint(run, identity)
        return RunState(None, waypoint, reasons, unfit, "" if reasons else note)

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
        return identity.ends_like(earlier, StoredRun(self._spec.address(*run), info))

    def _waypoint(self, run: Run, identity: Identity) -> tuple[Waypoint | None, bool]:
        """Return the checkpoint from which a run can continue, if any, and whether there is one that it cannot use."""
        timing_only = self._spec.timing_only
        try:
            waypoint = None if timing_only else self._spec.checkpoints_of(*run).waypoint()
        except CheckpointError:  # it belongs to another scenario, or to other libraries
            return None, True
        if waypoint is None:
            return None, timing_only
        return (waypoint, False) if identity.passes(waypoint) else (None, True)

    def _earlier(self, run: Run) -> tuple[RunInfo, Path] | None:
        """Return a complete run with this identity that has left the folder, and the place of its results."""
        states = ((store.state(run, True).kept, store.folder) for store in self._others if run in store._there)
        return next(((info, place) for info, place in states if info is not None), None)

    @cached_property
    def _others(self) -> list[RunStore]:
        """The results of earlier scenarios in the folder."""
        pages = [] if self._spec.options.resume else sorted((self.folder / EARLIER).glob(f"*/{SCENARIO}"))
        return [RunStore(replace(self._spec, folder=page.parent)) for page in pages]

    def _place(self, text: bytes, moved: Sequence[str]) -> Path:
        """Return the address of results of a scenario, where entries replace nothing."""
        first = self.folder / EARLIER / sha256(text).hexdigest()[:_DIGITS]
        places = (first if number == 1 else first.with_name(f"{first.name}-{number}") for number in count(1))
        return next(place for place in places if not any((place / name).exists() for name in moved))

    def _leave(self, prepared: Prepared, place: Path) -> None:
        """Rename what does not belong to the scenario to its own place, one entry after the other."""
        write_file(place / SCENARIO, prepared.before)
        with errors_named(place):
            for page in (page for page in PAGES if page not in (SCENARIO, *SUMMARIES, *prepared.moved)):
                if (self.folder / page).is_file():
                    shutil.copyfile(self.folder / page, place / page)
            returned(self.folder, place, prepared.moved)

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
    entries: dict[Run, list[str]] = {}
    for protocol in sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else ():
        for entry in sorted(protocol.iterdir()):
            if match := _ENTRY.fullmatch(entry.name):
                run = protocol.name, int(match[1] or match[2])
                entries.setdefault(run, []).append(f"{protocol.name}/{entry.name}")
    return entries


def _all(lists: Iterable[list[str]]) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names)


def _describe(place: Path) -> None:
    """Write the summary and the manifest of runs that have left their folder."""
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
        paths = choices(scenario, "auto", timing_only)
        kept = RunStore(StudySpec(scenario, folder, paths, timing_only, options)).plan().kept
    there = [name for name in scenario.protocols if all((name, seed) in kept for seed in scenario.seeds)]
    return narrowed(scenario, [*protocols, *there])
