"""One unit as a task of a Ray worker, and the files that travel with it to machines that do not share a disk."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vflsim.errors import VflsimError
from vflsim.files import content
from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.data.files import VARIABLE, locate
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.handover import executed, not_handed_over
from vflsim.studies.runs.group import Member
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec

MOST_BYTES = 512 * 2**20
"""Data files of more bytes together do not travel: every machine must have them at the same place."""


@dataclass(frozen=True, slots=True)
class Luggage:
    """Content of files: ``files`` by absolute path, ``modules`` and ``catalogue`` by path in their folder."""

    files: dict[str, bytes] = field(default_factory=dict)
    modules: dict[str, bytes] = field(default_factory=dict)
    catalogue: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario) -> Luggage:
        """Pack what a scenario needs. Raises OSError if a file cannot be read."""
        texts = (*_texts(scenario.data), *_texts(scenario.timing))
        named = {text: Path(text) for text in texts if os.path.isabs(text) and os.path.isfile(text)}
        known: dict[str, Path] = {}
        if scenario.data.name is not None:
            entry = CATALOGUE[scenario.data.name]
            there = {f"{entry.folder}/{file.name}": locate(entry, file) for file in entry.files}
            known = {name: path for name, path in there.items() if path is not None}
        modules = Path(scenario.modules) if scenario.modules is not None else None
        sources = {} if modules is None else {path.relative_to(modules).as_posix(): path for path in _sources(modules)}
        if sum(path.stat().st_size for path in (*named.values(), *known.values())) > MOST_BYTES:
            named, known = {}, {}
        return cls(*({name: content(path) for name, path in each.items()} for each in (named, sources, known)))

    def unpack(self, folder: Path) -> dict[str, str]:
        """Write the files into a folder, where this process then looks for them; return the new place of each."""
        places: dict[str, str] = {}
        for number, (path, written) in enumerate(self.files.items()):
            place = folder / "files" / str(number) / Path(path).name  # results have the name of a data file
            _write(place, written)
            places[path] = str(place)
        for kind, files in (("modules", self.modules), ("catalogue", self.catalogue)):
            for name, written in files.items():
                _write(folder / kind / name, written)
        if self.modules:
            sys.path.append(str(folder / "modules"))
        if self.catalogue:
            os.environ[VARIABLE] = str(folder / "catalogue")
        return places


def relocated(value: Any, places: Mapping[str, str]) -> Any:
    """Return a part of a scenario with other places of its files; the part itself if it names none of them."""
    if isinstance(value, str):
        return places.get(value, value)
    parts = _parts(value)
    new = {key: relocated(part, places) for key, part in parts.items()}
    changed = {key: part for key, part in new.items() if part is not parts[key]}
    if not changed:
        return value
    if isinstance(value, BaseModel):
        return value.model_copy(update=changed)
    if isinstance(value, Mapping):
        return new
    return type(value)(new.values()) if isinstance(value, tuple | list) else replace(value, **changed)


def _parts(value: Any) -> dict[Any, Any]:
    """Return what a part of a scenario consists of: fields, items."""
    if isinstance(value, BaseModel | Mapping):
        return dict(value)
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    return {}


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a part of a scenario."""
    if isinstance(value, str):
        yield value
    for part in _parts(value).values():
        yield from _texts(part)


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the modules in a folder and in its packages."""
    yield from folder.glob("*.py")
    for package in folder.iterdir():
        if (package / "__init__.py").is_file():
            yield from package.rglob("*.py")


def _write(place: Path, written: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(written)


_EVERY_S = 1.0


@dataclass(slots=True)
class _Held:
    """The study that this worker holds, by the digest of its pickle; ``folder`` has its files."""

    digest: str
    spec: StudySpec
    data: ScenarioData
    folder: tempfile.TemporaryDirectory[str]


_held: list[_Held] = []
"""The latest study: a worker's tasks come from one study, or from one point of a sweep after the other."""


def execute(
    digest: str, references: list[Any], run: StudyRun, number: int, board: Any
) -> tuple[Report | VflsimError, dict[str, bytes]]:
    """Execute one run; return its report, or the error of a run that could not start, and its files by name.

    ``references`` are Ray's, of the pickled study and its ``Luggage``; they are trusted: only the study's own process
    puts objects there.
    """
    import ray

    _tell(ray, board, number, None)
    try:
        held = _hold(ray, digest, references)
    except Exception as error:
        return not_handed_over(f"{type(error).__name__}: {error}"), {}
    last = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() >= last + _EVERY_S:
            last = time.monotonic()
            _tell(ray, board, number, progress)

    with tempfile.TemporaryDirectory(prefix="vflsim-run-") as folder:
        spec = replace(held.spec, folder=Path(folder))
        ((_, word),) = executed([Member(spec, run, report)], held.data, Interrupt())
        written = spec.address(run.protocol, run.seed).iterdir() if isinstance(word, Report) else ()
        return word, {path.name: path.read_bytes() for path in sorted(written)}


def _hold(ray: Any, digest: str, references: list[Any]) -> _Held:
    """Fetch a study and its files, unless this worker holds them. Raises whatever unpickling raises."""
    if not _held or _held[0].digest != digest:
        parcel, luggage = ray.get(references)
        folder = tempfile.TemporaryDirectory(prefix="vflsim-files-", ignore_cleanup_errors=True)
        assert isinstance(luggage, Luggage), "the second object is the luggage"
        places = luggage.unpack(Path(folder.name))
        spec: StudySpec = pickle.loads(parcel)
        options = replace(spec.options, checkpoint_every=None, resume=False)
        spec = replace(spec, scenario=relocated(spec.scenario, places), options=options)
        _held[:] = [_Held(digest, spec, ScenarioData(spec.scenario), folder)]
    return _held[0]


def _tell(ray: Any, board: Any, number: int, progress: Progress | None) -> None:
    board.tell.remote(number, pickle.dumps(progress))
