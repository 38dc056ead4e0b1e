"""Move single runs of a results folder aside, and back. The rest of the folder stays for another scenario."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.files import content
from vflsim.results.read import Results
from vflsim.results.store.folder import Prepared, free_previous
from vflsim.results.store.manifest import ManifestWriter
from vflsim.results.store.write import MANIFEST, PAGES, SCENARIO, SUMMARIES, errors_named, followed, write_file
from vflsim.results.tables.comparison import write_summary


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
