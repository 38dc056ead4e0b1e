"""Published timing in one line: ``timing: {preset: fedvs-6.2}``.

A preset is a file of defaults that ships with vflsim, or a file of the user's own that ends in ``.yaml``. The
scenario's own keys override them, as later entries of ``timing.clients`` refine earlier ones. Loading puts the preset's
keys into the scenario, so that a scenario stored with results does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vflsim.errors import nearest
from vflsim.learning.data.files import folders
from vflsim.scenario import document as documents
from vflsim.scenario.document import Document, Problem, failure, shown
from vflsim.vocabulary.plain_yaml import Location, Origins

FOLDER = Path(__file__).parents[1] / "presets"
_KEY = ("timing", "preset")
_CLIENTS = ("timing", "clients")
_KEYS = ("title", "source", "ours", "constants", "timing")
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Preset:
    """The settings of a preset, their source, and our additions; ``get`` says how to get its files."""

    name: str
    title: str
    source: str
    timing: dict[str, Any]
    ours: str = ""
    constants: dict[str, Any] = field(default_factory=dict)
    get: str = ""
    folder: Path = FOLDER

    @property
    def origin(self) -> str:
        """The text that replaces a line number in errors."""
        return f"preset {self.name}"

    @classmethod
    def read(cls, name: str) -> Preset:
        """Read an existing preset."""
        return cls(name, **documents.read(FOLDER / f"{name}.yaml").raw)

    @classmethod
    def of_file(cls, path: Path) -> Preset:
        """Read a preset of the user's own. Raises ScenarioError for a file that is none."""
        document = documents.read(path)
        if unknown := sorted(map(str, document.raw.keys() - _KEYS)):
            problems = [Problem((key,), f"a preset has no key {key!r}", ", ".join(_KEYS)) for key in unknown]
            raise failure(problems, document)
        timing, constants = document.raw.get("timing"), document.raw.get("constants", {})
        if not isinstance(timing, dict) or not isinstance(constants, dict):
            key = "constants" if isinstance(timing, dict) else "timing"
            raise failure([Problem((key,), f"{key} is no mapping", "keys and values, as in a scenario")], document)
        if isinstance(timing.get("clients"), dict):
            timing = {**timing, "clients": [timing["clients"]]}
        texts = {key: str(document.raw.get(key, "")) for key in ("title", "source", "ours")}
        return cls(str(path), timing=timing, constants=constants, folder=path.parent, **texts)


def names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def resolved(document: Document, folder: Path) -> Document:
    """Return the document with the keys of its preset, if it names one.

    A file is looked for in ``folder``, the scenario's, and then in the working directory. Raises ScenarioError for an
    unknown preset, and for one whose files are absent. Problems with a key of the preset have its name in place of a
    line.
    """
    section = document.raw.get("timing")
    name = section.get("preset") if isinstance(section, dict) else None
    if not isinstance(section, dict) or name is None:
        return document
    preset = _preset(name, document, folder)
    timing = _with_files(preset.timing, preset, document)
    first, clients = timing.get("clients", []), section.get("clients", [])
    constants = document.raw.get("constants")
    raw = {
        **document.raw,
        "timing": {
            **timing,
            **{key: value for key, value in section.items() if key != "preset"},
            **({"server": _refined(timing.get("server"), section["server"])} if "server" in section else {}),
            "clients": [*first, *(clients if isinstance(clients, list) else [clients])],
        },
    }
    if preset.constants and isinstance(constants, dict | None):
        raw["constants"] = preset.constants | (constants or {})
    return replace(document, raw=raw, origins=_origins(document.origins, preset, section))


def _preset(name: Any, document: Document, folder: Path) -> Preset:
    """Return the preset of a name, or of a file. Raises ScenarioError where there is none."""
    if isinstance(name, str) and name.endswith(_SUFFIXES):
        places = list(dict.fromkeys((place / name).absolute() for place in (folder, Path())))
        for path in places:
            if path.is_file():
                return Preset.of_file(path)
        what, allowed = f"there is no file {shown(name)}", f"an existing file: {' or '.join(map(str, places))}"
        raise failure([Problem(_KEY, what, allowed, "vflsim calibrate RESULTS --out writes one")], document)
    if name not in names():
        what, listed = f"there is no preset {shown(name)}", f"{', '.join(names())}; or a file that ends in .yaml"
        raise failure([Problem(_KEY, what, listed, nearest(str(name), names()) or "see vflsim list presets")], document)
    return Preset.read(str(name))


def _refined(server: Any, by: Any) -> Any:
    """Return a server's timing with the keys of another one; a link is refined key by key."""
    if not isinstance(server, dict) or not isinstance(by, dict):
        return by
    before, after = server.get("link"), by.get("link")
    if isinstance(before, dict) and isinstance(after, dict):
        return {**server, **by, "link": {**before, **after}}
    return {**server, **by}


def _with_files(value: Any, preset: Preset, document: Document) -> Any:
    """Return a preset's value with the places of its files. Raises ScenarioError for an absent one."""
    if isinstance(value, list):
        return [_with_files(item, preset, document) for item in value]
    if not isinstance(value, dict):
        return value
    entries = {key: _with_files(item, preset, document) for key, item in value.items()}
    if isinstance(name := entries.get("file"), str):
        places = [folder / name for folder in (preset.folder, *folders())]
        there = next((place for place in places if place.is_file()), None)
        if there is None:
            what = f"the preset {preset.name} needs the file {name}, which is not there"
            raise failure([Problem(_KEY, what, f"in one of {', '.join(map(str, folders()))}", preset.get)], document)
        entries["file"] = str(there.absolute())
    return entries


def _origins(before: Origins, preset: Preset, section: dict[str, Any]) -> Origins:
    """Return the origins of all values: own entries of clients stand behind those of the preset."""
    theirs, first = preset.timing.get("clients", []), len(preset.timing.get("clients", []))
    moved: Origins = {}
    for key in preset.timing.keys() - section.keys() - {"clients"}:
        moved |= dict.fromkeys([("timing", key), *_inside(preset.timing[key], ("timing", key))], preset.origin)
    moved |= dict.fromkeys(_inside(theirs, _CLIENTS), preset.origin)
    for loc, origin in before.items():
        if loc[:2] == _CLIENTS and not isinstance(section["clients"], list):
            loc = (*_CLIENTS, first, *loc[2:])
        elif loc[:2] == _CLIENTS and len(loc) > 2 and isinstance(loc[2], int):
            loc = (*_CLIENTS, first + loc[2], *loc[3:])
        moved[loc] = origin
    return moved


def _inside(value: Any, loc: Location) -> Iterator[Location]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*loc, key)
        yield from _inside(item, (*loc, key))
