"""Place a run that another folder of the same sweep has, so that the same files have two names."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from vflsim.results.store.write import errors_named, written_aside


def place_run(source: Path, place: Path) -> None:
    """Place the run in ``source`` as ``place`` too, whole or not at all; an existing run is replaced.

    Its files become hard links, so they take no room; copies where the disk has no links. Nothing in vflsim changes a
    file in place, so neither run can change the other. Raises ResultsError with the path.
    """
    with errors_named(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(place) as aside:
            shutil.copytree(source, aside, copy_function=_linked)


def _linked(source: str, place: str) -> None:
    with contextlib.suppress(OSError):
        os.link(source, place)
        return
    shutil.copy2(source, place)
