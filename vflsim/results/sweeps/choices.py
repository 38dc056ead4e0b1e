"""Which keys of a sweep are a user's choices, decided by where they lie in the scenario; others say in what world."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

CHOSEN = frozenset({"protocols", "training", "models", "codec"})
"""The sections of a scenario that a user decides on. Others describe the world, or what is measured and how long."""
_MEASURED = frozenset({"stop", "evaluate"})
"""The keys of a protocol's entry that override sections of the other sort."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def sections_of(key: str, scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections that a dotted key lies in; of a constant those whose formulas use it, directly or not.

    Keys that get the same value are separated by commas.
    """
    return tuple(dict.fromkeys(section for each in key.split(",") for section in _sections(each.split("."), scenario)))


def is_choice(key: str, scenario: Mapping[str, Any]) -> bool:
    """Whether all that a key changes is a choice; a constant that nothing uses changes nothing, and is none."""
    sections = sections_of(key, scenario)
    return bool(sections) and CHOSEN.issuperset(sections)


def _sections(path: list[str], scenario: Mapping[str, Any]) -> Iterator[str]:
    if path[0] != "constants":
        yield path[2] if path[0] == "protocols" and len(path) > 2 and path[2] in _MEASURED else path[0]
        return
    constants, names = scenario.get("constants") or {}, {*path[1:2]}
    for name, formula in constants.items():  # each may use those before it
        if names & {*_NAME.findall(str(formula))}:
            names.add(name)
    for section, content in scenario.items():
        if section == "protocols":
            for entry in (content or {}).values():
                parts = entry.items() if isinstance(entry, Mapping) else ()
                yield from (part if part in _MEASURED else section for part, each in parts if names & _used(each))
        elif section not in ("constants", "name") and names & _used(content):
            yield section


def _used(value: Any) -> set[str]:
    """Return all names in the texts of a value, in depth: those of constants in formulas, and words."""
    if isinstance(value, Mapping):
        return {name for each in value.values() for name in _used(each)}
    if isinstance(value, list | tuple):
        return {name for each in value for name in _used(each)}
    return {*_NAME.findall(value)} if isinstance(value, str) else set()
