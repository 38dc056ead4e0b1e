"""Functions and cdfs as Chebyshev series on panels, evaluated by ``numpy.polynomial.chebyshev``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.polynomial import chebyshev

from vflsim.timing.floats import Floats, floats

_DEGREE: Final = 14
_TAIL: Final = 1e-15
_JUMP: Final = 1e-9
_NOISE: Final = 1e-9
NARROW: Final = 1e-13
"""Relative width below which panels are not halved; a jump in such a panel is moved to its end."""
_MOST_HALVINGS: Final = 40
_LEAST: Final = 1e-12
_MOST_PANELS: Final = 4_000
_TOGETHER: Final = 2**16
_NODES = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
_TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(_NODES, _DEGREE))

Judge = Callable[["Panels"], Floats]
"""Returns the allowed errors of panels, (n,), and may replace their series."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels from ``left`` to ``right`` (n,), a function's values at their nodes (n, degree + 1), and its series."""

    left: Floats
    right: Floats
    values: Floats
    series: Floats
    """Coefficients (degree + 1, n)."""
    error: Floats
    """The largest of the last three coefficients, (n,)."""


@dataclass(frozen=True, eq=False)
class Piecewise:
    """A function as Chebyshev series on panels: edges (n + 1,) in order, coefficients (degree + 1, n)."""

    edges: Floats
    coefficients: Floats

    @classmethod
    def of(
        cls, function: Callable[[Floats], Floats], edges: Floats, allowed: Judge, noise: float, most: int
    ) -> Piecewise:
        """Halve panels until the last coefficients are as small as ``allowed`` (see ``Judge``).

        Errors below ``noise`` that halving does not reduce belong to the function itself. More than ``most`` panels are
        accepted without halving. In panels too narrow to be halved the function keeps its value at the left end.
        """
        a, b = edges[:-1], edges[1:]
        before = np.full(len(a), math.inf)
        done: list[tuple[Floats, Floats]] = []
        for halving in range(_MOST_HALVINGS + 1):
            x = (a + b)[:, None] / 2 + (b - a)[:, None] / 2 * _NODES
            values = function(x)
            c = _TO_COEFFICIENTS @ values.T
            error = np.abs(c[-3:]).max(axis=0)
            rough = error > allowed(Panels(a, b, values, c, error))
            rough &= ~((error < noise) & (error > before / 4))
            middle = a + (b - a) / 2
            narrow = rough & ((halving == _MOST_HALVINGS) | (middle <= a) | (middle >= b) | (b - a <= NARROW * b))
            if narrow.any():
                # No polynomial can follow a jump within a panel, so the jump moves to the panel's end.
                c[0, narrow], c[1:, narrow] = function(a[narrow]), 0.0
            rough &= ~narrow
            done.append((a[~rough], c[:, ~rough]))
            if not rough.any():
                break
            if sum(len(starts) for starts, _ in done) + rough.sum() > most:
                done.append((a[rough], c[:, rough]))
                break
            a, middle, b = a[rough], middle[rough], b[rough]
            a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
            before = np.tile(error[rough], 2)
        starts = np.concatenate([part[0] for part in done])
        order = np.argsort(starts)
        coefficients = np.concatenate([part[1] for part in done], axis=1)[:, order]
        return cls(np.append(starts[order], edges[-1]), coefficients)

    def __call__(self, x: Floats) -> Floats:
        """Give the function, elementwise; beyond the edges its value at the first or the last of them."""
        flat = np.clip(x.ravel(), self.edges[0], self.edges[-1])
        value = np.empty(flat.shape)
        for start in range(0, len(flat), _TOGETHER):
            here = flat[start : start + _TOGETHER]
            panel = np.clip(np.searchsorted(self.edges, here, side="right") - 1, 0, len(self.edges) - 2)
            a, b = self.edges[panel], self.edges[panel + 1]
            z = np.clip((2 * here - a - b) / (b - a), -1.0, 1.0)
            value[start : start + _TOGETHER] = chebyshev.chebval(z, self.coefficients[:, panel], tensor=False)
        return value.reshape(x.shape)

    @cached_property
    def derivative(self) -> Piecewise:
        """The derivative within the panels."""
        return Piecewise(self.edges, floats(chebyshev.chebder(self.coefficients, axis=0)) * 2 / np.diff(self.edges))

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The values at the left and at the right end of every panel."""
        return (-1.0) ** np.arange(len(self.coefficients)) @ self.coefficients, self.coefficients.sum(axis=0)


@dataclass(frozen=True, eq=False)
class ChebyshevTable:
    """A cdf on panels; no ``level`` for a point. ``edges`` (n + 1,) in order."""

    edges: Floats
    level: Piecewise | None

    @classmethod
    def of(
        cls,
        cdf: Callable[[Floats], Floats],
        support: tuple[float, float],
        breaks: Floats,
        scale: float,
        accuracy: float,
    ) -> ChebyshevTable:
        """Halve panels until the last coefficients are below ``accuracy`` times the survival function there.

        ``scale`` is the size of a typical distance from the shortest time. ``breaks`` are edges of panels.
        """
        low, high = support
        if low == high:
            return cls(np.array([low]), None)
        reach = floats(low + scale * 2.0 ** np.arange(-8, 200))
        left = 1 - cdf(reach)
        last = int(np.argmax(left <= max(_TAIL, float(left.min()))))  # rounding may keep it below 1
        edges = {low, *reach[: last + 1].tolist(), *breaks.tolist()}
        ends = np.array(sorted(x for x in edges if low <= x <= min(high, reach[last])))
        if high < reach[last]:
            ends = np.append(ends[ends < high], high)

        def allowed(panels: Panels) -> Floats:
            # A tail is long: errors that are large beside what is left of it would add up in a mean.
            return floats(np.maximum(accuracy * (1 - panels.values).max(axis=1), _LEAST))

        level = Piecewise.of(cdf, ends, allowed, _NOISE, _MOST_PANELS)
        return cls(level.edges, level)

    def cdf(self, points: Floats) -> Floats:
        """Give the interpolant, elementwise."""
        if self.level is None:
            return np.where(points >= self.edges[0], 1.0, 0.0)
        value = np.clip(self.level(points), 0.0, 1.0)
        return np.where(points < self.edges[0], 0.0, np.where(points >= self.edges[-1], 1.0, value))

    @cached_property
    def mass(self) -> tuple[Floats, Floats]:
        """The places and the sizes of the jumps from panel to panel, which the density leaves out."""
        if self.level is None:
            return self.edges, np.ones(1)
        starts, ends = self.level.ends
        jumps = np.append(starts, 1.0) - np.append(0.0, ends)
        return self.edges[jumps > _JUMP], jumps[jumps > _JUMP]

    def density(self, x: Floats) -> Floats:
        """Give the derivative within the panels, elementwise."""
        if self.level is None:
            return np.zeros(np.shape(x))
        return np.where((x >= self.edges[0]) & (x <= self.edges[-1]), self.level.derivative(x), 0.0)
