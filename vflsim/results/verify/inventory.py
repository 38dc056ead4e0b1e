"""Whether a folder holds exactly what its study wrote: runs, files, their digests, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import ASIDE
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.schema import FileFacts
from vflsim.results.store.write import EARLIER, LOCK, MANIFEST, PAGES, REPORT, RUN, SCENARIO, SWEEP, changes, strangers
from vflsim.results.sweeps.axis import setting_of
from vflsim.results.sweeps.sweep import SweepPage, SweepPoint

SHOWN = 8
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
    yield from islice(rest, SHOWN)
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
        made = name in _MADE_FROM_RESULTS or (entry.suffix in _PICTURES and not name.startswith("."))
        ours = name in known or (made and entry.is_file()) or name in (EARLIER, LOCK) or ASIDE.fullmatch(name)
        if not ours:
            yield f"{name} {_WHY}"
