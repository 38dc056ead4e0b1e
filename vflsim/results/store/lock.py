"""Lock a results folder: one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.results.store.write import LOCK, errors_named, followed


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
