"""Plain values and YAML 1.2: parse text with the line of every value, walk values, write them, compare them.

Values are mappings, lists, text, numbers, true/false and null. Tags for other values are refused, and the expansion of
anchors is bounded.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from vflsim.errors import ScenarioError

Location: TypeAlias = tuple[str | int, ...]
Origins: TypeAlias = dict[Location, int | str]
"""Origins of values: a line (from 1), or the override that set them."""

MAX_VALUES = 100_000
MAX_DEPTH = 40
REMEMBERED = 100_000
"""Characters up to which a text that has been parsed is remembered: results are opened again and again."""
PLAIN = "mappings, lists, text, numbers, true, false and null"

_TAG = "tag:yaml.org,2002:"


def parse_value(text: str, name: str, most: int = MAX_VALUES) -> tuple[Any, Origins]:
    """Parse a YAML text of at most so many values; return its plain value, and the line of every location.

    Raises ScenarioError with the line.
    """
    if len(text) > REMEMBERED:
        return _parsed(text, name, most)
    value, origins = _known(text, name, most)
    return _copied(value), dict(origins)


def _parsed(text: str, name: str, most: int) -> tuple[Any, Origins]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML 1.2 allows an anchor to be set again
            node = YAML(typ="safe", pure=True).compose(text)
        return _Plain(name, most).build(node)
    except RecursionError:
        raise ScenarioError("the scenario is nested too deeply", name, f"{MAX_DEPTH} levels") from None
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        if problem.context_mark and "end" in str(problem.problem):
            mark = problem.context_mark  # the start of the value is more useful than the end of the file
        where = f"{name}:{mark.line + 1}" if mark else name
        what, remedy = _syntax(problem)
        raise ScenarioError(what, where, remedy=remedy) from None
    except ReaderError as problem:
        line = text[: problem.position].count("\n") + 1
        what = f"the character U+{ord(text[problem.position]):04X} is not allowed in YAML"
        raise ScenarioError(what, f"{name}:{line}", remedy="remove it") from None
    except (YAMLError, ValueError, AssertionError) as problem:
        raise ScenarioError(f"this is not YAML: {problem}", name) from None


_known = lru_cache(maxsize=32)(_parsed)


def _copied(value: Any) -> Any:
    """Copy plain values: whoever has them may change them."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def walked(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield a plain value and all that are in it, the outer ones first, each with its location."""
    yield loc, value
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from walked(item, (*loc, key))


def with_leaves(value: Any, change: Callable[[Location, Any], Any], loc: Location = ()) -> Any:
    """Copy a plain value, with what ``change`` returns in place of each text, number and so on at its location."""
    if isinstance(value, Mapping):
        return {key: with_leaves(item, change, (*loc, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [with_leaves(item, change, (*loc, place)) for place, item in enumerate(value)]
    return change(loc, value)


class _Plain:
    """Converts YAML nodes into plain values."""

    def __init__(self, name: str, most: int) -> None:
        self.name, self.most = name, most
        self.origins: Origins = {}
        self.values = 0

    def build(self, node: Node | None) -> tuple[Any, Origins]:
        if node is None:
            return None, {}
        self.origins[()] = 1
        return self.value(node, ()), self.origins

    def value(self, node: Node, loc: Location) -> Any:
        self.values += 1
        if self.values > self.most:
            what = f"the scenario expands to more than {self.most:,} values"
            self.refuse(node, what, "do not nest anchors in anchors")
        if len(loc) > MAX_DEPTH:
            what = "the scenario is nested too deeply, or contains itself"
            self.refuse(node, what, f"use at most {MAX_DEPTH} levels")
        self.origins.setdefault(loc, node.start_mark.line + 1)
        tag = str(node.tag)
        if isinstance(node, MappingNode) and tag == _TAG + "map":
            return self.mapping(node, loc)
        if isinstance(node, SequenceNode) and tag == _TAG + "seq":
            return [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self.scalar(node, tag)
        self.refuse(node, f"the tag {tag.replace(_TAG, '!!')} is not allowed", "remove the tag", PLAIN)

    def mapping(self, node: MappingNode, loc: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.refuse(key_node, "a key is a list or a mapping", "write a name before the colon", "text")
            if str(key_node.tag) == _TAG + "merge":
                for source in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                    if not isinstance(source, MappingNode):
                        self.refuse(source, "`<<` merges mappings only", "write `<<: *name` of a mapping's anchor")
                    merged = {**self.mapping(source, loc), **merged}
                continue
            key = str(key_node.value)
            if key in result:
                first = self.origins[(*loc, key)]
                self.refuse(key_node, f"the key {key!r} stands twice (first in line {first})", "keep one of the two")
            self.origins[(*loc, key)] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, (*loc, key))
        return {**result, **{key: item for key, item in merged.items() if key not in result}}

    def scalar(self, node: ScalarNode, tag: str) -> Any:
        text = str(node.value)
        try:
            match tag.removeprefix(_TAG):
                case "str" | "timestamp":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    digits = text.replace("_", "")
                    return int(digits, 0 if digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"} else 10)
                case "float":
                    word = text.replace("_", "").lower()
                    if word.lstrip("+-") in {".inf", ".nan"}:
                        return math.nan if "nan" in word else math.copysign(math.inf, -1 if word[0] == "-" else 1)
                    return float(word)
        except (ValueError, KeyError):
            kind = tag.removeprefix(_TAG)
            self.refuse(node, f"{_short(text)} cannot be read as {kind}", "write it in quotes if text is meant")
        self.refuse(node, f"the tag {tag.replace(_TAG, '!!')} is not allowed", "remove the tag", PLAIN)

    def refuse(self, node: Node, what: str, remedy: str, allowed: str = "") -> NoReturn:
        raise ScenarioError(what, f"{self.name}:{node.start_mark.line + 1}", allowed, remedy)


def _syntax(problem: MarkedYAMLError) -> tuple[str, str]:
    """Translate an error of the YAML parser into problem and remedy."""
    message = str(problem.problem or problem.context or "cannot be read")
    if "'\\t'" in message or "tab" in message.lower():
        return "a tab stands where spaces are needed", "indent with spaces; YAML does not allow tabs"
    if "another document" in message:
        return "a second document begins here (`---`)", "keep one scenario per file"
    if "undefined alias" in message:
        return f"the alias {message.split()[-1]} has no anchor", "define it above with `&name`"
    if "mapping values are not allowed" in message:
        return "a colon stands where no key can be", "check the indentation, or quote the text that contains `: `"
    if "cannot start any token" in message:
        what = message.removeprefix("found ").replace("that cannot start any token", "cannot begin a value")
        return what, "put quotes around the text that begins with it"
    if "stream end" in message or "end of stream" in message:
        return "the file ends inside a value", "close the bracket, brace or quote that is open"
    return f"this is not YAML: {message.replace('<', '').replace('>', '')}", "check brackets, quotes and indentation"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")


# --- writing ----------------------------------------------------------------------------------------------------------
# Own code, since ruamel's emitter writes some text (``?0`` as a key, U+0085) that parses back differently.


WIDTH = 110
"""Characters up to which a value is written in one line."""

_SAFE = re.compile(r"[A-Za-z0-9_(/](?:[A-Za-z0-9_./+*()%-]| (?=[^ ]))*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_RESOLVER = YAML(typ="safe", pure=True).resolver


def dump(value: Any) -> str:
    """Write YAML 1.2 text that parses back to ``value`` (plain values only)."""
    return "\n".join(_block(value)) + "\n"


def _block(value: Any) -> list[str]:
    """Return the lines of a value; the outermost mapping or list takes several."""
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _joined(f"{_text(key)}:", item, "  ")]
    if isinstance(value, list) and value:
        return [line for item in value for line in _joined("-", item, "  ")]
    return [flow(value)]


def _joined(start: str, item: Any, indent: str) -> list[str]:
    one_line = f"{start} {flow(item)}"
    if len(one_line) <= WIDTH or not isinstance(item, dict | list) or not item:
        return [one_line]
    lines = _block(item)
    if start == "-":
        return [f"- {lines[0]}", *(indent + line for line in lines[1:])]
    return [start, *(indent + line for line in lines)]


def flow(value: Any) -> str:
    """Write YAML 1.2 text in one line that parses back to ``value`` (plain values only)."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return repr(value)


def _text(text: str) -> str:
    """Write a text plainly if it parses back as the same text, else in double quotes."""
    if _SAFE.fullmatch(text) and _RESOLVER.resolve(ScalarNode, text, (True, False)) == _TAG + "str":
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    return f"\\U{ord(character):08x}"


# --- changes ----------------------------------------------------------------------------------------------------------


_MOST = 60
_ABSENT = object()


def changed(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """Yield the differences between two resolved scenarios, one line per key: ``training.batch: 20 → 32``."""
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(each, Mapping) for each in (*old, *new)):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from changed(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else str(name))
    elif old is _ABSENT or new is _ABSENT or flow(old) != flow(new):
        yield f"{key}: {_short_flow(old)} → {_short_flow(new)}"


def at_most(lines: Iterable[str], most: int = 8) -> list[str]:
    """Return the first lines, and how many more there are."""
    every = list(lines)
    return [*every[:most], *([f"… and {len(every) - most} more"] if len(every) > most else [])]


def _short_flow(value: object) -> str:
    text = "absent" if value is _ABSENT else flow(value)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
