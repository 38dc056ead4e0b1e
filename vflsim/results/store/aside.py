"""Files and folders that appear whole or not at all: written in a hidden place beside their own, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from vflsim.errors import ResultsError


def write_whole(path: Path | str, content: bytes | str | Iterator[bytes]) -> Path:
    """Write one file (parts joined), whole or not at all. Raises ResultsError with the path.

    Parts are written one by one, so the whole need not fit into memory.
    """
    path = Path(path)
    with errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with errors_named(path), written_aside(path) as aside:
        write_bytes(aside, content.encode() if isinstance(content, str) else content)
    return path


@contextlib.contextmanager
def written_aside(place: Path) -> Iterator[Path]:
    """Yield a hidden path beside ``place``; rename it to ``place`` if the body succeeds, else remove it."""
    aside = place.with_name(f".{place.name}.writing-{os.getpid()}")
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
