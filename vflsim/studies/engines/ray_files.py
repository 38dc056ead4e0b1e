"""Files that travel with a study to machines that do not share a disk: data, traces, and the user's own modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vflsim.files import content
from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.data.files import VARIABLE, locate
from vflsim.scenario.models import Scenario

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
        own = {} if modules is None else {path.relative_to(modules).as_posix(): path for path in _sources(modules)}
        if sum(path.stat().st_size for path in (*named.values(), *known.values())) > MOST_BYTES:
            named, known = {}, {}
        return cls(*({name: content(path) for name, path in each.items()} for each in (named, own, known)))

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
