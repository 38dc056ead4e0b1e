"""Write plain values as YAML 1.2: short values in one line, others in blocks, keys in their order.

Own code, since ruamel's emitter writes some text (``?0`` as a key, U+0085) that parses back differently.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode

from vflsim.tables import DataTable

WIDTH = 110

_STR = "tag:yaml.org,2002:str"
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
    if _SAFE.fullmatch(text) and _RESOLVER.resolve(ScalarNode, text, (True, False)) == _STR:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    return f"\\U{ord(character):08x}"


# --- changes ----------------------------------------------------------------------------------------------------------


_LONG = 60
_ABSENT = object()


def changed(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """Yield the differences between two resolved scenarios, one line per key: ``training.batch: 20 → 32``."""
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(each, Mapping) for each in (*old, *new)):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from changed(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else str(name))
    elif old is _ABSENT or new is _ABSENT or flow(old) != flow(new):
        yield f"{key}: {_shown(old)} → {_shown(new)}"


def at_most(lines: Iterable[str], most: int = 8) -> list[str]:
    """Return the first lines, and how many more there are."""
    every = list(lines)
    return [*every[:most], *([f"… and {len(every) - most} more"] if len(every) > most else [])]


def _shown(value: object) -> str:
    text = "absent" if value is _ABSENT else flow(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


# --- shown ------------------------------------------------------------------------------------------------------------


def html(raw: Mapping[str, Any], clients: int, seeds: tuple[int, ...]) -> str:
    """Write a scenario as written: its protocols as a table, and all of it as YAML to unfold."""
    rows = [
        (name, str(entry.get("kind", "")), flow({key: value for key, value in entry.items() if key != "kind"} or None))
        for name, entry in raw["protocols"].items()
    ]
    rows = [(name, kind, "—" if settings == "null" else settings) for name, kind, settings in rows]
    number = f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    notes = [f"{clients} clients; {len(rows)} protocols × {number} = {len(rows) * len(seeds)} runs."]
    title = str(raw.get("name", "scenario"))
    table = DataTable(("protocol", "kind", "its own settings"), rows, title=title, notes=notes, left=(0, 1, 2))
    return f"{table._repr_html_()}<details><summary>YAML</summary><pre>{escape(dump(raw))}</pre></details>"
