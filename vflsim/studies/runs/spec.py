"""A study as a value: a scenario and the folder of its runs, how one is written, and what stays of others."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.results.store.folder import MANIFEST, SCENARIO, VIEWS, WEIGHTS, run_folder
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.pages import MOST_VALUES, FileFacts, RunInfo, read_info, read_scenario
from vflsim.results.store.write import changes, write_run
from vflsim.scenario.load import dump
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.checkpoints.files import CheckpointFiles
from vflsim.simulation.info import versions
from vflsim.simulation.run import Outcome
from vflsim.simulation.variation import with_facts_of_laws
from vflsim.studies.runs.identity import Identity, Rules
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.simulator_choice import Choice
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, Execution, RunOptions
from vflsim.vocabulary.plain_yaml import at_most, changed, parse_value

TIMING_ONLY = "# run with --timing-only\n"
"""The last line of the scenario that is stored with timing-only results."""


@dataclass(frozen=True, slots=True)
class StudySpec:
    """A study: a scenario whose runs go to one folder. A sweep has one for each of its points.

    It is all that another process needs to execute a run. ``values``: those of the point, one for each key of its
    sweep. ``described``: what the runs train on, with warnings. ``only``: the runs that belong to it, by protocol and
    seed (default: all). While a sweep is planned, ``folder`` is relative to that of the sweep.
    """

    scenario: Scenario
    folder: Path
    paths: Mapping[str, Choice]
    timing_only: bool
    options: RunOptions = DEFAULT_OPTIONS
    values: tuple[Any, ...] = ()
    described: tuple[str, ...] = ()
    only: frozenset[tuple[str, int]] | None = None

    def placed(self, folder: Path, options: RunOptions) -> Self:
        """Return this point in the ``folder`` of its sweep."""
        return replace(self, folder=folder / self.folder, options=options)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """The runs in their order: all protocols with one seed before the next seed; groups go by their first run."""
        runs = [(name, seed) for seed in self.scenario.seeds for name in self.scenario.protocols]
        return [run for run in runs if self.only is None or run in self.only]

    @property
    def text(self) -> str:
        """The scenario text that is stored with the results."""
        return stored_text(self.scenario, self.timing_only)

    def write(self, run: StudyRun, outcome: Outcome, data: LoadedData) -> Report:
        """Write a run that has ended, whole or not at all; return its report. Raises ResultsError."""
        info = with_facts_of_laws(outcome.info, outcome.tables.metrics, self.scenario, data)
        info = info.model_copy(update={"inputs": self.identity(run.protocol).inputs})
        place, tables = self.address(run.protocol, run.seed), self.scenario.record.tables
        write_run(place, outcome.tables, outcome.weights, info, tables, outcome.extra, outcome.views)
        return Report.of(replace(outcome, info=info))

    def address(self, protocol: str, seed: int) -> Path:
        """Return the folder of a run."""
        return run_folder(self.folder, protocol, seed)

    def identity(self, protocol: str) -> Identity:
        """Return what decides the bytes of a protocol's runs."""
        return Identity(self.scenario, protocol, self.timing_only)

    def settle(self, protocol: str, seed: int) -> None:
        """Keep one checkpoint of a written run, for a run with a later end; without checkpoints, keep none."""
        kept = self._beside(protocol, seed, "checkpoint")
        if self.options.checkpoint_every is None:
            shutil.rmtree(kept, ignore_errors=True)
        elif kept.exists():  # a short run has none
            self.checkpoints_of(protocol, seed).drop_older(1)

    def checkpoints_of(self, protocol: str, seed: int) -> CheckpointFiles:
        """Return the checkpoints of a run."""
        return CheckpointFiles(*self._checkpoints(protocol, seed))

    def device_of(self, protocol: str) -> str:
        """Return the device of a protocol's tensors; coded runs stay on the CPU."""
        return "cpu" if self.scenario.protocols[protocol].protocol.traits.runs_on_cpu else self.options.execution.device

    def log_of(self, run: StudyRun) -> Path:
        """Return the log file of a worker's run; it exists only while the run lasts, and after a failure."""
        return self._beside(run.protocol, run.seed, "log")

    def keeper_of(self, run: StudyRun) -> Keeper | None:
        """Make the keeper of a run's checkpoints; None for timing-only runs, since replaying one saves no time."""
        options, resume = self.options, self.options.resume or run.continued
        if self.timing_only or (options.checkpoint_every is None and not resume):
            return None
        folder, fingerprint, until = self._checkpoints(run.protocol, run.seed)
        return Keeper(folder, options.checkpoint_every, fingerprint, resume, until)

    def _checkpoints(self, protocol: str, seed: int) -> tuple[Path, dict[str, str], Rules]:
        """Return the folder of a run's checkpoints, what the run has to agree on to use them, and its stop rules."""
        execution, identity = self.options.execution, self.identity(protocol)
        fingerprint = {
            **identity.course,
            "protocol": protocol,
            "seed": str(seed),
            **versions(),
            **execution.words(self.device_of(protocol)),
            **({"path": path} if (path := self.paths[protocol].path) != "event" else {}),
        }
        return self._beside(protocol, seed, "checkpoint"), fingerprint, identity.rules

    def _beside(self, protocol: str, seed: int, what: str) -> Path:
        """Return a hidden path beside the folder of a run."""
        return self.address(protocol, seed).with_name(f".seed-{seed}.{what}")


def stored_text(scenario: Scenario, timing_only: bool) -> str:
    """Return the scenario text stored with its results.

    Timing-only and training results get different texts, so that neither replaces the other.
    """
    return dump(scenario) + (TIMING_ONLY if timing_only else "")


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
    counts = Counter(each for info in infos for each in executed_otherwise(info, spec))
    return [f"{count} of {len(infos)} with {what}" for what, count in counts.items()]


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
