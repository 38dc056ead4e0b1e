"""Overrides on the command line: ``--set training.batch=32`` or ``--set 'timing.clients.0.link={up: 3 Mbps}'``."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from vflsim.errors import ScenarioError
from vflsim.scenario.document import Document, plain
from vflsim.scenario.plain_yaml import Location, parse_value
from vflsim.scenario.problems import nearest, shown

Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]

_LONG = 120
_MOST_VALUES = 10_000
_RANGE = re.compile(r"\s*(\d{1,18})\s*:\s*(\d{1,18})\s*(?::\s*(\d{1,18})\s*)?")
_FORM = "key=value, with dots between keys and positions from 0 in lists, as in timing.clients.0.link.up=30 Mbps"


def apply(document: Document, overrides: Overrides) -> Document:
    """The document with every override done, in order. Text is read as YAML; ``null`` removes the key.

    Raises ScenarioError for an override without ``=``, without a value, or whose path leads through a value that has
    no keys. Whether the keys mean anything is checked with the rest of the scenario.
    """
    raw, origins = copy.deepcopy(document.raw), dict(document.origins)
    for path, value, said in _pairs(overrides):
        if not path or not all(path):
            raise ScenarioError("an override needs a key on the left of the equals sign", said, _FORM)
        loc = _put(raw, path, value, said)
        origins = {key: origin for key, origin in origins.items() if key[: len(loc)] != loc}
        origins[loc] = said
    return Document(raw, document.name, origins)


def values_of(text: str, option: str) -> tuple[str, list[Any]]:
    """The key and the values of ``key=1, 5 ms, {kind: …}``: YAML, separated by commas outside brackets and quotes.

    ``1:10:3`` stands for 1, 4, 7: whole numbers from the first to below the second. Raises ScenarioError that shows the
    text behind ``option``.
    """
    said = f"{option} {text if len(text) <= _LONG else text[:_LONG] + '…'}"
    form = "KEY=V1,V2,… with values in YAML, or KEY=FIRST:END or FIRST:END:STEP for whole numbers below END"
    key, equals, listed = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ScenarioError("it is not said which key has which values", said, form)
    values: list[Any] = []
    for item in _separated(listed):
        if ends := _RANGE.fullmatch(item):
            step = int(ends[3] or 1)
            numbers = range(int(ends[1]), int(ends[2]), step) if step else range(0)
            if not 0 < len(numbers) <= _MOST_VALUES:
                what = f"{item.strip()} holds {len(numbers):,} values" if numbers else f"{item.strip()} holds no value"
                raise ScenarioError(what, said, f"1 to {_MOST_VALUES:,} values, as 1:4 for 1, 2, 3")
            values += numbers
        elif item.strip():
            values.append(_value(item, said))
        else:
            raise ScenarioError("a value is missing", said, form)
    return key.strip(), values


def _separated(text: str) -> list[str]:
    """What stands between the commas outside brackets and quotes."""
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
            said = f"--set {key}={value if isinstance(value, str) else shown(value)}"
            yield str(key).split("."), _value(value, said) if isinstance(value, str) else plain(value), said
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, value = text.partition("=")
        said = f"--set {text if len(text) <= _LONG else text[:_LONG] + '…'}"
        if not equals:
            raise ScenarioError("an override has no equals sign", said, _FORM)
        yield key.strip().split("."), _value(value, said), said


def _value(text: str, said: str) -> Any:
    if not text.strip():
        raise ScenarioError("an override has no value", said, _FORM, "write null to remove the key")
    try:
        return parse_value(text, said)[0]
    except ScenarioError as problem:
        remedy = "in a shell, put quotes around the whole override"
        raise ScenarioError(problem.what, said, "YAML, such as 3, 5 ms, [1, 2] or {a: 1}", remedy) from None


def _put(raw: dict[str, Any], path: list[str], value: Any, said: str) -> Location:
    """Set (or with None remove) what is at ``path``; mappings on the way are made where nothing stands.

    Gives the location of what is new: the value, or the first mapping that was made for it.
    """
    where: Any = raw
    loc: list[str | int] = []
    new: Location | None = None
    for step in path[:-1]:
        key = _key(where, step, loc, said)
        loc.append(key)
        if isinstance(where, dict) and where.get(step) is None:
            where[step] = {}
            new = new or tuple(loc)
        where = where[key]
    key = _key(where, path[-1], loc, said)
    if value is not None:
        where[key] = value
    elif isinstance(where, list):
        del where[int(key)]
    elif key in where:
        del where[key]
    else:
        raise ScenarioError(f"there is no {'.'.join(path)} to remove", said, remedy=nearest(str(key), where))
    return new or (*loc, key)


def _key(where: Any, step: str, loc: list[str | int], said: str) -> str | int:
    name = ".".join(map(str, loc))
    if isinstance(where, dict):
        return step
    if not isinstance(where, list):
        remedy = f"set {name} as a whole, as in '{name}={{{step}: …}}'"
        raise ScenarioError(f"{name} has no keys: it is {shown(where)}", said, _FORM, remedy)
    if not step.isdecimal() or int(step) >= len(where):
        allowed = f"0 to {len(where) - 1}" if where else "nothing: the list is empty"
        raise ScenarioError(f"{step!r} is no position in the list {name}", said, allowed)
    return int(step)
