"""A distribution on a grid: the log odds of its cdf, straight between points in the logarithm of time since its start.

In log odds, log(F / (1 − F)), both tails keep their digits. Near the start of a law, and in a tail like a power, they
are straight lines in log(x − start), so that few points serve any scale. A law is evaluated where a cubic curve
through its points is off by more than ``CDF_ERROR``; between these points the curve is drawn by short lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import expit

from vflsim.timing.floats import Floats, floats

CDF_ERROR: Final = 2e-7
"""The error of a cdf on a grid, absolute; that of a sum of two may be ten times as large."""
_TAIL_ERROR: Final = 1e-4
"""The error of small probabilities, relative."""
_SMOOTHER: Final = 8.0
"""How much smaller the error of a cubic curve becomes where a cell is halved."""
_WIDEST: Final = 1 / 16
"""The most probability of a cell: in a wider one, features could hide."""
_STEEPEST: Final = 2.0
"""The most log odds of a cell."""
_NARROW: Final = 1e-13
"""The relative width of a cell in which the law jumps."""
_MOST: Final = 20_000
"""Points beyond which none are added."""
_LEAST: Final = -30.0
"""Log odds of the least probability of shorter times that counts."""
_PRECISE: Final = 70.0
"""Log odds of the least probability of longer times that counts."""
_ROUNDED: Final = 24.0
"""Log odds from which the probability of longer times may be rounding, if it is a difference, 1 − cdf."""
_BEFORE: Final = 9.0
"""How much earlier in log odds than the first rounding that shows, a tail is believed."""
_OCTAVES = np.arange(-200.0, 1020.0, 4.0) * math.log(2)
_FIRST, _LAST = -1e3, 709.0
"""Logarithms of times at which the lines end that go on below the first point, and above the last."""
_SURE: Final = 1e4
"""Log odds at the end of a law."""
_EARLY: Final = -7.0
_LINE, _LINE_FAR_OUT = 0.02, 0.1
"""The most log odds of a line: of one that means depend on, and of others."""
_MOST_LINES: Final = 100
_MOST_BREAKS: Final = 5_000
_FAR: Final = 20.0
_BLOCK_ERROR: Final = 2e-5
"""The error of a cdf that is straight within a block; that of a sum is much smaller where the other time is wider."""
_MOST_HALVINGS: Final = 10
_MOST_EDGES: Final = 512
_U, _W = np.polynomial.legendre.leggauss(4)
_PLACES, _WEIGHTS = (_U + 1) / 2, _W / 2
_GAUSS = (1 + np.array([-1.0, 1.0]) / math.sqrt(3)) / 2
_ODDS = np.linspace(-30.0, _PRECISE, 10_001)
_PLACE = np.where(_ODDS < 0, 12, 50) * np.arcsinh(_ODDS / 5) + 110 * expit(_ODDS)
_EDGES = np.interp(np.arange(math.ceil(_PLACE[0]), _PLACE[-1]), _PLACE, _ODDS)
"""Log odds between which a law that is added to another is taken as uniform."""

Levels = Callable[[Floats], tuple[Floats, Floats]]
"""Gives P(X ≤ x) and P(X > x), elementwise."""


@np.errstate(divide="ignore", invalid="ignore")
def log_odds(below: Floats, above: Floats) -> Floats:
    """Give log(below / above), elementwise; infinite where one of the probabilities is 0."""
    return floats(np.log(below) - np.log(above))


@dataclass(frozen=True, eq=False)
class Grid:
    """A distribution on [start, end]: ``odds`` (n,), in order, at the times start + exp(``logs``) (n,)."""

    start: float
    end: float
    logs: Floats
    odds: Floats
    index: float
    """The exponent of the tail (``Law.tail_index``)."""
    breaks: Floats
    """Times at which the density may jump, as far as they are known."""

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, levels: Levels, support: tuple[float, float], breaks: Floats, index: float) -> Grid:
        """Tabulate ``levels``, with points at ``breaks`` and wherever they are needed."""
        start, end = support
        breaks = breaks[:: 1 + len(breaks) // _MOST_BREAKS]
        logs = np.append(_OCTAVES, np.log(breaks[(breaks > start) & (breaks < end)] - start))
        if math.isfinite(end):
            logs = np.append(logs[logs < math.log(end - start)], math.log(end - start))

        def odds_at(logs: Floats) -> Floats:
            return log_odds(*levels(np.minimum(start + np.exp(logs), end)))

        logs, odds = _refined(odds_at, np.unique(logs), start)
        first = max(0.0, float((odds[1] - odds[0]) / (logs[1] - logs[0])))
        logs, odds = np.append(_FIRST, logs), np.append(odds[0] + first * (_FIRST - logs[0]), odds)
        if math.isfinite(end):
            index, last = math.inf, (math.log(end - start), _SURE)
        else:
            back = int(np.searchsorted(logs, logs[-1] - 0.05, side="right")) - 1
            slope = index if math.isfinite(index) else float((odds[-1] - odds[back]) / (logs[-1] - logs[back]))
            last = _LAST, float(odds[-1] + slope * (_LAST - logs[-1]))
        return cls(start, end, np.append(logs, last[0]), np.append(odds, last[1]), index, breaks)

    def log_odds(self, x: Floats) -> Floats:
        """Give log(P(X ≤ x) / P(X > x)), elementwise."""
        with np.errstate(divide="ignore"):
            odds = np.interp(np.log(np.maximum(x - self.start, 0.0)), self.logs, self.odds)
        return np.where(x < self.start, -math.inf, np.where(x >= self.end, math.inf, odds))

    def cdf(self, x: Floats) -> Floats:
        """Give P(X ≤ x), elementwise."""
        return floats(expit(self.log_odds(x)))

    def survival(self, x: Floats) -> Floats:
        """Give P(X > x), elementwise."""
        return floats(expit(-self.log_odds(x)))

    def density(self, x: Floats) -> Floats:
        """Give the derivative of the cdf, elementwise, within about a thousandth."""
        logs, odds = self.logs[1:-1], self.odds[1:-1]
        since, at = np.maximum(x - self.start, 1e-300), self.log_odds(x)
        slope = np.interp(np.log(since), (logs[1:] + logs[:-1]) / 2, np.diff(odds) / np.diff(logs))
        return np.where((x > self.start) & (x < self.end), slope / since * expit(at) * expit(-at), 0.0)

    def quantile(self, levels: Floats) -> Floats:
        """Give a time x with P(X ≤ x) = level, elementwise."""
        return self.at_odds(log_odds(levels, 1 - levels))

    def at_odds(self, odds: Floats) -> Floats:
        """Give the times at which the log odds are ``odds``, elementwise."""
        logs = np.interp(odds, self.odds, self.logs)
        return np.minimum(np.where(logs >= _LAST, math.inf, self.start + np.exp(np.minimum(logs, _LAST))), self.end)

    @cached_property
    def reach(self) -> float:
        """How far the tail reaches: the distance from the start to a time that is hardly ever exceeded."""
        return float(self.at_odds(np.array(_FAR))) - self.start

    def shifted(self, by: float) -> Grid:
        """Give the distribution of the time plus a constant."""
        return replace(self, start=self.start + by, end=self.end + by, breaks=self.breaks + by) if by else self

    @cached_property
    def points(self) -> Floats:
        """The times of the points, from the start to the last that is known."""
        known = self.logs[1:] if math.isfinite(self.end) else self.logs[1:-1]
        return np.unique(np.append(self.start, self.start + np.exp(known)))

    def cells(self, *more: float) -> tuple[Floats, Floats]:
        """Give places x (n, 4) between the points and the weights of an integral over x there.

        Cells end at ``more``, too.
        """
        edges = np.union1d(self.points, more)
        width = np.diff(edges)[:, None]
        return edges[:-1, None] + width * _PLACES, width * _WEIGHTS

    def beyond(self, x: float) -> tuple[float, float]:
        """Give E (X − x)⁺ and its second moment; infinite where the tail falls too slowly."""
        at, weights = self.cells(x)
        height = np.where(at > x, self.survival(at) * weights, 0.0)
        return self._with_tail(x, float(height.sum()), 2 * float(((at - x) * height).sum()))

    def _with_tail(self, x: float, first: float, second: float) -> tuple[float, float]:
        """Add ∫ P(X > y) dy and 2 ∫ (y − x) P(X > y) dy beyond the last point, along a line."""
        if self.index <= 1:
            return math.inf, math.inf
        if math.isfinite(self.end):
            return first, second
        slope = float((self.odds[-1] - self.odds[-2]) / (self.logs[-1] - self.logs[-2]))
        if slope <= 1:
            return first, second
        z, survival = math.exp(self.logs[-2]), float(expit(-self.odds[-2]))
        more = z * survival / (slope - 1)
        if slope > 2:
            second += 2 * (z * z * survival / (slope - 2) - (x - self.start) * more)
        return first + more, second if self.index > 2 else math.inf

    @cached_property
    def moments(self) -> tuple[float, float]:
        """The mean and the variance, from integrals about the median, where nothing cancels."""
        centre = float(self.quantile(np.array(0.5)))
        first, second = self.beyond(centre)
        at, weights = self.cells(centre)
        height = np.where(at < centre, self.cdf(at) * weights, 0.0)
        off = first - float(height.sum())
        second += 2 * float(((centre - at) * height).sum())
        return centre + off, math.inf if math.isinf(second) else max(0.0, second - off * off)

    @cached_property
    def sums(self) -> tuple[Floats, Floats, Floats, Floats]:
        """P(X ≤ x) and P(X > x) at the points, and the integrals of the first up to them, of the second from them."""
        x = self.points
        below, above = self.cdf(x), self.survival(x)
        width = np.diff(x)
        up_to = np.append(0.0, np.cumsum(width * (below[1:] + below[:-1]) / 2))
        after = np.append(np.cumsum((width * (above[1:] + above[:-1]) / 2)[::-1])[::-1], 0.0)
        return below, above, up_to, after + self._with_tail(0.0, 0.0, 0.0)[0]

    def integrals(self, x: Floats, upper: bool) -> Floats:
        """Give ∫ P(X > y) dy from ``x`` on (``upper``), or ∫ P(X ≤ y) dy up to it, elementwise."""
        points, (below, above, up_to, beyond) = self.points, self.sums
        at = np.clip(x, points[0], points[-1])
        cell = np.clip(np.searchsorted(points, at, side="right") - 1, 0, len(points) - 2)
        edge = points[cell]
        share = (at - edge) / (points[cell + 1] - edge)
        if upper:
            height = above[cell + 1]
            height = height + (above[cell] - height) * (1 - share) / 2
            return floats(beyond[cell + 1] + (points[cell + 1] - at) * height + np.maximum(points[0] - x, 0.0))
        height = below[cell]
        height = height + (below[cell + 1] - height) * share / 2
        return floats(up_to[cell] + (at - edge) * height + np.maximum(x - points[-1], 0.0))

    @cached_property
    def blocks(self) -> tuple[Floats, Floats]:
        """Edges (n + 1,) of uniform blocks that stand for the law, each at its mean, and their probabilities (n,)."""
        breaks = self.breaks[:: 1 + len(self.breaks) // _MOST_EDGES]
        odds = np.unique(np.concatenate([_EDGES, self.log_odds(breaks)]))
        odds = odds[(odds >= _EDGES[0]) & (odds <= _EDGES[-1])]
        for _ in range(_MOST_HALVINGS):
            edges = self.at_odds(odds)
            middle, level = (edges[1:] + edges[:-1]) / 2, expit(odds)
            off = np.abs(self.cdf(middle) - (level[1:] + level[:-1]) / 2)
            odds = np.union1d(odds, self.log_odds(middle[off > _BLOCK_ERROR]))
        below, above, upper = expit(odds), expit(-odds), odds[:-1] >= 0
        mass = np.where(upper, above[:-1] - above[1:], below[1:] - below[:-1])
        p = np.where(upper, above[:-1], below[:-1])[:, None] + np.where(upper, -mass, mass)[:, None] * _GAUSS
        means = self.at_odds(np.where(upper[:, None], log_odds(1 - p, p), log_odds(p, 1 - p))).mean(axis=1)
        edges = self.at_odds(odds)
        off = np.pad(means - (edges[1:] + edges[:-1]) / 2, 1, mode="edge")
        return np.maximum.accumulate(edges + (off[1:] + off[:-1]) / 2), mass / mass.sum()


def _refined(odds_at: Callable[[Floats], Floats], logs: Floats, start: float) -> tuple[Floats, Floats]:
    """Halve cells until a cubic curve through the points is close enough; give the points of short lines along it."""
    odds = odds_at(logs)
    rough = np.ones(len(logs) - 1, bool)
    while True:
        since = np.exp(logs[1:])
        rough &= (odds[1:] > _LEAST) & (odds[:-1] < _PRECISE) & (np.diff(logs) * since > _NARROW * (start + since))
        if not rough.any() or len(logs) > _MOST:
            break
        slopes = _slopes(logs, odds)
        cell = np.flatnonzero(rough)
        width = logs[cell + 1] - logs[cell]
        middle = logs[cell] + width / 2
        curve = (odds[cell] + odds[cell + 1]) / 2 + width * (slopes[cell] - slopes[cell + 1]) / 8
        exact = odds_at(middle)
        off, below, above = np.abs(exact - curve), expit(exact), expit(-exact)
        near = off * below * above <= _SMOOTHER * CDF_ERROR
        near &= off <= _SMOOTHER * _TAIL_ERROR + 1e-15 / np.minimum(below, above)
        near &= odds[cell + 1] - odds[cell] < _STEEPEST
        near &= expit(odds[cell + 1]) - expit(odds[cell]) < _WIDEST
        again = np.zeros(len(logs) - 1, bool)
        again[cell] = ~near
        halves = np.where(rough, 2, 1)
        rough = np.repeat(again, halves)
        logs, odds = np.insert(logs, cell + 1, middle), np.insert(odds, cell + 1, exact)
    rounded = odds[:-1][(odds[1:] <= odds[:-1]) & (odds[:-1] > _ROUNDED)]
    last = min(rounded[0] - _BEFORE if len(rounded) else math.inf, _PRECISE + 1)
    known = (odds > _LEAST - _STEEPEST) & (odds < last)
    if known.sum() < 2:  # all the probability lies within rounding
        place = int(np.argmax(odds > 0))
        return np.nextafter(logs[place], [-math.inf, math.inf]), np.array([_LEAST, _PRECISE])
    return _drawn(logs[known], np.maximum.accumulate(odds[known]))


def _slopes(logs: Floats, odds: Floats) -> Floats:
    """Give slopes of a monotone cubic curve at the points (Fritsch & Carlson 1980); 0 where they are not known."""
    secants = np.diff(odds) / np.diff(logs)
    least = np.minimum(np.append(secants[0], secants), np.append(secants, secants[-1]))
    slopes = np.gradient(odds, logs) if len(logs) > 2 else least
    return np.where(np.isfinite(slopes), np.clip(slopes, 0.0, 3 * np.nan_to_num(least)), 0.0)


def _drawn(logs: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """Give the ends of short lines along a cubic curve."""
    slopes, width, rise = _slopes(logs, odds), np.diff(logs), np.diff(odds)
    bend = width * np.abs(np.diff(slopes)) / 8 * np.minimum(expit(odds), expit(-odds))[:-1]
    most = np.where((odds[:-1] > _EARLY) & (odds[:-1] < _ROUNDED), _LINE, _LINE_FAR_OUT)
    lines = np.clip(np.ceil(np.maximum(np.sqrt(bend / CDF_ERROR), rise / most)), 1, _MOST_LINES).astype(np.int64)
    cell = np.repeat(np.arange(len(lines)), lines)
    u = (np.arange(len(cell)) - np.repeat(np.cumsum(lines) - lines, lines)) / lines[cell]
    first, second = slopes[:-1][cell] * width[cell], slopes[1:][cell] * width[cell]
    along = odds[:-1][cell] + rise[cell] * u * u * (3 - 2 * u) + u * (1 - u) * (first * (1 - u) - second * u)
    return np.append(logs[:-1][cell] + width[cell] * u, logs[-1]), np.append(along, odds[-1])
