"""The pages of the scenario file, from the classes that read it: type, default, meaning and examples of each key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from io import StringIO
from typing import Any

from pydantic import TypeAdapter
from ruamel.yaml import YAML
from scenario_layout import ONE_OF, PAGES, Sheet

from vflsim.kinds import TABLES
from vflsim.vocabulary import Part, Selection
from vflsim.vocabulary.base import examples_of

WORDS = {
    "string": "text",
    "boolean": "true or false",
    "object": "a mapping",
    "number": "a number",
    "integer": "a whole number",
}
NUMBERS = ("number", "integer")
BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
SELECTION = TypeAdapter(Selection).json_schema()["anyOf"]
HEAD = ("key", "type and unit", "default", "meaning", "example")
LONG = 100
"""Characters above which an example takes several lines."""
_QUANTITY = re.compile(r"(?P<bounds>[^(;]*?)(?: \(units: (?P<units>[^)]*)\))?(?: or '(?P<word>\w+)')?; formulas of")
Schema = Mapping[str, Any]


def scenario_pages() -> dict[str, str]:
    """Write the pages, by name."""
    return {name: "\n\n".join(_page(sheet)) + "\n" for name, sheet in PAGES.items()}


def _page(sheet: Sheet) -> Iterator[str]:
    yield f"# {sheet.title}"
    yield sheet.first
    for heading, section in sheet.sections.items():
        if isinstance(section, str):
            yield f"## {heading} {{#{section}}}"
            for kind in _new_kinds(section):
                yield f"### {kind.model_fields['kind'].default} {{#{kind.__name__.lower()}}}"
                yield from described(kind)
        else:
            yield f"## {heading} {{#{section.__name__.lower()}}}"
            yield from described(section)


def _new_kinds(table: str) -> tuple[type[Part], ...]:
    """List the kinds of a table, without those that it has from another one."""
    return tuple(kind for kind in TABLES[table] if table == "delays" or kind not in TABLES["delays"])


def described(part: type[Part], head: tuple[str, ...] = HEAD) -> Iterator[str]:
    """Write a part: its docstring, a table of its keys with these columns, and its examples."""
    text, _, _ = (part.__doc__ or "").partition("\n    Example")
    yield "\n\n".join(plain(paragraph) for paragraph in text.split("\n\n"))
    if rows := [_row(part, key, schema, len(head)) for key, schema in keys_of(part).items() if key != "kind"]:
        yield "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])
    for example in examples_of(part):
        yield _block(example)


def keys_of(part: type[Part]) -> dict[str, Any]:
    """Return the JSON Schema of a part's keys. Of a union, the keys that all of it has, but for ``kind``."""
    schema = part.model_json_schema()
    if "$ref" in schema:  # a part that contains parts of its kind
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    keys = [leaf["properties"] for leaf in _leaves(schema)]
    common = set.intersection(*map(set, keys)) - ({"kind"} if len(keys) > 1 else set())
    return {key: value for key, value in keys[0].items() if key in common}


def _row(part: type[Part], key: str, schema: Schema, columns: int) -> str:
    examples = [example[key] for example in examples_of(part) if key in example] or schema.get("examples", [])
    cells = [f"`{key}`", _words(schema), _default(part, key, schema), plain(schema.get("description", ""))]
    cells.append("<br>".join(dict.fromkeys(map(_code, examples))))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells[:columns]) + " |"


def _default(part: type[Part], key: str, schema: Schema) -> str:
    field = next((each for name, each in part.model_fields.items() if key in (name, each.alias)), None)
    if field is not None and field.is_required():
        return "required"
    value = schema.get("default")
    if field is not None and isinstance(field.default, Part):
        kind = {"kind": field.default.kind} if hasattr(field.default, "kind") else {}
        value = kind | field.default.model_dump(mode="json", exclude_defaults=True)
        if not value:
            return "its defaults"
    if value is None or value == []:
        return "–"
    if isinstance(value, dict) and set(value) == {"amount", "unit"}:
        return f"`{value['amount']:g} {value['unit']}`"
    if value == math.inf:
        return "`unlimited`"
    unit = next((match["units"] for leaf in _leaves(schema) if (match := _quantity(leaf))), None)
    return f"{_code(value)} {unit.split(',')[0]}" if unit else _code(value)


def _words(schema: Schema) -> str:
    """Say the type of a value in words, with links to parts."""
    leaves = list(_leaves(schema))
    names = dict.fromkeys(name for leaf in leaves if (name := _name(leaf)) in _links())
    for table in ONE_OF:
        kinds = {kind.__name__ for kind in TABLES[table]}
        if len(kinds) > 1 and kinds <= set(names):
            names = dict.fromkeys([*(name for name in names if name not in kinds), table])
    others = [leaf for leaf in leaves if _name(leaf) not in _links()]
    words = [_links()[name] for name in names]
    if all(leaf in others for leaf in SELECTION):
        others = [leaf for leaf in others if leaf not in SELECTION]
        words.append("a [selection](index.md) of clients")
    if any(map(_quantity, others)):  # says all that the other alternatives of a quantity do
        others = [leaf for leaf in others if _quantity(leaf) or leaf.get("type") not in [*NUMBERS, None]]
    return " or ".join(dict.fromkeys(filter(None, [*words, *map(_word, others)])))


@cache
def _links() -> dict[str, str]:
    """Return a link to each part, and to each table of kinds."""
    links: dict[str, str] = {}
    for page, sheet in PAGES.items():
        for heading, section in sheet.sections.items():
            if isinstance(section, str):
                links[section] = f"[{ONE_OF[section]}]({page}.md#{section})"
                for kind in _new_kinds(section):
                    links[kind.__name__] = f"[{kind.model_fields['kind'].default}]({page}.md#{kind.__name__.lower()})"
            else:
                links[section.__name__] = f"[{heading}]({page}.md#{section.__name__.lower()})"
    return links


def _leaves(schema: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema."""
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for each in inner:
        yield from _leaves(each)
    if not inner:
        yield schema


def _name(leaf: Schema) -> str:
    return str(leaf["$ref"]).rpartition("/")[2] if "$ref" in leaf else str(leaf.get("title", ""))


def _quantity(leaf: Schema) -> re.Match[str] | None:
    return _QUANTITY.match(leaf.get("description", "")) if leaf.get("type") == "string" else None


def _word(leaf: Schema) -> str:
    """Say one alternative of a type in words."""
    if quantity := _quantity(leaf):
        units = f", in {quantity['units'].replace(', ', ' (', 1)})" if quantity["units"] else ""
        return quantity["bounds"] + units + (f", or `{quantity['word']}`" if quantity["word"] else "")
    if "const" in leaf or "enum" in leaf:
        return ", ".join(map(_code, leaf.get("enum", [leaf.get("const")])))
    if leaf.get("type") == "array":
        if pair := leaf.get("prefixItems"):
            return f"a pair of {' and '.join(map(_words, pair))}"
        inside = _words(leaf.get("items", {}))
        return f"a list, each {inside}" if inside else "a list"
    if isinstance(values := leaf.get("additionalProperties"), dict) and _words(values):
        return f"a mapping from names to {_words(values)}"
    if "module" in str(leaf.get("properties", {}).get("kind")):
        return "[a class of your own](../../contributing.md#extensions)"
    described = leaf.get("description", "") if not _name(leaf) and "properties" not in leaf else ""
    bounds = " and ".join(f"{words} {leaf[bound]:g}" for bound, words in BOUNDS.items() if bound in leaf)
    return plain(described) or f"{WORDS.get(str(leaf.get('type')), '')} {bounds}".strip()


def plain(text: str) -> str:
    """Write a docstring's text as one line of Markdown."""
    parts = re.split(r"(``.*?``)", " ".join(text.split()))
    return "".join(part if part.startswith("``") else re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts)


def _code(value: Any) -> str:
    return f"`{_yaml(value)}`"


def _yaml(value: Any, in_one_line: bool = True) -> str:
    """Write a value in YAML: on one line, or with a line for each key but the innermost ones."""
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style, yaml.width = True if in_one_line else None, 10_000
    yaml.dump(value, text)
    return text.getvalue().removesuffix("...\n").strip()


def _block(example: Any) -> str:
    line = _yaml(example)
    return f"```yaml\n{line if len(line) <= LONG else _yaml(example, in_one_line=False)}\n```"
