"""Delays resampled from observations."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.errors import NoClosedFormError
from vflsim.timing.delays.base import Delay, exact, sympy
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Atoms
from vflsim.timing.readers import TimeUnit, read_observed

MAX_PIECES = 64
"""The most distinct values for which the cdf is written as a formula."""


@final
class Empirical(Delay):
    """Observed delays from a file, each equally likely.

    Example: ``{kind: empirical, file: uploads.csv, column: upload, unit: ms, interpolation: linear}``
    """

    kind: Literal["empirical"] = "empirical"
    file: str
    """CSV, Parquet, NPY or text (one number a line)."""
    column: str | None = None
    """Column of the file; may be left out where there is only one."""
    unit: TimeUnit = "s"
    """Unit of the values."""
    interpolation: Literal["none", "linear"] = "none"
    """Draw observed values only (none), or also values between neighbours (linear)."""

    @override
    def _check(self) -> None:
        self._sorted  # noqa: B018  refuses an unusable file at once

    @cached_property
    def _sorted(self) -> Floats:
        return read_observed(self.file, self.column, self.unit)

    @cached_property
    def _distinct(self) -> tuple[Floats, Floats, Floats]:
        """The distinct values, and the levels of the cdf before and at each of them."""
        values, counts = np.unique(self._sorted, return_counts=True)
        up_to = np.cumsum(counts)
        if self._steps:
            return values, (up_to - counts) / len(self._sorted), up_to / len(self._sorted)
        return values, (up_to - counts) / (len(self._sorted) - 1), (up_to - 1) / (len(self._sorted) - 1)

    @property
    def _steps(self) -> bool:
        return self.interpolation == "none" or len(self._sorted) == 1

    @override
    def expectation(self) -> float:
        values = self._sorted
        return float(np.mean(values if self._steps else (values[1:] + values[:-1]) / 2))

    @override
    def variance(self) -> float:
        off = self._sorted - self.expectation()
        if self._steps:
            return float(np.mean(off * off))
        left, right = off[:-1], off[1:]
        return float(np.mean(left * left + left * right + right * right)) / 3

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        values, before, after = self._distinct
        at = floats(x)
        place = np.searchsorted(values, at, side="right") - 1
        here = np.maximum(place, 0)
        if self._steps or len(values) == 1:
            return np.where(place < 0, 0.0, after[here])
        here = np.minimum(here, len(values) - 2)
        share = (at - values[here]) / (values[here + 1] - values[here])
        between = after[here] + share * (before[here + 1] - after[here])
        return np.where(place < 0, 0.0, np.where(place >= len(values) - 1, 1.0, between))

    @override
    def density(self, x: ArrayLike) -> Floats:
        values, before, after = self._distinct
        if self._steps or len(values) == 1:
            return np.zeros(np.shape(x))
        heights = np.concatenate([[0.0], (before[1:] - after[:-1]) / np.diff(values), [0.0]])
        return heights[np.searchsorted(values, floats(x), side="right")]

    @override
    def atoms(self) -> Atoms:
        values, before, after = self._distinct
        jumps = after > before
        return Atoms(values[jumps], (after - before)[jumps])

    @property
    @override
    def breaks(self) -> Floats:
        return self._distinct[0]

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        values, before, after = self._distinct
        if len(values) > MAX_PIECES:
            raise NoClosedFormError(
                f"the cdf of {len(values):,} observed values has that many pieces",
                "empirical",
                f"at most {MAX_PIECES} distinct values",
                "use its numbers: cdf and quantile",
            )
        points, ones = [exact(value) for value in values.tolist()], len(self._sorted) - (not self._steps)
        levels = [sympy.Rational(round(level * ones), ones) for level in after.tolist()]
        pieces = [(sympy.Integer(0), x < points[0])]
        for number in range(len(points) - 1):
            left, right = points[number], points[number + 1]
            rise = sympy.Rational(round((before[number + 1] - after[number]) * ones), ones)
            pieces.append((levels[number] + rise * (x - left) / (right - left), x < right))
        return sympy.Piecewise(*pieces, (1, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        values, count = self._sorted, len(self._sorted)
        if self._steps:
            place = np.clip(np.ceil(u * count).astype(np.int64) - 1, 0, count - 1)
            # u · count is rounded, so compare with the levels of the cdf itself.
            place = np.where((place > 0) & (place / count >= u), place - 1, place)
            place = np.where((place + 1) / count < u, np.minimum(place + 1, count - 1), place)
            return values[place]
        at = u * (count - 1)
        place = np.minimum(at.astype(np.int64), count - 2)
        return values[place] + (at - place) * (values[place + 1] - values[place])
