"""Prepare the folder of a study, move it aside, put it back. Computed results are never deleted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vflsim.errors import ResultsError
from vflsim.files import content
from vflsim.results.store.write import (
    LOCK,
    MANIFEST,
    PAGES,
    REPORT,
    SCENARIO,
    errors_named,
    followed,
    remove,
    write_file,
)


@contextlib.contextmanager
def locked(folder: Path | str) -> Iterator[None]:
    """Lock a results folder; make it if it does not exist, and remove it at the end if it is empty.

    The operating system releases the lock when its process ends, however it ends; a leftover lock file has no effect.
    Raises ResultsError if another process (named in the message) holds the lock, or if the folder cannot be written.
    """
    folder = Path(os.path.abspath(followed(folder)))
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with errors_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
            handle = _taken(folder / LOCK)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.stat(folder / LOCK)):
                    (folder / LOCK).unlink()
            os.close(handle)
    finally:
        with contextlib.suppress(OSError):
            for place in made:
                place.rmdir()


def _taken(path: Path) -> int:
    """Take the lock: an open file with this process's number."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(path)):  # otherwise its holder has just removed it
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise ResultsError(
                f"is in use by another process, number {holder}",
                str(path.parent),
                "one process at a time in a results folder",
                "wait until it has ended, or choose another --out",
            ) from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<what>writing|replaced)-(?P<pid>\d+)")
"""The hidden name of what is being written, or replaced, by a process with this number."""


@dataclass(frozen=True)
class Prepared:
    """Outcome of :func:`prepare_folder`, or of :func:`~vflsim.studies.runs.reuse.grow_folder` (*grown*).

    ``moved_to`` is the new place of earlier results, all or (grown) the entries ``moved``; ``made`` lists the folders
    that did not exist, innermost first. ``before`` is the scenario that was there.
    """

    action: Literal["created", "kept", "moved", "grown"]
    folder: Path
    moved_to: Path | None = None
    made: tuple[Path, ...] = field(default=(), compare=False)
    moved: tuple[str, ...] = ()
    before: bytes = field(default=b"", compare=False)


def prepare_folder(out: Path | str, scenario_text: str, anew: bool = False, place: Path | None = None) -> Prepared:
    """Prepare ``out`` for runs of the scenario with this resolved text.

    A new or empty folder is *created*; a folder with results of exactly this text is *kept*; results of another
    scenario (``anew``: any results) are *moved* aside to ``place``, or ``<out>.previous-1`` (2, …), never deleted.
    Files that a killed process left half-written are deleted. If ``out`` is a link, all this happens to the folder that
    it points to, and the link stays. Raises ResultsError if ``out`` holds anything but results, or cannot be written.
    """
    out = Path(os.path.abspath(followed(out)))
    prepared = Prepared("created", out)
    with errors_named(out):
        if out.exists() and _content(out):
            if not anew and (out / SCENARIO).is_file() and content(out / SCENARIO) == scenario_text.encode():
                clear_leftovers(out)
                return Prepared("kept", out)
            _refuse_foreign(out)
            prepared = Prepared("moved", out, step_aside(out, place))
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
    """Undo :func:`prepare_folder` when no run was written. A folder that has grown stays so: it holds fitting runs."""
    folder = prepared.folder
    with contextlib.suppress(OSError):
        if folder.is_dir():
            for empty in folder.glob("*/.*"):
                with contextlib.suppress(OSError):  # it is not empty, or a file
                    empty.rmdir()
            for entry in _content(folder):
                if entry.is_dir() and not any(entry.iterdir()):
                    entry.rmdir()
            if prepared.action in ("kept", "grown") or any(entry.name != SCENARIO for entry in _content(folder)):
                return
            (folder / SCENARIO).unlink(missing_ok=True)
        if prepared.moved_to is not None:
            step_back(prepared.moved_to, folder)
            return
        for place in prepared.made:
            if place.is_dir():
                place.rmdir()


def _refuse_foreign(out: Path) -> None:
    """Raise ResultsError unless the folder holds a scenario.yaml and nothing that vflsim does not write."""
    ours = {*PAGES, MANIFEST, REPORT, "trace.json"}
    foreign = [
        entry.name
        for entry in _content(out)
        if entry.name not in ours
        and entry.suffix != ".png"
        and not ASIDE.fullmatch(entry.name)
        and not (entry.is_dir() and all(re.fullmatch(r"seed-\d+|\..*", run.name) for run in entry.iterdir()))
    ]
    if foreign or not (out / SCENARIO).is_file():
        raise ResultsError(
            f"holds other things than results ({', '.join(foreign[:3]) or f'no {SCENARIO}'})",
            where=str(out),
            allowed="a new or empty folder, or one that an earlier run has written",
            remedy="choose another --out",
        )


def clear_leftovers(out: Path) -> None:
    """Clean up after a killed process: delete its unfinished files, restore a run that it was about to replace."""
    for leftover in (*out.glob(".*"), *out.glob("*/.*")):
        match = ASIDE.fullmatch(leftover.name)
        if match is None or _alive(int(match["pid"])):
            continue
        place = leftover.with_name(match["name"])
        if match["what"] == "replaced" and not place.exists():
            leftover.rename(place)
        else:
            remove(leftover)


def set_aside(path: Path) -> Path:
    """Give a file that is about to be replaced a hidden name; the next study deletes it if this one is killed."""
    aside = path.with_name(f".{path.name}.replaced-{os.getpid()}")
    with errors_named(path):
        os.replace(path, aside)
    return aside


def _alive(pid: int) -> bool:
    """Whether another process with this number runs (our own number may be reused from a dead one)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid != os.getpid()


def _content(folder: Path) -> list[Path]:
    """List a folder's entries, without the lock."""
    return sorted(entry for entry in folder.iterdir() if entry.name != LOCK)


def step_aside(out: Path, place: Path | None = None) -> Path:
    """Rename a folder to ``place``, or ``<out>.previous-1`` (2, …); a lock moves to a new folder ``out``.

    If ``out`` is a link, the folder that it points to is renamed; the link stays.
    """
    out = followed(out)
    previous = place or free_previous(out)
    previous.parent.mkdir(exist_ok=True)
    out.rename(previous)
    if (previous / LOCK).exists():
        out.mkdir()
        (previous / LOCK).rename(out / LOCK)
    return previous


def free_previous(out: Path) -> Path:
    """Return ``<out>.previous-1``, or the first free number."""
    number = 1
    while os.path.lexists(previous := out.with_name(f"{out.name}.previous-{number}")):
        number += 1
    return previous


def step_back(previous: Path, out: Path) -> None:
    """Undo :func:`step_aside`; ``out`` must hold nothing but a lock."""
    out = followed(out)
    if (out / LOCK).exists():
        (out / LOCK).rename(previous / LOCK)
    if out.is_dir():
        out.rmdir()
    previous.rename(out)
