"""What figures show: a window of the horizontal axis, some of the runs; and figures of classes from outside."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from pydantic import ValidationError

from vflsim.errors import ResultsError, VflsimError
from vflsim.plotting.style import Picture
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.results.store.manifest import refuse_untrusted
from vflsim.results.store.run import RecordedRun
from vflsim.results.store.schema import TableName
from vflsim.results.sweeps import Sweep
from vflsim.scenario.own_modules import origins
from vflsim.timing.floats import Floats
from vflsim.vocabulary.figures import Figure
from vflsim.vocabulary.imported import class_of, origin, reason
from vflsim.vocabulary.quantities import TIME, Dimension, Quantity


def only(results: Results | Sweep, protocols: Sequence[str]) -> Results | Sweep:
    """Return these results without the runs of other protocols."""
    if isinstance(results, Sweep):
        parts = [only(each, protocols) for each in results.results]
        return replace(results, results=tuple(each for each in parts if isinstance(each, Results)))
    return results.only(protocols)


def known_protocols(results: Results | Sweep, protocols: Sequence[str]) -> None:
    """Raise ResultsError for a protocol without a run."""
    for name in protocols:
        if name not in results.protocols:
            raise ResultsError(f"there is no protocol {name!r}", str(results.folder), ", ".join(results.protocols))


def finished(results: Results, *tables: TableName) -> dict[str, list[StoredRun]]:
    """Select the runs that did not fail and kept these tables, by protocol, in the scenario's order.

    Raises NotRecordedError if there is none.
    """
    kept = [run for run in results.runs if not run.failed]
    chosen = [run for run in kept if all(run.has(name) for name in tables)]
    if not chosen:
        if not kept:
            raise NotRecordedError("no run has finished", str(results.folder))
        for name in tables:
            kept[0].table(name)  # raises the error with the remedy
        raise NotRecordedError(f"no run kept its {' and '.join(tables)}", str(results.folder))
    return {name: runs for name in results.protocols if (runs := [run for run in chosen if run.protocol == name])}


def one_seed(results: Results, protocols: Sequence[str] | None = None, seed: int | None = None) -> list[StoredRun]:
    """Select the runs of one seed that kept events; the default seed is the first that most protocols have.

    Raises ResultsError for a protocol or seed without a run, NotRecordedError if none of the runs kept its events.
    """
    known_protocols(results, protocols or ())
    if seed is not None and seed not in results.seeds:
        raise ResultsError(f"there is no seed {seed}", str(results.folder), ", ".join(map(str, results.seeds)))
    if protocols is not None and seed is not None:
        runs = [results.run(name, seed) for name in protocols]
    else:
        runs = [run for run in results.runs if protocols is None or run.protocol in protocols]
        drawable = Counter(run.seed for run in runs if run.has("events"))
        best = min(drawable, key=lambda number: (-drawable[number], number), default=seed)
        runs = [run for run in runs if run.seed == (best if seed is None else seed)] or [results.runs[0]]
    if not any(run.has("events") for run in runs):
        runs[0].table("events")  # raises the error with the remedy
    return [run for run in runs if run.has("events")]


def length(run: RecordedRun) -> float:
    """Return the end of a run in seconds."""
    times = run.table("metrics")["time_s"]
    return float(times[-1].as_py()) if len(times) else 0.0


Place = float | str | None
"""A place on an axis: a number in SI units, or text with a unit. None is the beginning or the end of the axis."""


@dataclass(frozen=True)
class Window:
    """From ``start`` to ``end`` of an axis, in SI units."""

    start: float = 0.0
    end: float = np.inf

    @classmethod
    def of(cls, start: Place, end: Place, dimension: Dimension = TIME) -> Window:
        """Convert the ends of a window. Raises ResultsError for other than ``dimension``, or for an empty window."""
        ends = []
        for name, place, default in (("start (--from)", start, 0.0), ("end (--to)", end, np.inf)):
            try:
                wanted = Quantity(dimension, at_least=0)
                ends.append(default if place is None else float(wanted.convert(place, {})))
            except ValueError as error:
                what, _, allowed = str(error).partition("; allowed: ")
                raise ResultsError(what, f"plot: {name}", allowed) from None
        if not ends[0] < ends[1]:
            raise ResultsError(f"an empty window: {start} to {end}", "plot: start, end (--from, --to)", "start < end")
        return cls(*ends)

    def inside(self, x: Floats) -> slice:
        """Select the steps of a step function, with their beginnings in ascending ``x``, that reach into the window."""
        first = max(int(np.searchsorted(x, self.start, side="right")) - 1, 0)
        return slice(first, int(np.searchsorted(x, self.end, side="right")))

    def show(self, axes: Axes) -> None:
        """Limit the x axis to the window; the ends that the user has not given stay."""
        if self.start > 0:
            axes.set_xlim(left=self.start)
        if self.end < np.inf:
            axes.set_xlim(right=self.end)


_WHERE = "plot"


def is_path(kind: str) -> bool:
    """Return whether a figure is named by its path, ``package.module:Class``."""
    return ":" in kind


def own_figure(path: str, results: Results | Sweep) -> Callable[..., Picture]:
    """Return the function that draws the figure of a class from outside; its options are the class's fields.

    Python looks for the module in the current folder, too, and then in the folder of modules of the results' scenario,
    if the results are trusted. Importing it runs its code. Raises ResultsError for what is no such class.
    """
    _look_in(str(Path.cwd()))
    _look_in_folder_of(results, path)
    try:
        figure = cast("type[Figure]", class_of(path, Figure))
    except ValueError as error:
        what, _, mend = str(error).partition("; ")
        there = "name a module in the current folder, on PYTHONPATH, or in the scenario's folder of modules"
        allowed = "package.module:Class, a Figure with a kind and draw(results)"
        raise ResultsError(what, _WHERE, allowed, there if not mend or "does not import" in what else mend) from error

    def draw(results: Results | Sweep, **options: Any) -> Picture:
        return _drawn(figure, results, options)

    names = [Parameter("results", Parameter.POSITIONAL_ONLY)]
    names += [Parameter(name, Parameter.KEYWORD_ONLY) for name in figure.model_fields if name != "kind"]
    draw.__signature__ = Signature(names)  # type: ignore[attr-defined]
    draw.__name__ = figure.model_fields["kind"].default
    return draw


def _drawn(figure: type[Figure], results: Results | Sweep, options: dict[str, Any]) -> Picture:
    name = figure.__name__
    try:
        instance = figure.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "its options"
        raise ResultsError(f"{name}.{key}: {first['msg']}", _WHERE, ", ".join(_options_of(figure))) from error
    try:
        drawn = instance.draw(results)
    except VflsimError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ResultsError(
            f"the figure {name} fails: {reason(error)}", _WHERE, remedy=f"mend it; raised in {origin(error)}"
        ) from error
    if not isinstance(drawn, Picture):
        what = f"{name}.draw returned a {type(drawn).__name__}"
        raise ResultsError(what, _WHERE, "a Picture, which `with picture(width, height, numbers)` makes", "mend 'draw'")
    return drawn


def _options_of(figure: type[Figure]) -> list[str]:
    return [name for name in figure.model_fields if name != "kind"]


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _look_in_folder_of(results: Results | Sweep, path: str) -> None:
    """Let Python find a figure's module in the folder of modules of the results, if it is there and nowhere else.

    Raises ResultsError for a module there if the results are not trusted.
    """
    study = results.results[0] if isinstance(results, Sweep) else results
    entries = {"modules": study.scenario.get("modules"), "figure": {"kind": "module", "path": path}}
    there = origins(entries)
    if not isinstance(entries["modules"], str) or there == origins(entries | {"modules": None}):
        return
    runs = [run for run in study.runs if run.folder.parents[1] == study.runs[0].folder.parents[1]]
    refuse_untrusted(runs[0].folder.parents[1], runs, there)
    _look_in(entries["modules"])
