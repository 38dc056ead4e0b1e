"""Overrides on the command line: ``--set training.batch=32`` or ``--set 'timing.clients.0.link={up: 3 Mbps}'``."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from vflsim.errors import ScenarioError, nearest
from vflsim.scenario.document import Document, plain, shown
from vflsim.vocabulary.plain_yaml import Location, parse_value
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
