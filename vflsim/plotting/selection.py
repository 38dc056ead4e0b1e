"""The part of the horizontal axis and the runs that a figure shows: --from 10 s --to 2 min."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from vflsim.errors import ResultsError
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.results.store.run import RecordedRun
from vflsim.results.store.schema import TableName
from vflsim.results.sweeps.sweep import Sweep
from vflsim.timing.floats import Floats
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
