"""Where kinds of others come from: users' own modules (``{kind: module, path: "mine:Class"}``), installed packages.

The key ``modules`` of a scenario names a folder with modules. Where it is left out, and the scenario's folder has one
of them, the resolved scenario names that folder, so that a scenario stored with results finds them again.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from vflsim.scenario.document import Problem
from vflsim.vocabulary.imported import built_in_kinds
from vflsim.vocabulary.plain_yaml import Location, walked


def rooted(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return ``raw`` with an absolute ``modules``, which is ``folder`` if that has one of the modules named."""
    modules = raw.get("modules")
    if modules is None and any(_spec(name, str(folder.resolve())) for _, name in _named(raw)):
        modules = "."
    return {**raw, "modules": str((folder / modules).resolve())} if isinstance(modules, str) else raw


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
        spec, there = _spec(name, folder), _taken(name)
        if spec is not None and there is not None and not _same(spec, there):
            what = f"{name} is {there.origin or 'another module'}, and {spec.origin} has the same name"
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


def _paths(raw: Any) -> Iterator[tuple[Location, str]]:
    for loc, part in walked(raw):
        if isinstance(part, Mapping) and part.get("kind") == "module" and isinstance(part.get("path"), str):
            yield (*loc, "path"), part["path"]


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


GROUP = "vflsim.kinds"
"""The group of entry points: ``hedged = "vflsim_hedged:Hedged"`` makes ``{kind: hedged}`` a class of that package."""


def by_path(raw: dict[str, Any]) -> dict[str, Any]:
    """Return ``raw`` with the kinds of installed packages named by path, ``{kind: module, path: …}``.

    Built-in kinds are never replaced. Nothing is imported.
    """
    return {key: _replaced(value) for key, value in raw.items()}


def ambiguous(raw: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each kind that several installed packages bring."""
    problems = []
    for loc, part in walked(raw):
        points = _of_kind(part) if isinstance(part, Mapping) else ()
        if len({point.value for point in points}) > 1:
            what = f"several installed packages bring this kind: {', '.join(sorted(map(_package, points)))}"
            paths = " or ".join(f'{{kind: module, path: "{point.value}"}}' for point in points)
            problems.append(Problem((*loc, "kind"), what, paths, "name the class by its path"))
    return problems


def packages_of(raw: Any) -> dict[str, str]:
    """Return the kinds of installed packages that a scenario names, each with its package and version."""
    packages: dict[str, str] = {}
    for _, path in _paths(raw):
        packages |= {point.name: _package(point) for point in _points() if point.value == path}
    return dict(sorted(packages.items()))


@cache
def _points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package without a name"


def _of_kind(value: Mapping[str, Any]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a mapping's kind; none if it has no kind, or a built-in one."""
    points = tuple(point for point in _points() if point.name == value.get("kind"))
    return () if not points or points[0].name in {"module", *built_in_kinds()} else points


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    inside = {key: _replaced(item) for key, item in value.items()}
    if not (points := _of_kind(value)):
        return inside
    return {"kind": "module", "path": points[0].value, **{key: inside[key] for key in inside if key != "kind"}}
