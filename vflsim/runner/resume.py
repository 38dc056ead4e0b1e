"""Going on where a study ended: which of its runs stay, and whether it is still the same study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from vflsim.errors import ResultsError
from vflsim.results.pages import read_info, read_scenario
from vflsim.results.schema import RunInfo
from vflsim.results.write import SCENARIO, WEIGHTS, run_folder
from vflsim.runner.run import versions
from vflsim.runner.work import Work
from vflsim.scenario.emit import flow

_SHOWN = 8
_LONG = 60
_ABSENT = object()


def refuse_another(folder: Path, text: str) -> None:
    """Raise ResultsError, with every key that differs, if a folder holds results of another scenario than this text."""
    path = folder / SCENARIO
    if path.is_file() and path.read_bytes() != text.encode():
        try:
            there = read_scenario(path)
        except ResultsError as error:
            remedy = "put it back as it was, or run without --resume: what is there is then moved aside"
            raise ResultsError(error.what, error.where, "the scenario that earlier results are of", remedy) from error
        raise another(folder, there, YAML(typ="safe", pure=True).load(text))


def another(folder: Path, old: Any, new: Any) -> ResultsError:
    """The error that says in what the scenario of earlier results is not the one that is to go on."""
    changes = [*changed(old, new)] or ["training or timing alone (--timing-only)"]
    more = [f"… and {len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else []
    return ResultsError(
        "\n    ".join(["holds results of another scenario, and cannot go on with them", *changes[:_SHOWN], *more]),
        str(folder),
        "to resume, the very same scenario, seeds and overrides",
        "change it back, or choose another --out; without --resume these results are moved aside",
    )


def changed(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """What differs between two resolved scenarios: ``training.batch: 20 → 32``, one line a key."""
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(each, Mapping) for each in (*old, *new)):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from changed(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else str(name))
    elif old is _ABSENT or new is _ABSENT or flow(old) != flow(new):
        yield f"{key}: {_shown(old)} → {_shown(new)}"


def finished(work: Work) -> dict[tuple[str, int], RunInfo]:
    """The runs of a study that have ended without an error, and whose folder is complete."""
    runs = ((name, seed) for name in work.scenario.protocols for seed in work.scenario.seeds)
    found = {run: _finished(run_folder(work.folder, *run), work) for run in runs}
    return {run: info for run, info in found.items() if info is not None}


def differences(infos: Sequence[RunInfo], work: Work) -> list[str]:
    """In what finished runs were made otherwise than they would be now: ``2 of 3 with torch 2.3 (now 2.4)``."""
    execution = work.manner.execution
    plane = None if work.timing_only else execution.learning_plane
    packages = versions()
    told: Counter[str] = Counter()
    for info in infos:
        now = _facts(packages, execution.threads, work.device_of(info.protocol), execution.tf32, plane)
        then = _facts(info.versions, info.threads, info.device, info.tf32, info.learning_plane)
        told.update(
            f"{what} {then.get(what, 'unknown')} (now {now[what]})" for what in now if then.get(what) != now[what]
        )
    return [f"{count} of {len(infos)} with {what}" for what, count in told.items()]


def _facts(packages: Mapping[str, str], threads: int, device: str, tf32: bool, plane: str | None) -> dict[str, str]:
    products = "tf32" if tf32 else "float32"
    return {
        **packages,
        "threads": str(threads),
        "device": device,
        "products": products,
        "learning plane": plane or "none",
    }


def _finished(folder: Path, work: Work) -> RunInfo | None:
    """The page of a run that need not be done again."""
    tables = {"events": 3, "rounds": 2, "summary": 1}[work.scenario.record]
    try:
        info = read_info(folder)
        for name in ("metrics", "rounds", "events")[:tables]:
            pq.read_metadata(folder / f"{name}.parquet")
    except (ResultsError, OSError, pa.ArrowException):
        return None
    return info if info.status == "finished" and (folder / WEIGHTS).is_file() else None


def _shown(value: object) -> str:
    text = "absent" if value is _ABSENT else flow(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
