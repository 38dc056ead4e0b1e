"""Write plain values as YAML 1.2: short values in one line, others in blocks, keys in their order.

Own code, since ruamel's emitter writes some text (``?0`` as a key, U+0085) that parses back differently.
"""

import math
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode

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
