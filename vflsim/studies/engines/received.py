"""Writes the files of runs that were computed elsewhere, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from vflsim.errors import ResultsError
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import RUN, changes, errors_named, written_aside


def write_arrived(place: Path, info: RunInfo, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> None:
    """Write the files of a run, which ``opened`` gives by name, into its folder ``place``.

    Raises ResultsError if a file is not as ``info`` lists it, or cannot be written.
    """
    files = info.files or {}
    if strange := foreign(info):
        raise ResultsError(f"{strange!r} is no file of a run", str(place))
    with errors_named(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(place) as aside:
            aside.mkdir()
            for name in (*files, RUN):
                with opened(name) as file, open(aside / name, "xb") as copy:
                    shutil.copyfileobj(file, copy)
            if problems := [*changes(aside, files)]:
                raise ResultsError(problems[0], str(place))


def foreign(info: RunInfo) -> str:
    """Return the name of a listed file that would be outside a run's folder, if any."""
    return next((name for name in info.files or {} if Path(name).name != name or name == RUN), "")
