"""Plan a sweep: its keys, and a checked scenario with a folder for every point."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.files import text
from vflsim.learning.data.shelf import Shelf
from vflsim.results.sweeps import SweepPage, SweepPoint
from vflsim.scenario.document import plain
from vflsim.scenario.load import document_of, load, narrowed, quickened
from vflsim.scenario.models import Scenario
from vflsim.scenario.overrides import values_of
from vflsim.studies.checks.describe import described
from vflsim.studies.runs.simulator_choice import PathWish, choices
from vflsim.studies.runs.spec import StudySpec
from vflsim.studies.study import checked
from vflsim.vocabulary.plain_yaml import flow, parse_value, walked

_FORM = "KEY: [V1, V2, …] or KEY: V1, V2, … for every key"


@dataclass(frozen=True, slots=True)
class Axis:
    """A key of a sweep and its values. A key may name several keys, with commas: all get the same value."""

    key: str
    values: tuple[Any, ...]

    @property
    def keys(self) -> list[str]:
        """The dotted keys. Raises ScenarioError for empty and repeated ones."""
        keys = [each.strip() for each in self.key.split(",")]
        for each in keys:
            if not all(each.split(".")) or keys.count(each) > 1:
                what = f"the key {each} stands twice" if each else "a key is missing"
                allowed = "KEY=V1,V2,… or KEY,KEY=V1,V2,… for keys that go together"
                raise ScenarioError(what, f"--over {self.key}", allowed)
        return keys


def axes_of(
    source: str | Path | Mapping[str, Any], over: Iterable[str] | Mapping[str, Any], overrides: Sequence[str] = ()
) -> list[Axis]:
    """Read ``KEY=V1,V2,…`` of the command line, or a mapping of keys to lists or to such texts.

    A short key is completed: a constant, or the end of only one key that the scenario writes (``t``, ``t-sync.t``).
    Raises ScenarioError, with the possible keys if there are several.
    """
    pairs = _pairs(over.items()) if isinstance(over, Mapping) else (values_of(each, "--over") for each in over)
    raw = document_of(source, overrides)[0].raw
    axes = []
    for key, values in pairs:
        names = (_complete(raw, each.strip(), key) for each in key.split(","))
        axes.append(Axis(",".join(names), tuple(values)))
    return axes


def axes_given(
    source: str | Path | Mapping[str, Any], over: Sequence[str], file: Path | None, overrides: Sequence[str]
) -> list[Axis]:
    """Return the axes of ``--over`` and then those of ``--over-file``. Raises ScenarioError."""
    return axes_of(source, over, overrides) + ([] if file is None else axes_of(source, over_in(file), overrides))


def over_in(path: Path) -> dict[str, Any]:
    """Read a YAML file with a mapping of keys to values, for ``axes_of``. Raises ScenarioError."""
    try:
        raw, _ = parse_value(text(path), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"the file cannot be read: {reason}", str(path), remedy="check the path") from None
    if not isinstance(raw, dict) or not raw:
        raise ScenarioError("the file holds no keys with values", str(path), _FORM)
    return raw


def _pairs(over: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for key, values in over:
        if isinstance(values, str):
            yield values_of(f"{key}={values}", "--over")
        else:
            listed = plain(values, (str(key),)) if not isinstance(values, int | float | Mapping) else [plain(values)]
            yield str(key), listed


def _complete(raw: Mapping[str, Any], name: str, key: str) -> str:
    """Return the whole key of a short one; unknown ones stay, since the loader's message says more."""
    if name.partition(".")[0] in Scenario.model_fields:
        return name
    if name in (raw.get("constants") or {}):
        return f"constants.{name}"
    paths = (".".join(map(str, loc)) for loc, _ in walked(raw))
    matches = [path for path in paths if path.endswith(f".{name}")]
    if len(matches) > 1:
        what = f"there are {len(matches)} keys that end in {name}"
        raise ScenarioError(what, f"--over {key}", ", ".join(matches), "write one of them")
    return matches[0] if matches else name


MOST_POINTS = 10_000
_NAME_LENGTH = 48
_INSTEAD = {
    "seeds": "give the seeds with --seeds; every point is run with all of them",
    "name": "the name says nothing about timing or learning; sweep over what does",
}


@dataclass(frozen=True)
class SweepPlan:
    """A sweep before its first run: one point for every combination of values, in the order of their runs.

    A study is a sweep of one point, without keys. ``shelf`` has the data of the latest points.
    """

    keys: tuple[str, ...]
    points: tuple[StudySpec, ...]
    timing_only: bool
    shelf: Shelf = field(default_factory=Shelf, repr=False, compare=False)

    @property
    def page(self) -> SweepPage:
        """The content of ``sweep.json`` before the first run."""
        points = tuple(
            SweepPoint(values=point.values, folder=point.folder.name, scenario_sha256=_digest(point.text))
            for point in self.points
        )
        name = self.points[0].scenario.name
        return SweepPage(scenario=name, keys=self.keys, timing_only=self.timing_only, points=points)

    @property
    def runs(self) -> int:
        """The number of runs; a shared run counts at each of its points."""
        return sum(len(point.scenario.protocols) * len(point.scenario.seeds) for point in self.points)

    @property
    def different_runs(self) -> int:
        """The number of runs; a shared run counts once."""
        return sum(sum(counts.values()) for counts in self.own_runs)

    @property
    def own_runs(self) -> tuple[Mapping[str, int], ...]:
        """The number of runs of each protocol that each point executes; a shared run counts at its first point only."""
        owners = self.owners()
        return tuple(
            {name: len(point.scenario.seeds) for name in point.scenario.protocols if owners[place, name] == place}
            for place, point in enumerate(self.points)
        )

    def owners(self) -> dict[tuple[int, str], int]:
        """Return for every (point, protocol) the first point with the same runs, which need to run only there."""
        return self._owners

    @cached_property
    def _owners(self) -> dict[tuple[int, str], int]:
        first: dict[tuple[str, str], int] = {}
        return {
            (position, name): first.setdefault((name, point.identity(name).digest), position)
            for position, point in enumerate(self.points)
            for name in point.scenario.protocols
        }

    @property
    def default_folder(self) -> Path:
        """The default results folder: ``results/<scenario>-sweep-<key>`` (keys joined by ``_``; or ``…-timing``)."""
        keys = "_".join(map(_plain, self.keys))[: 4 * _NAME_LENGTH]
        return Path("results") / (f"{self.points[0].scenario.name}-sweep-{keys}" + "-timing" * self.timing_only)


def planned(
    source: str | Path | Mapping[str, Any],
    over: Sequence[Axis],
    *,
    zipped: bool = False,
    overrides: Sequence[str] = (),
    timing_only: bool = False,
    protocols: Sequence[str] = (),
    quick: bool = False,
    shelf: Shelf | None = None,
) -> SweepPlan:
    """Plan a scenario's sweep over the grid of all values, or with ``zipped`` over first, second, … values together.

    ``protocols`` are those to run (default: all); ``quick`` takes a first look alone.

    Checks every point, with its data, which go to the ``shelf``. Raises ScenarioError and DataError, also for keys that
    cannot be swept over, repeated values, and zipped lists of different lengths.
    """
    _check(over, zipped)
    combinations = list(zip(*(axis.values for axis in over), strict=True) if zipped else _grid(over))
    keys = tuple(axis.key for axis in over)
    points, shelf = [], shelf or Shelf()
    for values, folder in zip(combinations, folder_names(keys, combinations), strict=True):
        points.append(_point(source, over, values, overrides, protocols, quick, folder, timing_only, shelf))
    return SweepPlan(keys, tuple(points), timing_only, shelf)


def checked_point(
    scenario: Scenario,
    timing_only: bool,
    folder: str = "",
    values: tuple[Any, ...] = (),
    path: PathWish = "auto",
    shelf: Shelf | None = None,
) -> StudySpec:
    """Check the scenario of a point with its data, which go to the ``shelf``. Raises ScenarioError and DataError."""
    paths = choices(scenario, path, timing_only)
    lines = tuple(described(scenario, checked(scenario, timing_only, shelf=shelf)))
    return StudySpec(scenario, Path(folder), paths, timing_only, values=values, described=lines)


def folder_names(keys: Sequence[str], points: Iterable[Sequence[Any]]) -> list[str]:
    """Name the folder of every point, such as ``t-2_mean-5-ms``: names differ even if case is ignored."""
    lasts = [_last(key) for key in keys]
    names: list[str] = []
    taken: set[str] = set()
    for values in points:
        parts = (f"{last}-{_plain(flow(value))}"[:_NAME_LENGTH] for last, value in zip(lasts, values, strict=True))
        stem = "_".join(part.rstrip("-.") for part in parts)[: 4 * _NAME_LENGTH]
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _last(key: str) -> str:
    parts = key.split(".")
    return _plain("-".join(parts[-2:] if parts[-1].isdecimal() else parts[-1:])) or "value"


def _plain(text: str) -> str:
    """Reduce a text to characters that a folder's name may contain."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", re.sub(r"^-", "minus-", text)).strip("-._")


def _check(over: Sequence[Axis], zipped: bool) -> None:
    """Raise ScenarioError for axes that make no sweep."""
    if not over:
        raise ScenarioError("a sweep needs a key", "--over", "KEY=V1,V2,…")
    keys = [(each, axis) for axis in over for each in axis.keys]
    for position, (key, axis) in enumerate(keys):
        where = f"--over {axis.key}"
        if key in _INSTEAD:
            raise ScenarioError(f"a sweep cannot go over {key}", where, remedy=_INSTEAD[key])
        if undone := [other for other, _ in keys[:position] if _undoes(key, other) or _undoes(other, key)]:
            what = f"{key} is swept over twice" if undone[0] == key else f"{key} and {undone[0]} undo each other"
            raise ScenarioError(what, where, "every key once", "leave one of them")
    for axis in over:
        where, texts = f"--over {axis.key}", [flow(value) for value in axis.values]
        if not texts:
            raise ScenarioError("a sweep needs at least one value", where, "KEY=V1,V2,…")
        twice = [text for text in texts if texts.count(text) > 1] if not zipped else []
        if twice:
            raise ScenarioError(f"the value {twice[0]} stands twice", where, "every value once")
    lengths = [len(axis.values) for axis in over]
    if zipped and len(set(lengths)) > 1:
        counts = ", ".join(f"{axis.key} has {len(axis.values)}" for axis in over)
        raise ScenarioError(f"lists of different lengths: {counts}", "--zip", "as many values for every key")
    together = [flow(list(values)) for values in zip(*(axis.values for axis in over), strict=False)]
    if zipped and len(set(together)) < len(together):
        raise ScenarioError("the same values stand together twice", "--zip", "every combination once")
    if not zipped and prod(lengths) > MOST_POINTS:
        what = f"the grid has {prod(lengths):,} points"
        raise ScenarioError(what, " ".join(f"--over {axis.key}" for axis in over), f"1 to {MOST_POINTS:,} points")


def _undoes(key: str, earlier: str) -> bool:
    return f"{earlier}.".startswith(f"{key}.")


def _grid(over: Sequence[Axis]) -> Iterable[tuple[Any, ...]]:
    return product(*(axis.values for axis in over))


def _point(
    source: str | Path | Mapping[str, Any],
    over: Sequence[Axis],
    values: tuple[Any, ...],
    overrides: Sequence[str],
    protocols: Sequence[str],
    quick: bool,
    folder: str,
    timing_only: bool,
    shelf: Shelf,
) -> StudySpec:
    """Load and check the scenario of a point; its errors name ``--over``."""
    pairs = [(key, flow(value)) for axis, value in zip(over, values, strict=True) for key in axis.keys]
    try:
        scenario = narrowed(load(source, [*overrides, *(f"{key}={text}" for key, text in pairs)]), protocols)
        return checked_point(quickened(scenario, quick), timing_only, folder, values, shelf=shelf)
    except ScenarioError as error:
        for key, _ in pairs:
            error = error.instead(f"--set {key}=", f"--over {key}=")
        raise error from None


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
