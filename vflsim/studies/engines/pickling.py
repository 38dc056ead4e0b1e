"""Pickles studies for a process's own workers, with classes and functions of its main module."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import cloudpickle

from vflsim.studies.engines.crashed import not_handed_over


def pickled(study: object) -> bytes:
    """Pickle a study for a worker's ``pickle.loads``. Raises ScenarioError if it cannot be pickled.

    Classes and functions of the main module, and local ones, go by value, since a worker cannot import those of a
    prompt, a notebook or standard input. They are trusted: this process wrote them, and only its own workers read the
    bytes, through pipes that no other process holds. All else goes by name, as usual.
    """
    try:
        return bytes(cloudpickle.dumps(study))
    except Exception as error:
        if _main_is_a_file():  # pickle by name: the main module may use objects that cannot be pickled, such as a lock
            try:
                return pickle.dumps(study)
            except Exception:  # the first error is more informative
                pass
        raise not_handed_over(f"{type(error).__name__}: {error}") from error


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep processes that start now from importing the main module if that is no file: ``<stdin>``, for one."""
    main = sys.modules["__main__"]
    if main.__spec__ is None and not _main_is_a_file():
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _main_is_a_file() -> bool:
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file()
