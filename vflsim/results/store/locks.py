"""Locks on open files, which the system takes back when their process ends, however it ends."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_FAR = 2**30
"""The byte that is locked on Windows: beyond what is written, so that others can still read that."""


def lock(handle: int) -> None:
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


def read_start(handle: int, most: int) -> bytes:
    """Read the beginning of an open file."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, most)


def write_whole(handle: int, content: bytes) -> None:
    """Make ``content`` all that an open file holds."""
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, content)
