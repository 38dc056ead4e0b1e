"""Results of shards in one folder: runs are copied unchanged, pages are written as by a single process."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from vflsim.errors import NonFiniteError, ResultsError, RunError
from vflsim.files import opened
from vflsim.results.read import Results
from vflsim.results.store.json_files import read_info
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import RUN, SCENARIO, changes, facts_of, foreign, run_folder, write_arrived
from vflsim.studies.engines.base import Reports, Unit
from vflsim.studies.pool import Study
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, Watcher
from vflsim.studies.runs.resume import differences
from vflsim.studies.shards.compute import FOLDER, dealt
from vflsim.studies.shards.unit_file import PlannedUnit, UnitPlan
from vflsim.studies.study import run_study
from vflsim.studies.sweeps.sweep import SweepDone, SweepWatcher, run_sweep

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Found:
    """A run's folder with all its files as they were written."""

    place: Path
    info: RunInfo


class Collected:
    """The engine that copies runs instead of executing them."""

    def __init__(self, found: Mapping[tuple[str, str, int], _Found]) -> None:
        self._found = found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Copy the run of every unit. Raises ResultsError if a file has changed or cannot be written."""
        for unit in units:
            interrupt.check()
            unit.watcher.began(unit.run)
            digest = hashlib.sha256(unit.spec.text.encode()).hexdigest()
            if (found := self._found.get((digest, unit.run.protocol, unit.run.seed))) is None:
                what = f"the plan has no unit of {unit.run.protocol} with seed {unit.run.seed}"
                raise ResultsError(what, str(unit.spec.folder), remedy="write the plan anew with vflsim plan")
            place = run_folder(unit.spec.folder, unit.run.protocol, unit.run.seed)
            write_arrived(place, found.info, lambda name, source=found.place: opened(source / name))  # type: ignore[misc]
            unit.spec.settle(unit.run.protocol, unit.run.seed)
            yield unit, report_of(found.place, found.info)


def collect_study(
    plan: UnitPlan, folders: Sequence[Path], out: Path | None = None, watcher: Watcher | None = None
) -> Study:
    """Merge the results of shards in ``folders`` (those of shards, or folders that hold them) into ``out``.

    The files are those of a single process. Raises ResultsError with every missing or changed run and the command that
    computes it, and the errors of ``run_study``.
    """
    engine = Collected(_found(plan, folders))
    scenario, head = plan.scenario(plan.head.studies[0]), plan.head
    return run_study(
        scenario, out, timing_only=head.timing_only, path=head.path, options=head.options(), watcher=watcher,
        engine=engine,
    )  # fmt: skip


def collect_sweep(
    plan: UnitPlan, folders: Sequence[Path], out: Path | None = None, watcher: SweepWatcher | None = None
) -> SweepDone:
    """Merge the results of a sweep's shards as ``collect_study`` does. Raises also the errors of ``run_sweep``."""
    engine = Collected(_found(plan, folders))
    return run_sweep(plan.sweep(), out, options=plan.head.options(), watcher=watcher, engine=engine)


def otherwise(plan: UnitPlan, results: Sequence[Results]) -> list[str]:
    """Say which runs were executed under other conditions than here, such as other versions of packages."""
    specs = (plan.spec(study, Path(), plan.head.options(), ()) for study in plan.head.studies)
    pairs = zip(specs, results, strict=True)
    return [each for spec, found in pairs for each in differences([run.info for run in found.runs], spec)]


def _found(plan: UnitPlan, folders: Sequence[Path]) -> dict[tuple[str, str, int], _Found]:
    """Find the run of every unit by scenario, protocol and seed. Of several, choose one that did not fail."""
    roots = list(dict.fromkeys(root for folder in folders for root in (folder, *sorted(folder.glob("shard-*")))))
    found: dict[tuple[str, str, int], _Found] = {}
    problems: dict[int, str] = {}
    for place, unit in enumerate(plan.units):
        tried = [_of(root, unit) for root in roots]
        if sound := [each for each in tried if isinstance(each, _Found)]:
            found[unit.scenario, *unit.run] = min(sound, key=lambda each: each.info.status == "failed")
        else:
            whys = [each for each in tried if isinstance(each, str)]
            problems[place] = f"{unit.folder}: {whys[0] if whys else 'missing'}"
    if problems:
        raise _incomplete(plan, problems, roots, folders)
    return found


def report_of(place: Path, info: RunInfo) -> Report:
    """Return the report of a run from its folder."""
    with opened(place / "metrics.parquet") as file:
        rows = pq.read_table(file, partitioning=None)
    error = None
    if info.error is not None:
        error = (NonFiniteError if info.status == "diverged" else RunError)(info.error)
    return Report(info, dict(*rows.slice(max(0, rows.num_rows - 1)).to_pylist()), error=error)


def _of(root: Path, unit: PlannedUnit) -> _Found | str | None:
    """Look for a unit in the folder of a shard. Return a sentence if its files have changed since they were written."""
    place = root / unit.folder
    page = place.parents[1] / SCENARIO
    try:
        if not (place / RUN).is_file() or facts_of(page).sha256 != unit.scenario:
            return None
        info = read_info(place)
        manifest = Manifest.read(page.parent)
    except OSError as error:
        return str(error)
    except ResultsError as error:
        return f"{error.where}: {error.what}"
    files, entry = info.files or {}, entry_of(*unit.run)
    if strange := foreign(info) or next((name for name in files if (place / name).is_symlink()), ""):
        return f"{strange!r} is no file of a run"
    if "metrics.parquet" not in files:
        return "run.json lists no metrics.parquet"
    listed = {} if manifest is None else manifest.files
    problems = [*changes(page.parent, {entry: listed[entry]} if entry in listed else {}), *changes(place, files)]
    return f"in {root}: {problems[0]}" if problems else _Found(place, info)


def _incomplete(
    plan: UnitPlan, problems: Mapping[int, str], roots: Sequence[Path], folders: Sequence[Path]
) -> ResultsError:
    """Make the error that names missing units, and the commands that compute them."""
    counts = {int(match[2]) for root in roots if (match := FOLDER.fullmatch(root.name)) is not None}
    shards = dealt(plan, counts.pop() if len(counts) == 1 else 1)
    out = next((root.parent for root in roots if FOLDER.fullmatch(root.name)), folders[0])
    lines = [f"{text} (shard {shards[place]})" for place, text in problems.items()]
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    commands = [
        shlex.join(["vflsim", "work", plan.where, "--shard", str(own), "--out", str(out)])
        for own in dict.fromkeys(shards[place] for place in problems)
    ]
    what = "\n    ".join([f"{len(lines)} of {len(plan.units)} units are missing", *lines[:_SHOWN], *more])
    return ResultsError(what, plan.where, remedy="\n    ".join(["compute them:", *commands]))
