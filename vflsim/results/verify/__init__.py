"""Verify results: digests of files, and invariants of finished runs.

For a folder, digests come first: they show every change, unless the digests were changed too. Invariants then show
impossible tables of any origin. Each rule reads the tables and yields a sentence for every violation; it skips tables
that were not recorded. Rules compare times exactly: an activity begins at or after the exact end of its predecessor.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import ASIDE, EARLIER, LOCK, MANIFEST, PAGES, REPORT, RUN, SCENARIO, SWEEP, WEIGHTS
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.pages import FileFacts, RunInfo
from vflsim.results.store.schema import RunTables
from vflsim.results.store.write import changes, strangers
from vflsim.results.sweeps import Sweep, SweepPage, SweepPoint
from vflsim.results.sweeps.axis import setting_of
from vflsim.results.verify.derived_values import curve_problems, energy_problems, summary_problems
from vflsim.results.verify.frames import Frames, Rule
from vflsim.results.verify.rules import EVENT_RULES
from vflsim.results.verify.scenario import ByScenario, page_problems, weight_problems
from vflsim.results.verify.values import COUNT_RULES, VALUE_RULES
from vflsim.world.run_tables import ENERGY

ALIKE = 8
"""Sentences of one sort that are shown; the others are counted."""


def of_study(results: Results) -> Iterator[str]:
    """Yield a sentence for every missing or foreign run, and for every page or run that has changed."""
    folder, runs = results.folder, [(run.protocol, run.seed) for run in results.runs]
    wanted, there = _wanted(results), set(runs)
    missing = [run for run in wanted or () if run not in there]
    yield from _few(f"{name}/seed-{seed} is missing: a run of this scenario" for name, seed in missing)
    if wanted is not None:
        others = [run for run in runs if run not in wanted]
        yield from _few(f"{name}/seed-{seed} is no run of this scenario" for name, seed in others)
    try:
        manifest = Manifest.read(folder)
    except ResultsError as error:
        yield str(error)
        return
    if manifest is None:
        yield f"{MANIFEST} is missing, so that an exchange of whole runs need not show"
        return
    missing_entries = {entry_of(*run) for run in missing}
    yield from changes(folder, {name: facts for name, facts in manifest.files.items() if name not in missing_entries})
    pages = [name for name in PAGES if (folder / name).exists()]
    added = [name for name in (*(entry_of(*run) for run in runs), *pages) if name not in manifest.files]
    why = "added, or its study was killed (--resume mends that)"
    yield from _few(f"{name} is not in {MANIFEST}: {why}" for name in added)


def of_run(run: StoredRun) -> Iterator[str]:
    """Yield a sentence for every file of a run that is missing, has changed or was added."""
    yield from changes(run.folder, run.info.files)
    yield from strangers(run.folder, [RUN, *run.info.files])


def of_value(page: SweepPage, entry: SweepPoint, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a point's folder inside the sweep's ``folder``, judged by the sweep's page."""
    value = setting_of(page.keys, entry.values)
    if not entry.finished:
        yield f"{value} has not finished"
    if not (folder / entry.folder).is_dir():
        if entry.finished:
            yield f"the folder is missing: the results of {value}"
    elif entry.scenario_sha256 is None:
        yield f"{SWEEP} has no digest of the scenario of {value}, so that an exchange of values need not show"
    elif [*changes(folder / entry.folder, {SCENARIO: FileFacts(sha256=entry.scenario_sha256)})]:
        yield f"{SCENARIO} is not the one of {value}"


def _wanted(results: Results) -> dict[tuple[str, int], None] | None:
    """List the runs that a scenario asks for, in order; None if it lists no seeds."""
    seeds = results.scenario.get("seeds")
    if not isinstance(seeds, list):
        return None
    return {(str(name), seed): None for seed in seeds for name in results.scenario["protocols"]}


def _few(sentences: Iterable[str]) -> Iterator[str]:
    rest = iter(sentences)
    yield from islice(rest, ALIKE)
    if more := sum(1 for _ in rest):
        yield f"… and {more} more like these"


_MADE_FROM_RESULTS = {REPORT, "trace.json", "trace.json.gz"}
_PICTURES = {".png", ".svg", ".pdf"}
_TUNING = {"tuning.json", "tuning.parquet", "tuning.md", "tuned.yaml", "common.yaml"}
_BESIDE_RUNS = re.compile(r"\.seed-\d+\.(checkpoint|log)")
_WHY = "is nothing that vflsim writes here, and no digest covers it"


def beside_runs(results: Results) -> Iterator[str]:
    """Yield a sentence for every foreign entry beside the runs of a study, and in the folders of its protocols."""
    runs = {(run.protocol, f"seed-{run.seed}") for run in results.runs}
    folders = {protocol for protocol, _ in runs} | set(map(str, results.scenario["protocols"]))
    yield from _foreign(results.folder, {*PAGES, MANIFEST, *folders})
    for protocol in sorted(folders):
        place = results.folder / protocol
        for entry in sorted(place.iterdir()) if place.is_dir() else ():
            ours = _BESIDE_RUNS.fullmatch(entry.name) or ASIDE.fullmatch(entry.name)
            if (protocol, entry.name) not in runs and not ours:
                yield f"{protocol}/{entry.name} {_WHY}"


def beside_points(folder: Path, points: Container[str]) -> Iterator[str]:
    """Yield a sentence for every foreign entry beside the ``points`` of a sweep, or of a tuning, and earlier points."""
    studies = {entry.name for entry in folder.iterdir() if entry.name in points or (entry / SCENARIO).is_file()}
    yield from _foreign(folder, studies | {SWEEP, *_TUNING})


def _foreign(folder: Path, known: Container[str]) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        name = entry.name
        derived = name in _MADE_FROM_RESULTS or (entry.suffix in _PICTURES and not name.startswith("."))
        ours = name in known or (derived and entry.is_file()) or name in (EARLIER, LOCK) or ASIDE.fullmatch(name)
        if not ours:
            yield f"{name} {_WHY}"


def verify_run(tables: RunTables, info: RunInfo) -> list[str]:
    """List every broken invariant of one run's tables, as sentences; empty if it is sound."""
    return [*_broken(Frames(tables, info.status != "finished"), info)]


def verify_folder(folder: Path | str, note: Callable[[str], object] = lambda text: None) -> list[str]:
    """List every problem of a folder of results, or of a sweep; empty if it is sound.

    Problems of a run begin with ``protocol/seed-n: ``. Problems also include missing, changed or added runs and files,
    results without digests, an unfinished study or sweep, failed runs and damaged tables. ``note`` is told
    what could not be compared. Raises ResultsError if the folder itself, or a ``run.json``, cannot be read.
    """
    folder = Path(folder)
    if not (folder / SWEEP).is_file():
        return [*_study(folder, note)]
    page = SweepPage.read(folder)
    problems = [*beside_points(folder, {entry.folder.partition("/")[0] for entry in page.points})]
    for entry in page.points:
        problems += [f"{entry.folder}: {problem}" for problem in of_value(page, entry, folder)]
        try:
            if (folder / entry.folder).is_dir():
                problems += [f"{entry.folder}/{problem}" for problem in _study(folder / entry.folder, note)]
        except ResultsError as error:
            problems.append(str(error))
    return problems


def runs_in(folder: Path | str) -> int:
    """Count the runs in a folder of results, or in the finished part of a sweep. Raises ResultsError."""
    studies = Sweep.open(folder).results if (Path(folder) / SWEEP).is_file() else [Results.open(folder)]
    return sum(len(results.runs) for results in studies)


def _study(folder: Path, note: Callable[[str], object]) -> Iterator[str]:
    results = Results.open(folder)
    yield from of_study(results)
    yield from beside_runs(results)
    scenario = ByScenario(results)
    for run in results.runs:
        problems = [*of_run(run)]
        if run.failed:
            problems.append(f"the run {run.info.status}: {run.info.error}")
        if run.has("metrics") or not run.failed:
            problems += problems_of(run, scenario)
        yield from (f"{run.protocol}/seed-{run.seed}: {problem}" for problem in problems)
    yield from summary_problems(results)
    yield from curve_problems(results, scenario)
    if scenario.unknown:
        note(f"{folder}: not compared with the scenario's models and codecs: {scenario.unknown}")


def problems_of(run: StoredRun, scenario: ByScenario) -> Iterator[str]:
    """Yield the broken invariants of a run: of its tables, then of its weights."""
    try:
        frames = Frames(run.tables(), run.failed)
        yield from (broken := [*_broken(frames, run.info)])
        yield from scenario.problems(run, frames)
        yield from page_problems(run, frames, scenario)
        if ENERGY in frames.metrics and not broken:  # energy adds up over times that are possible
            yield from energy_problems(run, frames, scenario.setting(run.info.protocol))
        if not (run.folder / WEIGHTS).is_file():  # of a finished run, its digests name the missing file
            return
        yield from weight_problems(run, None if run.info.timing_only else scenario.weights(run.info.protocol))
    except ResultsError as error:
        yield str(error)


def _broken(frames: Frames, info: RunInfo) -> Iterator[str]:
    for rule in RULES:
        yield from rule(frames, info)


RULES: tuple[Rule, ...] = (*EVENT_RULES, *COUNT_RULES, *VALUE_RULES)
