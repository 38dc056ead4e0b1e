"""Entries of a results folder that vflsim has not written: nobody's digests cover them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path

from vflsim.results.read import Results
from vflsim.results.store.folder import ASIDE
from vflsim.results.store.write import LOCK, MANIFEST, PAGES, REPORT, SWEEP

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
    """Yield a sentence for every foreign entry beside the ``points`` of a sweep, or of a tuning."""
    known = {SWEEP, *_TUNING}
    yield from _foreign(folder, {entry.name for entry in folder.iterdir() if entry.name in points} | known)


def _foreign(folder: Path, known: Container[str]) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        name = entry.name
        made = name in _MADE_FROM_RESULTS or (entry.suffix in _PICTURES and not name.startswith("."))
        ours = name in known or (made and entry.is_file()) or name == LOCK or ASIDE.fullmatch(name)
        if not ours:
            yield f"{name} {_WHY}"
