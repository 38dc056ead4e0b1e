"""Where Python looks for users' own modules (``{kind: module, path: "mine:Class"}``): the scenario's folder, too.

The key ``modules`` of a scenario names the folder. Where it is left out, and the scenario's folder has one of the
modules, the resolved scenario names that folder, so that a scenario stored with results finds them again.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from vflsim.scenario.problems import Problem
from vflsim.vocabulary.plain_yaml import Location


def rooted(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return ``raw`` with an absolute ``modules``, which is ``folder`` if that has one of the modules named."""
    given = raw.get("modules")
    if given is None and any(_spec(name, str(folder.resolve())) for _, name in _named(raw)):
        given = "."
    return {**raw, "modules": str((folder / given).resolve())} if isinstance(given, str) else raw


def look_in_folder(raw: dict[str, Any]) -> list[Problem]:
    """Let Python look for modules in the folder ``modules``, too, after all others; workers inherit this.

    Returns a problem for each module that Python would take from elsewhere although the folder has one of its name.
    """
    folder = raw.get("modules")
    if not isinstance(folder, str):
        return []
    if not os.path.isdir(folder):
        return [Problem(("modules",), f"there is no folder {folder}", "the folder of your own modules")]
    named = list(_named(raw))
    if named and folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    problems = []
    for loc, name in named:
        own, there = _spec(name, folder), _taken(name)
        if own is not None and there is not None and not _same(own, there):
            what = f"{name} is {there.origin or 'another module'}, and {own.origin} has the same name"
            problems.append(Problem(loc, what, "a name that no other module has", "rename your module"))
    return problems


def code_of(raw: Mapping[str, Any]) -> frozenset[tuple[Any, str]]:
    """Return every import path that a scenario names, with the scenario's folder of modules."""
    return frozenset((raw.get("modules"), path) for _, path in _paths(raw))


def origins(raw: dict[str, Any]) -> dict[str, str]:
    """Return the outermost modules that a rooted scenario names, with the file of each; nothing is imported."""
    folder = str(raw.get("modules") or "")
    specs = {name: _taken(name) or _spec(name, folder) for name in sorted({name for _, name in _named(raw)})}
    return {name: "not found" if spec is None else spec.origin or "a folder" for name, spec in specs.items()}


def _named(raw: dict[str, Any]) -> Iterator[tuple[Location, str]]:
    """Yield the location of every ``path: "package.module:Class"``, and the outermost package or module."""
    for loc, path in _paths(raw):
        name = path.partition(":")[0].partition(".")[0]
        if name.isidentifier():
            yield loc, name


def _paths(value: Any, loc: Location = ()) -> Iterator[tuple[Location, str]]:
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, Mapping) and value.get("kind") == "module" and isinstance(value.get("path"), str):
        yield (*loc, "path"), value["path"]
    for key, item in items:
        yield from _paths(item, (*loc, key))


def _spec(name: str, folder: str) -> ModuleSpec | None:
    """Find a module or package in a folder; not a mere folder, which Python would take for a package without code."""
    spec = PathFinder.find_spec(name, [folder])
    return spec if spec is not None and spec.origin is not None else None


def _taken(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # the main module has no spec
        return None


def _same(one: ModuleSpec, other: ModuleSpec) -> bool:
    return other.origin is not None and os.path.realpath(str(one.origin)) == os.path.realpath(other.origin)
