"""Checkpoint files: two files per number; the newest two checkpoints are kept, and the newest of a finished run.

``000007.safetensors`` holds the tensors and ``000007.json`` everything else, with the digests of both. The JSON file is
written last and atomically: it completes a checkpoint. Reading never evaluates content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from vflsim.errors import CheckpointError
from vflsim.files import json_of
from vflsim.results.store.folder import errors_named
from vflsim.results.store.write import write_file, write_tensors
from vflsim.simulation.checkpoints.snapshot import Position, Snapshot
from vflsim.vocabulary.on_demand import Tensor, torch

FORMAT = "5"
KEPT = 2
_FORMAT = "checkpoint format"
_OWN = ("protocol", "seed")
"""The keys that distinguish the runs of a study."""


class _UnsoundError(Exception):
    """A checkpoint differs from what was written; the text says how."""


class _Page(BaseModel):
    """Content of the JSON file; ``state`` is the digest of the tensor file, ``until`` are the run's stop rules."""

    number: int
    state: str
    fingerprint: dict[str, str]
    snapshot: Snapshot
    until: dict[str, Any] = {}


class Checkpoint(NamedTuple):
    """A sound checkpoint."""

    snapshot: Snapshot
    storages: Mapping[str, Tensor]


class Waypoint(NamedTuple):
    """A place that a run has passed: its position, real seconds until there, and the stop rules that it ran under."""

    position: Position
    elapsed_s: float
    until: Mapping[str, Any]


class CheckpointFiles:
    """The checkpoints of one run in ``folder``; a run with the same ``fingerprint`` may resume from them.

    ``until`` are the run's stop rules, which the fingerprint leaves out: a run with a later end may resume, too.
    Invariant: a checkpoint stays until two newer ones are written, or the run is finished.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, str], until: Mapping[str, Any] | None = None) -> None:
        self.folder, self._until = folder, dict(until or {})
        self.passed_over: list[str] = []
        """The defects of the checkpoints that ``newest`` could not use."""
        capability = torch.backends.cpu.get_cpu_capability()  # wider vectors sum in another order
        self._fingerprint = {_FORMAT: FORMAT, **fingerprint, "processor": capability}
        self._unsound: set[int] = set()

    def write(self, snapshot: Snapshot, storages: Mapping[str, Tensor]) -> None:
        """Write the next checkpoint. Raises ResultsError on failure, and keeps the older ones."""
        number = max(self._numbers(), default=0) + 1
        state = self._path(number, "safetensors")
        try:
            with errors_named(state):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_tensors(state, storages)
                digest = _digest(state)
            page = _Page(
                number=number, state=digest, fingerprint=self._fingerprint, snapshot=snapshot, until=self._until
            )
            content = page.model_dump()
            write_file(self._path(number, "json"), json.dumps({"content": content, "digest": _digest_of(content)}))
        except BaseException:
            with contextlib.suppress(OSError):
                state.unlink(missing_ok=True)
            raise
        self.drop_older()

    def waypoint(self) -> Waypoint | None:
        """Return where the newest checkpoint that can be read stands, if any.

        Raises ``CheckpointError`` if it belongs to a run with a different fingerprint.
        """
        for number in sorted(self._numbers("json"), reverse=True):
            with contextlib.suppress(_UnsoundError):
                page = self._read_page(number)
                self._compare(number, page.fingerprint)
                return Waypoint(page.snapshot.position, page.snapshot.elapsed_s, page.until)
        return None

    def newest(self) -> Checkpoint | None:
        """Return the newest sound checkpoint, if any; list the defects of newer ones in ``passed_over``.

        Raises ``CheckpointError`` if it belongs to a run with a different fingerprint.
        """
        for number in sorted(self._numbers("json"), reverse=True):
            try:
                page = self._read_page(number)
                self._compare(number, page.fingerprint)
                return Checkpoint(page.snapshot, self._read_state(number, page.state))
            except _UnsoundError as damage:
                self._unsound.add(number)
                self.passed_over.append(f"checkpoint {number} {damage}")
        return None

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read_page(self, number: int) -> _Page:
        try:
            stored = json_of(self._path(number, "json"), whole=math.inf)
            content = stored["content"]
            if stored["digest"] != _digest_of(content):
                raise _UnsoundError("is not what was written")
            if content["fingerprint"][_FORMAT] != FORMAT:
                return _Page.model_construct(**content)  # ``_compare`` refuses it
            page = _Page.model_validate(content)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise _UnsoundError(f"cannot be read ({type(error).__name__})") from error
        if page.number != number:
            raise _UnsoundError(f"has the place of checkpoint {page.number}")
        return page

    def _compare(self, number: int, fingerprint: Mapping[str, str]) -> None:
        """Raise ``_UnsoundError`` for a checkpoint of another run, ``CheckpointError`` for another execution."""
        now = self._fingerprint
        differing = [what for what in {**fingerprint, **now} if fingerprint.get(what) != now.get(what)]
        parts = [what for what in _OWN if what in differing]
        if parts:
            raise _UnsoundError(f"is of another run ({', '.join(f'{what} {fingerprint.get(what)}' for what in parts)})")
        if differing:
            changes = [f"{what}: {fingerprint.get(what, 'unknown')} → {now.get(what, 'unknown')}" for what in differing]
            raise CheckpointError(
                "\n    ".join(["belongs to a run with other settings than the one to resume", *changes]),
                str(self._path(number, "json")),
                "the same scenario, libraries, device, threads and learning plane",
                "run as before, or without --resume: the run then starts anew",
            )

    def _read_state(self, number: int, digest: str) -> Mapping[str, Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._path(number, "safetensors")
        try:
            if _digest(path) != digest:
                raise _UnsoundError("has tensors other than those written with it")
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise _UnsoundError(f"has no tensors that can be read ({type(error).__name__})") from error

    # --- the folder -------------------------------------------------------------------------------------------------

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06}.{suffix}"

    def _numbers(self, suffix: str = "json|safetensors") -> set[int]:
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        matches = (re.fullmatch(rf"(\d{{6,}})\.(?:{suffix})", name) for name in names)
        return {int(match[1]) for match in matches if match is not None}

    def drop_older(self, count: int = KEPT) -> None:
        """Remove all but the newest checkpoints that are not known to be unsound."""
        sound = sorted(self._numbers("json") - self._unsound)
        with contextlib.suppress(OSError):
            for entry in list(self.folder.iterdir()):
                if entry.is_file() and entry.stem not in {f"{number:06}" for number in sound[-count:]}:
                    entry.unlink()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
