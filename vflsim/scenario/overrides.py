"""What changes a scenario's keys: ``--set training.batch=32``, and published timing, ``timing: {preset: fedvs-6.2}``.

A preset is a file of defaults that ships with vflsim, or a file of the user's own that ends in ``.yaml``. The
scenario's own keys override them, as later entries of ``timing.clients`` refine earlier ones. Loading puts the preset's
keys into the scenario, so that a scenario stored with results does not depend on it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from vflsim.errors import ScenarioError, nearest
from vflsim.learning.data.files import folders
from vflsim.scenario import document as documents
from vflsim.scenario.document import Document, Problem, failure, plain, shown
from vflsim.vocabulary.plain_yaml import Location, Origins, parse_value, walked, with_leaves
from vflsim.vocabulary.quantities import DIMENSIONS

Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]

_LONG = 120
_MOST_VALUES = 10_000
_RANGE = re.compile(r"\s*(\d{1,18})\s*:\s*(\d{1,18})\s*(?::\s*(\d{1,18})\s*)?")
_NUMBER = re.compile(r"\s*[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?\s*")
_WITH_UNIT = re.compile(rf"(?:{_NUMBER.pattern}|{_RANGE.pattern})(?P<unit>/?[A-Za-z][A-Za-z/]*)\s*")
_UNITS = {unit for dimension in DIMENSIONS for unit in dimension.units}
_FORM = "key=value, with dots between keys and positions from 0 in lists, as in timing.clients.0.link.up=30 Mbps"


def apply(document: Document, overrides: Overrides) -> Document:
    """Apply every override to the document, in order. Texts are YAML; ``null`` removes the key.

    Raises ScenarioError for an override without ``=``, without a value, or with a path through a value without keys.
    The validation of the scenario checks the keys.
    """
    raw, origins = copy.deepcopy(document.raw), dict(document.origins)
    for path, value, option in _pairs(overrides):
        if not path or not all(path):
            raise ScenarioError("an override needs a key on the left of the equals sign", option, _FORM)
        loc = _put(raw, path, value, option)
        origins = {key: origin for key, origin in origins.items() if key[: len(loc)] != loc}
        origins[loc] = option
    return Document(raw, document.name, origins)


def values_of(text: str, option: str) -> tuple[str, list[Any]]:
    """Read the key and the values of ``key=1, 5 ms, {kind: …}``: YAML, separated by commas outside brackets and quotes.

    ``1:10:3`` stands for 1, 4, 7: whole numbers from the first to below the second. A unit after the last number is
    that of the numbers without one, too: ``5, 50, 500 Mbps``. Raises ScenarioError, which shows ``option`` and the
    text.
    """
    where = f"{option} {_shortened(text)}"
    form = "KEY=V1,V2,… with values in YAML, or KEY=FIRST:END or FIRST:END:STEP for whole numbers below END"
    key, equals, listed = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ScenarioError("the key or its values are missing", where, form)
    values: list[Any] = []
    items = _separated(listed)
    united = _WITH_UNIT.fullmatch(items[-1])
    unit = united["unit"] if united and united["unit"] in _UNITS else ""
    for item in items:
        if ends := _RANGE.fullmatch(item.strip().removesuffix(unit)):
            step = int(ends[3] or 1)
            numbers = range(int(ends[1]), int(ends[2]), step) if step else range(0)
            if not 0 < len(numbers) <= _MOST_VALUES:
                what = f"{item.strip()} holds {len(numbers):,} values" if numbers else f"{item.strip()} holds no value"
                raise ScenarioError(what, where, f"1 to {_MOST_VALUES:,} values, as 1:4 for 1, 2, 3")
            values += [f"{number} {unit}" for number in numbers] if unit else numbers
        elif unit and _NUMBER.fullmatch(item):
            values.append(f"{item.strip()} {unit}")
        elif item.strip():
            values.append(_value(item, where))
        else:
            raise ScenarioError("a value is missing", where, form)
    return key.strip(), values


def _separated(text: str) -> list[str]:
    """Split a text at the commas outside brackets and quotes."""
    parts, depth, quote, before = [""], 0, "", ","
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and before in ",[{:":  # elsewhere it is an apostrophe
            quote = character
        elif character in "[]{}":
            depth += 1 if character in "[{" else -1
        if character == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
        before = character if not character.isspace() else before
    return parts


def _pairs(overrides: Overrides) -> Iterable[tuple[list[str], Any, str]]:
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            option = f"--set {key}={value if isinstance(value, str) else shown(value)}"
            yield str(key).split("."), _value(value, option) if isinstance(value, str) else plain(value), option
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, value = text.partition("=")
        option = f"--set {_shortened(text)}"
        if not equals:
            raise ScenarioError("an override has no equals sign", option, _FORM)
        yield key.strip().split("."), _value(value, option), option


def _shortened(text: str) -> str:
    return text if len(text) <= _LONG else text[:_LONG] + "…"


def _value(text: str, option: str) -> Any:
    if not text.strip():
        raise ScenarioError("an override has no value", option, _FORM, "write null to remove the key")
    try:
        return parse_value(text, option)[0]
    except ScenarioError as problem:
        remedy = "in a shell, put quotes around the whole override"
        raise ScenarioError(problem.what, option, "YAML, such as 3, 5 ms, [1, 2] or {a: 1}", remedy) from None


def _put(raw: dict[str, Any], path: list[str], value: Any, option: str) -> Location:
    """Set (or with None remove) the value at ``path``; create missing mappings on the way.

    Returns the location of the value, or of the first mapping created for it.
    """
    where: Any = raw
    loc: list[str | int] = []
    new: Location | None = None
    for step in path[:-1]:
        key = _key(where, step, loc, option)
        loc.append(key)
        if isinstance(where, dict) and where.get(step) is None:
            where[step] = {}
            new = new or tuple(loc)
        where = where[key]
    key = _key(where, path[-1], loc, option)
    if value is not None:
        where[key] = value
    elif isinstance(where, list):
        del where[int(key)]
    elif key in where:
        del where[key]
    else:
        raise ScenarioError(f"there is no {'.'.join(path)} to remove", option, remedy=nearest(str(key), where))
    return new or (*loc, key)


def _key(where: Any, step: str, loc: list[str | int], option: str) -> str | int:
    name = ".".join(map(str, loc))
    if isinstance(where, dict):
        return step
    if not isinstance(where, list):
        remedy = f"set {name} as a whole, as in '{name}={{{step}: …}}'"
        raise ScenarioError(f"{name} has no keys: it is {shown(where)}", option, _FORM, remedy)
    if not step.isdecimal() or int(step) >= len(where):
        allowed = f"0 to {len(where) - 1}" if where else "nothing: the list is empty"
        raise ScenarioError(f"{step!r} is no position in the list {name}", option, allowed)
    return int(step)


# --- presets ----------------------------------------------------------------------------------------------------------


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


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def with_preset(document: Document, folder: Path) -> Document:
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
    timing = _with_files(preset, document)
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
    if name not in preset_names():
        what, listed = f"there is no preset {shown(name)}", f"{', '.join(preset_names())}; or a file that ends in .yaml"
        remedy = nearest(str(name), preset_names()) or "see vflsim list presets"
        raise failure([Problem(_KEY, what, listed, remedy)], document)
    return Preset.read(str(name))


def _refined(server: Any, by: Any) -> Any:
    """Return a server's timing with the keys of another one; a link is refined key by key."""
    if not isinstance(server, dict) or not isinstance(by, dict):
        return by
    before, after = server.get("link"), by.get("link")
    if isinstance(before, dict) and isinstance(after, dict):
        return {**server, **by, "link": {**before, **after}}
    return {**server, **by}


def _with_files(preset: Preset, document: Document) -> dict[str, Any]:
    """Return a preset's timing with the places of its files. Raises ScenarioError for an absent one."""

    def placed(loc: Location, value: Any) -> Any:
        if loc[-1] != "file" or not isinstance(value, str):
            return value
        places = [folder / value for folder in (preset.folder, *folders())]
        if (there := next((place for place in places if place.is_file()), None)) is None:
            what = f"the preset {preset.name} needs the file {value}, which is not there"
            raise failure([Problem(_KEY, what, f"in one of {', '.join(map(str, folders()))}", preset.get)], document)
        return str(there.absolute())

    timing: dict[str, Any] = with_leaves(preset.timing, placed)
    return timing


def _origins(before: Origins, preset: Preset, section: dict[str, Any]) -> Origins:
    """Return the origins of all values: own entries of clients stand behind those of the preset."""
    theirs, first = preset.timing.get("clients", []), len(preset.timing.get("clients", []))
    moved: Origins = {}
    for key in preset.timing.keys() - section.keys() - {"clients"}:
        moved |= {loc: preset.origin for loc, _ in walked(preset.timing[key], ("timing", key))}
    moved |= {loc: preset.origin for loc, _ in walked(theirs, _CLIENTS) if loc != _CLIENTS}
    for loc, origin in before.items():
        if loc[:2] == _CLIENTS and not isinstance(section["clients"], list):
            loc = (*_CLIENTS, first, *loc[2:])
        elif loc[:2] == _CLIENTS and len(loc) > 2 and isinstance(loc[2], int):
            loc = (*_CLIENTS, first + loc[2], *loc[3:])
        moved[loc] = origin
    return moved
