"""Sweeps: one results folder per point (a value for each key), and ``sweep.json``, which lists them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd
from pydantic import BaseModel, Field, model_validator

from vflsim.errors import ResultsError
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics import summarise
from vflsim.results.statistics.estimates import Estimate
from vflsim.results.statistics.quantiles import LEVELS, round_quantiles
from vflsim.results.store.folder import SWEEP
from vflsim.results.store.pages import read_page
from vflsim.results.sweeps.axis import SweepAxis, axes_of, is_choice, setting_of
from vflsim.results.tables.footnotes import final_label
from vflsim.vocabulary.metric import MetricFacts
from vflsim.vocabulary.plain_yaml import flow

QUANTILE = "quantile"
"""The ``statistic`` of estimates of quantiles."""
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


@dataclass(frozen=True)
class ShownMeasure:
    """A measure as ``Sweep.estimates`` takes it, about a target or not, in words."""

    measure: str
    target: str | None
    label: str


def shown_measure(name: str, known: Mapping[str, Sequence[str]], where: str) -> ShownMeasure:
    """Find what a user calls ``name`` among the measures ``known``, each with its targets.

    ``p99`` is the 99th percentile of round durations, and a metric is its final level: the plateau, or for runs that a
    target ended the last value. Raises NotRecordedError, which lists the allowed ones, for anything else.
    """
    if name in known:
        target = next(iter(known[name]), None)
        words = name.replace("_", " ")
        return ShownMeasure(name, target, words if target is None else words.replace("target", target))
    if level_of(name) is not None:
        return ShownMeasure(name, None, f"{name} of round durations")
    for kind in ("plateau", "end"):
        if f"{kind}_{name}" in known:
            return ShownMeasure(f"{kind}_{name}", None, final_label(name))
    metrics = [measure.removeprefix("end_") for measure in known if measure.startswith("end_")]
    others = [measure for measure in known if not measure.startswith(("end_", "plateau_"))]
    what = f"there is no metric, measure or percentile {name!r}"
    raise NotRecordedError(what, where, ", ".join([*metrics, *others, *map(percentile, LEVELS)]))


def percentile(level: float) -> str:
    """Name the quantile of a level: ``p99``."""
    return f"p{100 * level:.6g}"


def level_of(measure: str) -> float | None:
    """Return the level of ``p99``, 0.99; None for other names."""
    match = _PERCENTILE.fullmatch(measure)
    level = float(match[1]) / 100 if match else 0.0
    return level if level > 0 else None


def quantile_rows(results: Results, level: float) -> pd.DataFrame:
    """Estimate a quantile of every protocol's rounds, in the columns of a summary without measure and targets.

    Raises NotRecordedError if rounds were not kept.
    """
    rows = []
    for row in round_quantiles(results, [level]).to_dict("records"):
        lost = [run for run in results.failed if run.protocol == row["protocol"]]
        diverged = sum(run.diverged for run in lost)
        estimate = Estimate(row["runs"], row["runs"], row["value"], row["low"], row["high"], statistic=QUANTILE)
        facts = {"protocol": row["protocol"], "unit": "s", "failed": len(lost) - diverged, "diverged": diverged}
        rows.append(facts | vars(estimate))
    return pd.DataFrame(rows, columns=["unit", "protocol", "failed", "diverged", *Estimate.__dataclass_fields__])


def has_values(means: pd.DataFrame) -> bool:
    """Whether some protocol has a value at some point."""
    return bool((~means["mean"].map(math.isnan)).any())


# --- sweep ------------------------------------------------------------------------------------------------------------


class SweepPoint(BaseModel, frozen=True, extra="forbid"):
    """One point of a sweep (a value for each key), its folder beside ``sweep.json``, and whether its runs have ended.

    ``scenario_sha256`` is the digest of the folder's ``scenario.yaml``: it ties results to the values.
    """

    values: tuple[Any, ...]
    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")
    finished: bool = False
    scenario_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class SweepPage(BaseModel, frozen=True, extra="forbid"):
    """Content of ``sweep.json``: the scenario's name, the dotted keys, and the points in the order of their runs."""

    scenario: str
    keys: tuple[str, ...] = Field(min_length=1)
    timing_only: bool
    points: tuple[SweepPoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _complete(self) -> SweepPage:
        if any(len(point.values) != len(self.keys) for point in self.points):
            raise ValueError("a point has a value for each key")
        return self

    @classmethod
    def read(cls, folder: Path | str) -> SweepPage:
        """Read a folder's page. Raises ResultsError if it is absent or damaged."""
        path = Path(folder) / SWEEP
        if not path.is_file():
            what = "no such folder" if not path.parent.is_dir() else f"no {SWEEP} in it"
            raise ResultsError(what, str(folder), "a folder that vflsim sweep has written")
        return read_page(cls, path, "run the sweep again")

    def bare(self) -> SweepPage:
        """Return the page without digests and as if nothing had run: equal pages belong to the same sweep."""
        plain = {"finished": False, "scenario_sha256": None}
        return self.model_copy(update={"points": tuple(point.model_copy(update=plain) for point in self.points)})

    def text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Sweep:
    """The finished part of a sweep: ``results[k]`` belongs to ``points[k]`` (a value for each of ``keys``), in order.

    ``pending`` are the points with unfinished runs; ``targets``, if given, replaces the scenario's.
    """

    folder: Path
    scenario: str
    keys: tuple[str, ...]
    timing_only: bool
    points: tuple[tuple[Any, ...], ...]
    results: tuple[Results, ...]
    pending: tuple[tuple[Any, ...], ...]
    targets: Mapping[str, Any] | None = None

    @classmethod
    def open(cls, folder: Path | str, targets: Mapping[str, Any] | None = None, trust: bool = False) -> Self:
        """Open the folder of a sweep; ``targets`` replaces the scenario's.

        Raises ResultsError if it is not a sweep, is damaged, or no point has finished.
        """
        folder, page = Path(folder), SweepPage.read(folder)
        done = [entry for entry in page.points if entry.finished]
        if not done:
            raise ResultsError("no value of this sweep has finished", str(folder), remedy="run the sweep again")
        results = tuple(Results.open(folder / entry.folder, trust) for entry in done)
        pending = tuple(entry.values for entry in page.points if not entry.finished)
        points = tuple(entry.values for entry in done)
        return cls(folder, page.scenario, page.keys, page.timing_only, points, results, pending, targets)

    def __iter__(self) -> Iterator[tuple[Any, Results]]:
        return iter(zip(self.values, self.results, strict=True))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def key(self) -> str:
        """The swept key; several stand side by side."""
        return " × ".join(self.keys)

    @property
    def values(self) -> tuple[Any, ...]:
        """The value of each point; with several keys, a mapping of their short names to its values."""
        if len(self.keys) == 1:
            return tuple(value for (value,) in self.points)
        names = [axis.name for axis in self.axes]
        return tuple(dict(zip(names, point, strict=True)) for point in self.points)

    @cached_property
    def axes(self) -> tuple[SweepAxis, ...]:
        """Every key with its values, point by point."""
        return axes_of(self.keys, self.points)

    @cached_property
    def choices(self) -> tuple[bool, ...]:
        """Which keys are a user's choices: see :mod:`~vflsim.results.sweeps.axis`."""
        return tuple(is_choice(key, self.results[0].scenario) for key in self.keys)

    def worlds(self) -> Iterator[tuple[tuple[int, ...], Self]]:
        """Yield the points that differ in choices alone, as their positions and a sweep of these points."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for position, point in enumerate(self.points):
            key = (flow(value) for value, chosen in zip(point, self.choices, strict=True) if not chosen)
            groups.setdefault((*key,), []).append(position)
        for positions in groups.values():
            points = tuple(self.points[position] for position in positions)
            results = tuple(self.results[position] for position in positions)
            yield tuple(positions), replace(self, points=points, results=results)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the points with these values of keys, by name or short name; the keys are no longer swept.

        A value is written as in ``sweep.json``: ``2``, ``5 Mbps``. Raises ResultsError for an unknown key, for a value
        that no point has, and if no key is left.
        """
        sweep = self
        for name, value in values.items():
            sweep = sweep._at(name, value)
        return sweep

    def _at(self, name: str, value: Any) -> Self:
        place = next((k for k, axis in enumerate(self.axes) if name in (axis.name, axis.key)), None)
        if place is None:
            raise ResultsError(f"{name!r} is no key of this sweep", "--at", ", ".join(axis.name for axis in self.axes))
        if len(self.keys) == 1:
            raise ResultsError(f"{name} is the only key of this sweep", "--at", "one key less than the sweep has")
        axis, left = self.axes[place], [k for k in range(len(self.keys)) if k != place]
        chosen = [position for position, each in enumerate(axis.values) if value in (each, flow(each), str(each))]
        if not chosen:
            raise ResultsError(f"no point has {name} = {value}", "--at", ", ".join(map(flow, axis.distinct.values)))
        rest = [point for point in self.pending if flow(point[place]) == flow(axis.values[chosen[0]])]
        return replace(
            self,
            keys=tuple(self.keys[k] for k in left),
            points=tuple(tuple(self.points[position][k] for k in left) for position in chosen),
            results=tuple(self.results[position] for position in chosen),
            pending=tuple(tuple(point[k] for k in left) for point in rest),
            scenario=f"{self.scenario}, {axis.name} = {flow(axis.values[chosen[0]])}",
        )

    @property
    def zipped(self) -> bool:
        """Whether all keys change from point to point: first, second, … values together, no grid."""
        axes = axes_of(self.keys, [*self.points, *self.pending])
        return len(axes) > 1 and all(len(axis.distinct.values) == len(axis.values) > 1 for axis in axes)

    @property
    def joint_axis(self) -> SweepAxis:
        """The only axis; of several keys that change together, one whose values are mappings."""
        return self.axes[0] if len(self.keys) == 1 else SweepAxis(",".join(self.keys), self.key, self.values)

    def setting(self, point: Sequence[Any]) -> str:
        """Write a point with its keys: ``t = 2, mean = 5 ms``."""
        return setting_of(self.keys, point)

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocols of all points, in the scenario's order."""
        return tuple(dict.fromkeys(name for study in self.results for name in study.protocols))

    @property
    def label(self) -> str:
        """The swept keys in words: ``clients``, ``learning rate``, ``bandwidth``."""
        return ", ".join(axis.label for axis in self.axes)

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values of a sweep over one key as numbers in SI units; None unless all are (or there are more keys)."""
        return self.axes[0].numbers if len(self.axes) == 1 else None

    @property
    def own_metrics(self) -> dict[str, MetricFacts]:
        """What is known of the scenario's own metrics, by name."""
        return {name: facts for study in self.results for name, facts in study.own_metrics.items()}

    def estimates(self, measure: str = "round_duration", target: str | None = None) -> pd.DataFrame:
        """Return one measure of :func:`~vflsim.results.statistics.summarise`, one row per point and protocol.

        ``p99`` is the 99th percentile of round durations, ``p50`` their median. Columns: position (of the point, from
        0), value, protocol, unit, failed, diverged, the fields of ``Estimate``. ``target`` is written as in the summary
        (``test_accuracy ≥ 0.9 for 5 evaluations``). Raises NotRecordedError, which lists the allowed ones, for a
        measure or a target that no point has.
        """
        frames = []
        for position, (value, rows) in enumerate(zip(self.values, self._rows(measure, target), strict=True)):
            rows.insert(0, "position", position)
            rows.insert(1, "value", pd.Series([value] * len(rows), index=rows.index, dtype=object))
            frames.append(rows)
        return pd.concat(frames, ignore_index=True)

    def _rows(self, measure: str, target: str | None) -> Iterator[pd.DataFrame]:
        """Yield every point's rows of the summary about one measure, or estimates of a quantile."""
        if measure not in self.measures and target is None and (level := level_of(measure)) is not None:
            yield from (quantile_rows(study, level) for study in self.results)
            return
        self._refuse_unknown(measure, target)
        for summary in self.summaries:
            rows = summary[(summary["measure"] == measure) & summary["baseline"].isna()]
            rows = rows[rows["target"].isna() if target is None else rows["target"] == target]
            yield rows.drop(columns=["measure", "target", "baseline"])

    @cached_property
    def measures(self) -> dict[str, tuple[str, ...]]:
        """The measures of all points, each with its targets (most have none)."""
        pairs = [pair for summary in self.summaries for pair in zip(summary["measure"], summary["target"], strict=True)]
        by_measure: dict[str, list[str]] = {measure: [] for measure, _ in pairs}
        for measure, target in dict.fromkeys(pairs):
            by_measure[measure] += [target] if isinstance(target, str) else []
        return {measure: tuple(targets) for measure, targets in by_measure.items()}

    def _refuse_unknown(self, measure: str, target: str | None) -> None:
        known = self.measures
        if measure not in known:
            raise NotRecordedError(f"there is no measure {measure!r}", str(self.folder), ", ".join(known))
        if target is None and known[measure]:
            raise NotRecordedError(
                f"{measure} is about a target", str(self.folder), f"target: {', '.join(known[measure])}"
            )
        if target is not None and target not in known[measure]:
            allowed = ", ".join(known[measure]) or f"none: {measure} is about no target"
            raise NotRecordedError(f"there is no target {target!r} of {measure}", str(self.folder), allowed)

    @cached_property
    def summaries(self) -> tuple[pd.DataFrame, ...]:
        """The summary of every point's results."""
        return tuple(summarise(study, self.targets) for study in self.results)


def open_folder(folder: Path | str, trust: bool = False) -> Results | Sweep:
    """Open a folder of results or of a sweep. Raises ResultsError for any other folder."""
    return Sweep.open(folder, trust=trust) if (Path(folder) / SWEEP).is_file() else Results.open(folder, trust)
