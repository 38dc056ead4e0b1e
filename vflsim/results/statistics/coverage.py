"""How often 95 % intervals over seeds cover: measured figures, for the notes below tables and docs/intervals.md.

They come from ``python benchmarks/coverage.py over_seeds``: 2,000 studies of five seeds each, a standard error of .01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vflsim.results.facts.heavy_tail import HeavyTail

Estimated = Literal["mean", "difference", "cost"]
Cause = Literal["tail", "infinite", "bursts", "dependence"]
SEEDS = 5
"""Seeds of a measured study."""
ENOUGH = 0.93
"""Coverage from which on an interval of 95 % needs no warning."""

ROUNDING = 0.001
"""Rounding of the measured runs' ``share``."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of runs of so many ``rounds`` of a law, because of a heavy tail, an infinite variance, or bursts.

    ``draws`` are the rounds, or the cycles of bursts, and ``share`` is the part of the variance in the slowest of them
    (:func:`~vflsim.timing.tail_share.tail_share`). ``mean``, ``difference`` and ``cost`` are the shares of studies
    whose interval covers the mean, the paired difference, and the geometric mean of a cost.
    """

    law: str
    cause: Cause
    rounds: int
    draws: float
    share: float
    mean: float
    difference: float
    cost: float


MEASURED = (
    Coverage("exponential", "tail", 1, 1, 0.736, 0.89, 0.88, 0.93),
    Coverage("exponential", "tail", 30, 30, 0.419, 0.95, 0.96, 0.95),
    Coverage("exponential", "tail", 300, 300, 0.112, 0.95, 0.95, 0.95),
    Coverage("log-normal 1.5", "tail", 1, 1, 0.949, 0.70, 0.69, 0.96),
    Coverage("log-normal 1.5", "tail", 30, 30, 0.899, 0.91, 0.91, 0.95),
    Coverage("log-normal 1.5", "tail", 300, 300, 0.659, 0.94, 0.94, 0.95),
    Coverage("Pareto 2.2", "tail", 1, 1, 0.966, 0.75, 0.77, 0.88),
    Coverage("Pareto 2.2", "tail", 30, 30, 0.934, 0.90, 0.92, 0.93),
    Coverage("Pareto 2.2", "tail", 300, 300, 0.82, 0.93, 0.93, 0.94),
    Coverage("Pareto 1.5", "infinite", 1, 1, 1, 0.62, 0.63, 0.88),
    Coverage("Pareto 1.5", "infinite", 30, 30, 1, 0.77, 0.79, 0.91),
    Coverage("Pareto 1.5", "infinite", 300, 300, 1, 0.83, 0.83, 0.91),
    Coverage("bursts", "bursts", 1, 0.004, 0.901, 0.63, 0.64, 0.95),
    Coverage("bursts", "bursts", 30, 0.12, 0.901, 0.76, 0.74, 0.82),
    Coverage("bursts", "bursts", 300, 1.2, 0.901, 0.91, 0.92, 0.94),
    Coverage("bursts", "bursts", 3000, 12, 0.875, 0.95, 0.93, 0.95),
    Coverage("correlated", "dependence", 1, 1, 0.736, 0.89, 0.88, 0.92),
    Coverage("correlated", "dependence", 30, 30, 0.419, 0.91, 0.91, 0.94),
    Coverage("correlated", "dependence", 300, 300, 0.112, 0.94, 0.95, 0.95),
)


def measured(tail: HeavyTail, rounds: int, passed: float, kind: Estimated) -> Coverage:
    """Choose the measured runs with the least coverage of those like a run's first ``passed`` of ``rounds`` rounds.

    They are of the same cause, with the next fewer and the next more draws, and with at least as heavy a tail, as far
    as there are such. The law is the least heavy one; the lowest one if fewer rounds passed, whose share is not known.
    """
    cause: Cause = "infinite" if tail.infinite else "bursts" if tail.draws < rounds else "tail"
    alike = sorted((row for row in MEASURED if row.cause == cause), key=lambda row: (row.draws, row.share))
    draws = tail.draws * (passed / rounds)
    fewer = [row.draws for row in alike if row.draws <= draws][-1:]
    more = [row.draws for row in alike if row.draws >= draws][:1]
    near = []
    for number in {*fewer, *more}:
        those = [row for row in alike if row.draws == number]
        heavier = [row for row in those if row.share >= tail.share - ROUNDING] or those[-1:]
        near += heavier[:1] if passed >= rounds else heavier
    return min(near, key=lambda row: getattr(row, kind))
