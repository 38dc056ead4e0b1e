"""Compute finished runs again, wholly or in part, and compare them with the stored runs, which stay unchanged."""

import contextlib
import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from vflsim.errors import CheckpointError, check_known
from vflsim.learning.data.shelf import Shelf
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import RUN, SCENARIO, SWEEP
from vflsim.results.store.manifest import stored_scenario
from vflsim.results.sweeps import SweepPage
from vflsim.results.verify.repetition import differences, first_differences, rows_in_common
from vflsim.scenario.models import Scenario
from vflsim.studies.engines import Unit
from vflsim.studies.runs.identity import inputs_of, outdated
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import choices
from vflsim.studies.runs.spec import StudySpec, executed_otherwise
from vflsim.studies.study import checked, engine_of
from vflsim.vocabulary.execution_options import Execution, RunOptions, cuda_available

_Same: TypeAlias = tuple[Any, ...]
"""The key of a run. Runs with equal keys have equal bytes, so they are computed once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The runs to compute again: those of some ``protocols`` and ``seeds`` (empty: of all).

    ``rounds``: only this many rounds from the beginning of each run. ``from_checkpoint``: only the part after the last
    checkpoint; a run without a checkpoint is computed from its beginning.
    """

    protocols: Collection[str] = ()
    seeds: Collection[int] = ()
    rounds: int | None = None
    from_checkpoint: bool = False

    @property
    def partial(self) -> bool:
        """Whether the sample is only a part of each run."""
        return self.rounds is not None or self.from_checkpoint

    def check(self, folder: Path) -> None:
        """Raise ScenarioError for a protocol or a seed that results do not have."""
        runs = [run for _, place in _studies(folder) for run in Results.open(place).runs]
        for protocol in self.protocols:
            check_known(protocol, [*dict.fromkeys(run.protocol for run in runs)], "protocol", "--protocol")
        for seed in self.seeds:
            check_known(str(seed), [*dict.fromkeys(str(run.seed) for run in runs)], "seed", "--seed")

    def __contains__(self, run: StoredRun) -> bool:
        return run.protocol in (self.protocols or [run.protocol]) and run.seed in (self.seeds or [run.seed])


@dataclass(frozen=True, slots=True)
class Repeated:
    """A run that was computed again: ``problems`` are all differences; ``what`` says how much was compared.

    ``left_out`` says why a run cannot repeat itself; it was not computed then.
    """

    name: str
    what: str = ""
    problems: tuple[str, ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored run to compare, its name, and the part of it that is computed again."""

    name: str
    run: StoredRun
    shortened: bool


WHOLE = Sample()
"""All runs, wholly."""


def rerun(folder: Path | str, sample: Sample = WHOLE, workers: int = 1, trust: bool = False) -> Iterator[Repeated]:
    """Repeat runs of a results folder or a sweep with their original options; yield each run after its comparison.

    It computes in a temporary folder beside the results. A run that several points of a sweep share is computed once.
    Modules that the scenario names are imported with ``trust`` alone, and only while their files and the results are
    unchanged. Raises ResultsError, and ScenarioError and DataError if a scenario can no longer be run.
    """
    folder = Path(folder).resolve()
    sample.check(folder)
    with _scratch(folder) as scratch:
        planned = _Planned(scratch, sample)
        for name, place in _studies(folder):
            yield from planned.add(name, Results.open(place, trust))
        options = RunOptions(workers=workers, checkpoint_every=None)
        with (
            Interrupt() as interrupt,
            engine_of(options, max(1, len(planned.units)), planned.shelf) as engine,
            contextlib.closing(engine.carry_out(planned.units, interrupt)) as reports,
        ):
            for unit, report in reports:
                yield from planned.compared(unit, report)


def seconds_of(folder: Path | str, sample: Sample) -> float:
    """Return the total wall-clock seconds that the stored runs of a sample took."""
    runs = [run for _, place in _studies(Path(folder)) for run in Results.open(place).runs if run in sample]
    return sum(run.info.wall_clock_s for run in runs)


class _Planned:
    """The units that compute runs again with the data on ``shelf``, and the stored runs that each is compared with."""

    def __init__(self, scratch: Path, sample: Sample) -> None:
        self.units: list[Unit] = []
        self.shelf = Shelf()
        self._scratch, self._sample = scratch, sample
        self._stored: dict[int, list[_Stored]] = {}
        self._known: dict[_Same, Unit] = {}

    def add(self, name: str, study: Results) -> Iterator[Repeated]:
        """Plan the runs of a study; yield those that cannot be computed again."""
        chosen = [run for run in study.runs if run in self._sample]
        if not chosen:
            return
        scenario = stored_scenario(study.folder, chosen)
        checked(scenario, chosen[0].info.timing_only, shelf=self.shelf)
        specs: dict[_Same, StudySpec] = {}
        for run in chosen:
            label = f"{name}{run.protocol}/seed-{run.seed}"
            if not run.info.reproducible:
                yield Repeated(label, left_out=f"its end depends on the clock ({RUN}: reproducible is false)")
            elif problem := self._obstacle(run, scenario):
                yield Repeated(label, problems=(f"was not computed again: {problem}",))
            else:
                spec = self._work(run, scenario, specs)
                stored = _Stored(label, run, self._shortened(run))
                if problem := self._plan(stored, spec):
                    yield Repeated(label, problems=(f"was not computed again: {problem}",))

    def compared(self, unit: Unit, report: Report) -> Iterator[Repeated]:
        """Compare a repetition with every stored run that should be equal to it; remove it."""
        for stored in self._stored[id(unit)]:
            again = StoredRun(unit.place, report.info)
            compare = first_differences if stored.shortened else differences
            problems = [*compare(stored.run, again)]
            if problems and (otherwise := executed_otherwise(stored.run.info, unit.spec)):
                problems.append(f"bytes can differ, since it was computed with {', '.join(otherwise)}")
            yield Repeated(stored.name, self._what(stored, again, report), tuple(problems))
        shutil.rmtree(unit.place)

    def _obstacle(self, run: StoredRun, scenario: Scenario) -> str:
        """Say why a run cannot be computed as before; return an empty text if it can."""
        info, name = run.info, run.protocol
        if name not in scenario.protocols:
            return f"its {SCENARIO} has no such protocol"
        if info.device == "cuda" and not cuda_available():
            return "it ran on a CUDA device, and there is none here"
        if info.inputs is not None and (changed := outdated(info, inputs_of(scenario, name))):
            return "; ".join(changed)
        mechanism = scenario.protocols[name].mechanism
        if self._shortened(run) and mechanism is not None and mechanism.needs_plan:
            return "its noise is calibrated for its whole length; leave --rounds out"
        return ""

    def _shortened(self, run: StoredRun) -> bool:
        return self._sample.rounds is not None and self._sample.rounds < run.info.counts.get("rounds", 0)

    def _work(self, run: StoredRun, scenario: Scenario, specs: dict[_Same, StudySpec]) -> StudySpec:
        """Return the study of a run, with the options with which the run was executed."""
        info, shortened = run.info, self._shortened(run)
        execution = Execution.of_facts(vars(info))
        by_events = info.path == "event" and info.together is None  # by operations, if it trains
        how = (execution, by_events, info.timing_only, shortened)
        if how not in specs:
            variant = _shorter(scenario, self._sample.rounds) if shortened else scenario
            paths = choices(variant, "event" if by_events else "auto", info.timing_only)
            folder = self._scratch / f"{len(self.units)}"
            options = RunOptions(checkpoint_every=None, execution=execution)
            specs[how] = StudySpec(variant, folder, paths, info.timing_only, options)
        return specs[how]

    def _plan(self, stored: _Stored, spec: StudySpec) -> str:
        """Plan the unit that computes a run, or find an already planned one; say why if the run cannot be computed."""
        protocol, seed = run = stored.run.protocol, stored.run.seed
        how = (spec.options.execution, spec.paths[protocol], stored.shortened)
        same = (spec.identity(protocol).digest, *run, *how)
        if same not in self._known:
            checkpoints = spec.checkpoints_of(*run)
            from_checkpoint = self._sample.from_checkpoint and not spec.timing_only
            there = stored.run.folder.with_name(checkpoints.folder.name)
            if from_checkpoint and there.is_dir():
                shutil.copytree(there, checkpoints.folder)
                try:
                    checkpoints.waypoint()
                except CheckpointError as error:
                    return f"its checkpoint {error.what}"
            unit = Unit(spec, StudyRun(protocol, seed, len(self.units) + 1, 0, from_checkpoint), Watcher())
            self.units.append(unit)
            self._known[same] = unit
        self._stored.setdefault(id(self._known[same]), []).append(stored)
        return ""

    @staticmethod
    def _what(stored: _Stored, again: StoredRun, report: Report) -> str:
        """Say which part of a run was computed again."""
        if stored.shortened:
            rows = ", ".join(f"{rows} of {name}" for name, rows in rows_in_common(again).items())
            return f"its first {again.info.counts['rounds']} rounds (rows: {rows})"
        return report.note or "the whole run"


def _shorter(scenario: Scenario, rounds: int | None) -> Scenario:
    """Return a scenario whose runs end after so many rounds at the latest."""
    entries = {
        name: entry.model_copy(update={"stop": scenario.stop_of(name).model_copy(update={"rounds": rounds})})
        for name, entry in scenario.protocols.items()
    }
    return scenario.model_copy(update={"protocols": entries})


def _studies(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the results folders of a sweep, each with its name, or the folder itself."""
    if not (folder / SWEEP).is_file():
        yield "", folder
        return
    for entry in SweepPage.read(folder).points:
        if (folder / entry.folder).is_dir():
            yield f"{entry.folder}/", folder / entry.folder


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make a temporary folder, on the disk of the results if that is writable; remove the folder at the end."""
    make = partial(tempfile.TemporaryDirectory, prefix=f".{folder.name}.rerun-", ignore_cleanup_errors=True)
    try:
        temporary = make(dir=folder.parent)
    except OSError:  # the disk is read-only
        temporary = make()
    with temporary as scratch:
        yield Path(scratch)
