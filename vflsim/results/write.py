"""Writing runs: a folder appears whole or not at all, and the same tables always become the same bytes.

Everything is written into a hidden folder beside its final place and renamed. The parquet files hold no time stamp and
nothing of the machine; wall-clock figures stand in ``run.json`` alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError
from vflsim.results.schema import Record, RunInfo, RunTables

if TYPE_CHECKING:
    import torch

SCENARIO = "scenario.yaml"
WEIGHTS = "weights.safetensors"
RUN = "run.json"
SWEEP = "sweep.json"
LOCK = ".lock"
"""There while a process writes into a folder: see :mod:`vflsim.results.lock`."""
ROW_GROUP = 131_072
_ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<what>writing|replaced)-(?P<pid>\d+)")


@dataclass(frozen=True)
class Prepared:
    """What :func:`prepare_folder` found and did.

    ``moved_to`` is where results of another scenario now are; ``made`` are the folders that did not exist, innermost
    first.
    """

    action: Literal["created", "kept", "moved"]
    folder: Path
    moved_to: Path | None = None
    made: tuple[Path, ...] = field(default=(), compare=False)


def run_folder(out: Path | str, protocol: str, seed: int) -> Path:
    """Where a run stands inside a results folder."""
    return Path(out) / protocol / f"seed-{seed}"


def write_run(
    folder: Path | str,
    tables: RunTables,
    weights: Mapping[str, torch.Tensor],
    info: RunInfo,
    record: Record = "events",
    extra: Mapping[str, pa.Table] | None = None,
) -> None:
    """Write one run as ``folder``, whole or not at all.

    A run that stands there already is replaced once the new one is complete. ``record`` says which tables are kept;
    ``extra`` are tables that a protocol recorded of its own, ``<name>.parquet`` each.
    Raises ResultsError naming the path when the disk is full or the place cannot be written; nothing half-written
    stays behind, and an older run stays as it was.
    """
    from safetensors.torch import save

    folder = Path(folder)
    plain = {name: weights[name].detach().cpu().clone().contiguous() for name in sorted(weights)}
    with errors_named(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(folder) as aside:
            aside.mkdir()
            for name, table in {**(extra or {}), **tables.kept(record).named()}.items():
                _write_table(aside / f"{name}.parquet", table)
            _write_bytes(aside / WEIGHTS, save(plain))
            _write_bytes(aside / RUN, (info.model_dump_json(indent=2) + "\n").encode())
            _sync(aside)


def write_file(path: Path | str, content: bytes | str | pa.Table | Iterator[bytes]) -> Path:
    """Write one file (a table becomes parquet, parts are joined), whole or not at all. Raises ResultsError with path.

    Parts are written as they come, so that the whole need not fit into memory.
    """
    path = Path(path)
    with errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with errors_named(path), written_aside(path) as aside:
        if isinstance(content, pa.Table):
            _write_table(aside, content)
        else:
            _write_bytes(aside, content.encode() if isinstance(content, str) else content)
    return path


def prepare_folder(out: Path | str, scenario_text: str) -> Prepared:
    """Make ``out`` ready for runs of the scenario whose resolved text is given, and say what was done.

    A new or empty folder is *created*; one that holds results of the very same text is *kept*; results of another
    scenario are *moved* aside to ``<out>.previous-1`` (2, …), never deleted. What a killed process left half-written
    is cleared away. Raises ResultsError if ``out`` holds anything but results, or cannot be written.
    """
    out = Path(os.path.abspath(out))
    prepared = Prepared("created", out)
    with errors_named(out):
        if out.exists() and _content(out):
            if (out / SCENARIO).is_file() and (out / SCENARIO).read_bytes() == scenario_text.encode():
                _clear_leftovers(out)
                return Prepared("kept", out)
            _refuse_foreign(out)
            prepared = Prepared("moved", out, step_aside(out))
        prepared = replace(prepared, made=tuple(place for place in (out, *out.parents) if not place.exists()))
    try:
        with errors_named(out):
            out.mkdir(parents=True, exist_ok=True)
        write_file(out / SCENARIO, scenario_text)
    except BaseException:
        withdraw(prepared)
        raise
    return prepared


def withdraw(prepared: Prepared) -> None:
    """Undo :func:`prepare_folder` because no run was written after all: everything is as it was."""
    folder = prepared.folder
    with contextlib.suppress(OSError):
        if folder.is_dir():
            for empty in folder.glob("*/.*"):
                with contextlib.suppress(OSError):  # it is not empty, or a file
                    empty.rmdir()
            for entry in _content(folder):
                if entry.is_dir() and not any(entry.iterdir()):
                    entry.rmdir()
            if prepared.action == "kept" or any(entry.name != SCENARIO for entry in _content(folder)):
                return
            (folder / SCENARIO).unlink(missing_ok=True)
        if prepared.moved_to is not None:
            step_back(prepared.moved_to, folder)
            return
        for place in prepared.made:
            if place.is_dir():
                place.rmdir()


def _refuse_foreign(out: Path) -> None:
    """Only a folder of ours is ever moved: a scenario.yaml, and beside it nothing but what runs leave."""
    ours = {SCENARIO, "summary.parquet", "summary.md", "closed_forms.parquet", "trace.json"}
    foreign = [
        entry.name
        for entry in _content(out)
        if entry.name not in ours
        and entry.suffix != ".png"
        and not _ASIDE.fullmatch(entry.name)
        and not (entry.is_dir() and all(re.fullmatch(r"seed-\d+|\..*", run.name) for run in entry.iterdir()))
    ]
    if foreign or not (out / SCENARIO).is_file():
        raise ResultsError(
            f"holds other things than results ({', '.join(foreign[:3]) or f'no {SCENARIO}'})",
            where=str(out),
            allowed="a new or empty folder, or one that an earlier run has written",
            remedy="choose another --out",
        )


def _clear_leftovers(out: Path) -> None:
    """Undo what a killed process left: drop its unfinished files, put a run it was about to replace back."""
    for leftover in (*out.glob(".*"), *out.glob("*/.*")):
        match = _ASIDE.fullmatch(leftover.name)
        if match is None or _alive(int(match["pid"])):
            continue
        place = leftover.with_name(match["name"])
        if match["what"] == "replaced" and not place.exists():
            leftover.rename(place)
        else:
            _remove(leftover)


def _alive(pid: int) -> bool:
    """Whether somebody else may still be writing under this process number (ours may be a dead one's, used again)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid != os.getpid()


def _content(folder: Path) -> list[Path]:
    """What is in a folder, but for a lock."""
    return sorted(entry for entry in folder.iterdir() if entry.name != LOCK)


def step_aside(out: Path) -> Path:
    """Rename a folder to ``<out>.previous-1``, or the first number that is free; a lock stays behind in a new one."""
    number = 1
    while os.path.lexists(previous := out.with_name(f"{out.name}.previous-{number}")):
        number += 1
    out.rename(previous)
    if (previous / LOCK).exists():
        out.mkdir()
        (previous / LOCK).rename(out / LOCK)
    return previous


def step_back(previous: Path, out: Path) -> None:
    """Undo :func:`step_aside`; ``out`` holds nothing by now, but for a lock."""
    if (out / LOCK).exists():
        (out / LOCK).rename(previous / LOCK)
    if out.is_dir():
        out.rmdir()
    previous.rename(out)


@contextlib.contextmanager
def written_aside(place: Path) -> Iterator[Path]:
    """Yield a hidden path beside ``place``; what the body makes there takes that place if the body succeeds."""
    aside = place.with_name(f".{place.name}.writing-{os.getpid()}")
    _remove(aside)
    try:
        yield aside
        _exchange(aside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(aside)
        raise


def _exchange(aside: Path, place: Path) -> None:
    """Rename ``aside`` to ``place``; a folder cannot be renamed over another one, so the old one steps back first."""
    if aside.is_dir() and place.exists():
        replaced = place.with_name(f".{place.name}.replaced-{os.getpid()}")
        _remove(replaced)
        place.rename(replaced)
        try:
            aside.rename(place)
        except BaseException:
            replaced.rename(place)
            raise
        _remove(replaced)
    else:
        os.replace(aside, place)
    _sync(place.parent)


def _write_table(path: Path, table: pa.Table) -> None:
    with open(path, "xb") as file:
        pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP, version="2.6")
        file.flush()
        os.fsync(file.fileno())


def _write_bytes(path: Path, content: bytes | Iterator[bytes]) -> None:
    with open(path, "xb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make a folder's entries survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def errors_named(place: Path) -> Iterator[None]:
    """Turn the operating system's errors into a ResultsError that names the place."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot be written: {error.strerror or error}",
            where=str(place),
            allowed="a folder on a disk with room, where files may be made",
            remedy="free some space, mend the permissions, or choose another --out",
        ) from error
