"""Verify results: digests of files, and invariants of finished runs.

For a folder, digests come first: they show every change, unless the digests were changed too. Invariants then show
impossible tables of any origin. Each rule reads the tables and yields a sentence for every violation; it skips tables
that were not recorded. Rules compare times exactly: an activity begins at or after the exact end of its predecessor.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from vflsim.errors import ResultsError
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import ASIDE, EARLIER, LOCK, MANIFEST, PAGES, REPORT, RUN, SCENARIO, SWEEP, WEIGHTS
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.pages import FileFacts, RunInfo
from vflsim.results.store.schema import RunTables
from vflsim.results.store.write import changes, strangers
from vflsim.results.sweeps.axis import setting_of
from vflsim.results.sweeps.sweep import Sweep, SweepPage, SweepPoint
from vflsim.results.verify.derived import curve_problems, energy_problems, summary_problems
from vflsim.results.verify.frames import ROUNDING, SHOWN, Frames, Rule, each, falls, numbered, overlapping
from vflsim.results.verify.links import LINK_RULES, OUTAGE_RULES, Downtime
from vflsim.results.verify.scenario import ByScenario, page_problems, weight_problems
from vflsim.results.verify.values import COUNT_RULES, VALUE_RULES
from vflsim.world.record import OUTCOMES
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


def _times_are_sound(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Metrics run from 0 to the end; nothing lasts a negative time; what is done has its times."""
    times = frames.metrics["time_s"]
    if times[0] != 0 if len(times) else not frames.cut:
        yield "metrics: the first row is not at time 0"
    if np.isnan(times).any() or falls(times).any():
        yield "metrics: time_s does not ascend"
    events = frames.events
    if events is None:
        return
    start, end = events["start_s"], events["end_s"]
    yield from each(events, np.isnan(start) | np.isnan(end), "has no time")
    yield from each(events, end < start, "has a negative duration")
    yield from each(events, events["drawn_s"] < 0, "has drawn a negative duration")
    yield from each(events, start < 0, "starts before the run")
    yield from each(events, end > frames.end, f"ends after the run, which ended at {frames.end} s")


def _outcomes_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Every activity has a known outcome; an unfinished one ends with the run."""
    events = frames.events
    if events is None:
        return
    outcomes = events.names("outcome")
    yield from each(events, ~outcomes.among(OUTCOMES), f"has an outcome that is none of {', '.join(OUTCOMES)}")
    unfinished = outcomes.are("unfinished") & (events["end_s"] != frames.end)
    yield from each(events, unfinished, f"is unfinished, but the run continued until {frames.end} s")
    yield from each(events, events["bytes"] < 0, "sent a negative number of bytes")


def _parties_compute_one_thing_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's compute.* activities do not overlap."""
    if frames.events is None:
        return
    computes = frames.of("compute.")
    overlaps = overlapping(computes, "party")
    if not overlaps.any():
        return
    broken = computes.where(overlaps)
    for (party,), places in broken.groups("party"):
        ordered = broken.where(places[np.lexsort((broken["end_s"][places], broken["start_s"][places]))])
        yield from each(ordered, np.ones(len(ordered)), f"begins while {party} still computes something else")


def _draws_are_numbered_once(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Each index of a (party, kind) is drawn once; an upload lasts as long as its draw."""
    if frames.events is None:
        return
    drawn = frames.events.where(~np.isnan(frames.events["drawn_s"]))
    again, numbers = numbered(drawn)
    yield from each(drawn, again, "uses an index for the second time")
    yield from each(drawn, drawn["index"] < 0, "was drawn, but has no index")
    for series in numbers:
        # Activations that find the client busy leave no event.
        if series.highest >= series.count and not series.kind.startswith("activation"):
            count = f"{series.count} events, but the highest index is {series.highest}"
            yield f"{series.party} {series.kind}: {count}: some are missing"
    if info.reproducible:  # a real-time run uses the machine's clock
        outages, kinds = Downtime(frames.events), drawn.names("kind")
        as_long = kinds.begin("upload")
        if not outages.most:
            as_long |= kinds.begin("latency") | kinds.begin("share")
        uploads = drawn.where(as_long & drawn.names("outcome").are("done"))
        lasted = uploads["end_s"] - uploads["start_s"] - outages.seconds(uploads)  # an outage pauses the upload
        off = np.abs(lasted - uploads["drawn_s"]) > ROUNDING * (1 + outages.most) * (1 + uploads["end_s"])
        yield from each(uploads, off, "did not last as long as was drawn")


def _messages_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's messages of a kind are numbered in the order of sending: none is missing or repeated."""
    if frames.events is None:
        return
    transfers = frames.of("transfer.")
    twice, numbers = numbered(transfers)
    yield from each(transfers, twice, "is listed twice")
    for series in numbers:
        sent = series.highest + 1
        if sent > series.distinct:
            yield f"events: {series.party} sent {sent} {series.kind}, of which {sent - series.distinct} are missing"


def _staleness_is_bounded(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The age that ``max_staleness`` bounds never exceeds it."""
    if info.max_staleness is None:
        return
    column = f"{info.staleness_bounds}_max"
    ages, times = frames.metrics[column], frames.metrics["time_s"]
    for row in np.flatnonzero(ages > info.max_staleness)[:SHOWN]:
        yield f"metrics at {times[row]} s: {column} is {ages[row]:g}, max_staleness is {info.max_staleness}"


def _rounds_are_contiguous(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Rounds are numbered without a gap; each starts at 0 or at the end of the previous round."""
    rounds = frames.rounds
    if rounds is None:
        return
    if not len(rounds):
        return
    number, start, end = (rounds[name] for name in ("round", "start_s", "end_s"))
    if start[0] != 0:
        yield f"rounds: the first starts at {start[0]} s instead of 0"
    if not end[-1] <= frames.end:
        yield f"rounds: the last ends at {end[-1]} s, after the run ({frames.end} s)"
    rules = {
        "does not follow the previous round": 1 + np.flatnonzero(np.diff(number) != 1),
        "does not start at the end of the previous round": 1 + np.flatnonzero(start[1:] != end[:-1]),
        "has a negative duration": np.flatnonzero(~(end >= start)),
    }
    for sentence, broken in rules.items():
        for row in broken[:SHOWN]:
            yield f"rounds: round {number[row]} ({start[row]} s to {end[row]} s) {sentence}"


RULES: tuple[Rule, ...] = (
    _times_are_sound,
    _outcomes_are_accounted_for,
    _parties_compute_one_thing_at_a_time,
    _draws_are_numbered_once,
    _messages_are_accounted_for,
    *LINK_RULES,
    *COUNT_RULES,
    _staleness_is_bounded,
    _rounds_are_contiguous,
    *OUTAGE_RULES,
    *VALUE_RULES,
)
