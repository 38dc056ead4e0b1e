"""The keys and words that the JSON Schema allows at a location of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from vflsim.vocabulary.plain_yaml import Location

_EXAMPLE = re.compile(r"Examples?: ``(.+?)``", re.DOTALL)
"""The first example in the description of a part."""
_Schema: TypeAlias = Mapping[str, Any]


class Known:
    """Looks up allowed keys and words at a location of ``raw``; makes the schema on first use."""

    def __init__(self, raw: Any, schema: Callable[[], _Schema]) -> None:
        self._raw = raw
        self._make = schema

    def keys(self, loc: Location) -> list[str]:
        """Return the keys that the mapping at ``loc`` may have, given its ``kind``."""
        return list(dict.fromkeys(key for node in self._at(loc) for key in node.get("properties", {})))

    def words(self, loc: Location) -> list[str]:
        """Return the words allowed at ``loc``: the kinds of a part, the values of a choice."""
        kinds = loc[-1:] == ("kind",)
        parents = self._at(loc[:-1], any_kind=True) if kinds else []
        found = [node.get("properties", {}).get("kind", {}) for node in parents] if kinds else list(self._at(loc))
        words = [word for node in found for word in [*node.get("enum", []), node.get("const")] if word is not None]
        return list(dict.fromkeys(map(str, words)))

    def example(self, loc: Location, value: Any = None) -> str:
        """Return an example of what may stand at ``loc``, of the kind that ``value`` names if it is one; or nothing."""
        nodes = self._at(loc, any_kind=True)
        named = [node for node in nodes if isinstance(value, str) and _kind(node) == value]
        found = (_EXAMPLE.search(node.get("description", "")) for node in named or nodes)
        return next((" ".join(match[1].split()) for match in found if match), "")

    @cached_property
    def _schema(self) -> _Schema:
        return self._make()

    def _at(self, loc: Location, *, any_kind: bool = False) -> list[_Schema]:
        nodes, value = [self._schema], self._raw
        for step in loc:
            nodes = [child for node in self._leaves(nodes, value) for child in _children(node, step)]
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                value = None
        return self._leaves(nodes, None if any_kind else value)

    def _leaves(self, nodes: list[_Schema], value: Any) -> list[_Schema]:
        """Resolve references and alternatives; of several kinds keep only the one that ``value`` names."""
        leaves = [leaf for node in nodes for leaf in self._resolved(node)]
        kind = value.get("kind") if isinstance(value, Mapping) else None
        chosen = [leaf for leaf in leaves if _kind(leaf) == kind]
        return chosen if kind is not None and chosen else leaves

    def _resolved(self, node: _Schema) -> Iterator[_Schema]:
        reference = node.get("$ref")
        if reference:
            yield from self._resolved(self._schema["$defs"][reference.rpartition("/")[2]])
        for alternatives in ("anyOf", "oneOf", "allOf"):
            for alternative in node.get(alternatives, []):
                yield from self._resolved(alternative)
        if not reference:
            yield node


def _children(node: _Schema, step: str | int) -> Iterator[_Schema]:
    if isinstance(step, int):
        child = node.get("items")
    else:
        child = node.get("properties", {}).get(step, node.get("additionalProperties"))
    if isinstance(child, Mapping):
        yield child


def _kind(leaf: _Schema) -> Any:
    kind = leaf.get("properties", {}).get("kind", {})
    return kind.get("const", kind.get("default"))
