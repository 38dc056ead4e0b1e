"""Kinds that installed packages bring: entry points of the group ``vflsim.kinds``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from vflsim.scenario.problems import Problem
from vflsim.vocabulary.imported import built_in_kinds
from vflsim.vocabulary.plain_yaml import Location

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
    for loc, points in _named(raw):
        if len({point.value for point in points}) > 1:
            what = f"several installed packages bring this kind: {', '.join(sorted(map(_package, points)))}"
            paths = " or ".join(f'{{kind: module, path: "{point.value}"}}' for point in points)
            problems.append(Problem((*loc, "kind"), what, paths, "name the class by its path"))
    return problems


def packages_of(raw: Any) -> dict[str, str]:
    """Return the kinds of installed packages that a scenario names, each with its package and version."""
    found: dict[str, str] = {}
    for path in _paths(raw):
        found |= {point.name: _package(point) for point in _points() if point.value == path}
    return dict(sorted(found.items()))


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
    points = _of_kind(value)
    return {"kind": "module", "path": points[0].value, **_without_kind(inside)} if points else inside


def _without_kind(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "kind"}


def _named(value: Any, loc: Location = ()) -> Iterator[tuple[Location, tuple[EntryPoint, ...]]]:
    """Yield the location of every part whose kind an installed package brings, with its entry points."""
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, Mapping) and (points := _of_kind(value)):
        yield loc, points
    for key, item in items:
        yield from _named(item, (*loc, key))


def _paths(value: Any) -> Iterator[str]:
    items: Any = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if isinstance(value, Mapping) and value.get("kind") == "module" and isinstance(value.get("path"), str):
        yield value["path"]
    for item in items:
        yield from _paths(item)
