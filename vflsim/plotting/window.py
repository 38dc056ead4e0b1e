"""The part of the horizontal axis that a figure shows, with units: ``--from 10 s --to 2 min``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from vflsim.errors import ResultsError
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import TIME, Dimension, Quantity

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
        for name, said, default in (("start (--from)", start, 0.0), ("end (--to)", end, np.inf)):
            try:
                wanted = Quantity(dimension, at_least=0)
                ends.append(default if said is None else float(wanted.convert(said, {})))
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
