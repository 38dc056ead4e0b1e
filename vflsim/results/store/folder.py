"""The folder of a study: one process at a time, what a killed one left, and how it was before."""

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from vflsim.errors import ResultsError

SCENARIO = "scenario.yaml"
WEIGHTS = "weights.safetensors"
VIEWS = "views.safetensors"
RUN = "run.json"
SEED = "seed"
"""In the metadata of tensors: the seed of their run. Not its name: runs of equal protocols have equal bytes."""
MANIFEST = "manifest.json"
SWEEP = "sweep.json"
SUMMARIES = ("summary.parquet", "summary.md")
REPORT = "report.html"
PAGES = (SCENARIO, *SUMMARIES, "closed_forms.parquet")
"""Files of a study beside its runs. Figures, traces and the report do not count: they can be made again at any time."""
EARLIER = "earlier"
"""The folder of runs of earlier scenarios: see :mod:`vflsim.studies.runs.store`."""
LOCK = ".lock"
"""Exists while a process writes into a folder: see :func:`locked`."""

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_FAR = 2**30
"""The byte that is locked on Windows: beyond what is written, so that others can still read that."""


def run_folder(out: Path | str, protocol: str, seed: int) -> Path:
    """Return a run's folder inside a results folder."""
    return Path(out) / protocol / f"seed-{seed}"


def followed(folder: Path | str) -> Path:
    """Resolve a folder that is a link (its target need not exist); return any other folder unchanged."""
    return Path(os.path.realpath(folder)) if os.path.islink(folder) else Path(folder)


def write_whole(path: Path | str, content: bytes | str | Iterator[bytes]) -> Path:
    """Write one file (parts joined), whole or not at all. Raises ResultsError with the path.

    Parts are written one by one, so the whole need not fit into memory.
    """
    path = Path(path)
    with written_aside(path) as aside:
        write_bytes(aside, content.encode() if isinstance(content, str) else content)
    return path


@contextlib.contextmanager
def written_aside(place: Path) -> Iterator[Path]:
    """Yield a hidden path beside ``place``; rename it to ``place`` if the body succeeds, else remove it.

    Raises ResultsError, which names the place, for errors of the operating system.
    """
    aside = place.with_name(f".{place.name}.writing-{os.getpid()}")
    with errors_named(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        remove(aside)
        try:
            yield aside
            _exchange(aside, place)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(aside)
            raise


def _exchange(aside: Path, place: Path) -> None:
    """Rename ``aside`` to ``place``. A folder cannot replace another one, so the old one is renamed first."""
    if aside.is_dir() and place.exists():
        replaced = place.with_name(f".{place.name}.replaced-{os.getpid()}")
        remove(replaced)
        place.rename(replaced)
        try:
            aside.rename(place)
        except BaseException:
            replaced.rename(place)
            raise
        remove(replaced)
    else:
        os.replace(aside, place)
    sync(place.parent)


def write_bytes(path: Path, content: bytes | Iterator[bytes]) -> None:
    """Write a file that does not exist yet, and flush it to disk."""
    with open(path, "xb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Make a folder's entries survive a power cut, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def errors_named(place: Path) -> Iterator[None]:
    """Turn the operating system's errors into ResultsError with the place."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot be written: {error.strerror or error}",
            where=str(place),
            allowed="a folder on a disk with room, where files may be made",
            remedy="free some space, change the permissions, or choose another --out",
        ) from error


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
            ours = False
            with contextlib.suppress(OSError):
                ours = os.path.samestat(os.fstat(handle), os.stat(folder / LOCK))
                if ours:
                    (folder / LOCK).unlink()
            os.close(handle)
            with contextlib.suppress(OSError):
                if ours and sys.platform == "win32":  # which removes no open file
                    (folder / LOCK).unlink(missing_ok=True)
    finally:
        with contextlib.suppress(OSError):
            for place in made:
                place.rmdir()


def _taken(path: Path) -> int:
    """Take the lock: an open file with this process's number."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
            if os.path.samestat(os.fstat(handle), os.stat(path)):  # otherwise its holder has just removed it
                os.ftruncate(handle, 0)
                os.lseek(handle, 0, os.SEEK_SET)
                os.write(handle, str(os.getpid()).encode())
                return handle
        except BlockingIOError:
            os.lseek(handle, 0, os.SEEK_SET)
            holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
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


def _lock(handle: int) -> None:
    """Lock an open file. Raises BlockingIOError if another process has done so."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    windows = import_module("msvcrt")
    os.lseek(handle, _FAR, os.SEEK_SET)
    try:
        windows.locking(handle, windows.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(*error.args) from error


ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<what>writing|replaced)-(?P<pid>\d+)")
"""The hidden name of what is being written, or replaced, by a process with this number."""


@dataclass(frozen=True)
class Prepared:
    """A results folder that is ready for its runs.

    ``moved_to`` is the place of the entries ``moved``, which belong to the scenario that was there ``before``; ``made``
    lists the folders that did not exist, innermost first.
    """

    folder: Path
    moved_to: Path | None = None
    made: tuple[Path, ...] = field(default=(), compare=False)
    moved: tuple[str, ...] = ()
    before: bytes = field(default=b"", compare=False)


def withdraw(prepared: Prepared) -> None:
    """Restore a folder in which no run was written, unless it holds runs or checkpoints of its scenario."""
    folder = prepared.folder
    with contextlib.suppress(OSError):
        for empty in (*folder.glob("*/.*"), *folder.glob("*")):
            with contextlib.suppress(OSError):  # it is not empty, or a file
                empty.rmdir()
        if not any(entry.name not in (SCENARIO, EARLIER) for entry in content_of(folder)):
            restore(prepared)


def restore(prepared: Prepared) -> None:
    """Undo what was prepared."""
    folder, place = prepared.folder, prepared.moved_to
    with contextlib.suppress(OSError):
        if prepared.before:
            if (page := folder / SCENARIO).read_bytes() != prepared.before:
                try:
                    write_whole(page, prepared.before)
                except ResultsError:  # the disk is full; this takes no room
                    if place is not None:
                        os.replace(place / SCENARIO, page)
        else:
            (folder / SCENARIO).unlink(missing_ok=True)
            for made in prepared.made:
                made.rmdir()
        if place is not None:
            returned(place, folder, [name for name in prepared.moved if (place / name).exists()])


def returned(source: Path, folder: Path, names: Iterable[str]) -> None:
    """Move entries of results to another folder, and the pages, too, if no run is left."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).rename(folder / name)
        if (protocol := (source / name).parent) != source:
            with contextlib.suppress(OSError):  # other entries are in it
                protocol.rmdir()
    if source.parent.name == EARLIER and not any(entry.is_dir() for entry in source.iterdir()):
        for page in source.iterdir():
            if not (folder / page.name).exists():
                page.rename(folder / page.name)
        remove(source)
        with contextlib.suppress(OSError):
            source.parent.rmdir()


def refuse_foreign(out: Path) -> None:
    """Raise ResultsError for a folder with anything that vflsim does not write, or without a scenario."""
    ours = {*PAGES, MANIFEST, REPORT, EARLIER, "trace.json"}
    foreign = [
        entry.name
        for entry in (content_of(out) if out.exists() else ())
        if entry.name not in ours
        and entry.suffix != ".png"
        and not ASIDE.fullmatch(entry.name)
        and not (entry.is_dir() and all(re.fullmatch(r"seed-\d+|\..*", run.name) for run in entry.iterdir()))
    ]
    if foreign or (out.exists() and content_of(out) and not (out / SCENARIO).is_file()):
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


def content_of(folder: Path) -> list[Path]:
    """List a folder's entries, without the lock."""
    return sorted(entry for entry in folder.iterdir() if entry.name != LOCK)
