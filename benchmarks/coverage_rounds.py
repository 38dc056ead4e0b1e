"""How often intervals of mean round durations cover, for the stop rule ``precision`` and for runs that stop by time.

Durations are synthetic and go through vflsim's own functions. ``coverage.py`` calls :func:`precision` and
:func:`stopped_by_time`; this module alone prints both: ``python benchmarks/coverage_rounds.py [STUDIES]``. "Before" is
what vflsim did when it looked at durations alone, and at complete rounds alone.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from vflsim.intervals import CYCLES, PERIODS, Variation, steady_mean, t_interval
from vflsim.results.statistics.rounds import Rounds, doubts, means
from vflsim.simulation.variation import FEW, rounds_for
from vflsim.stopping.end_rule import RoundFacts
from vflsim.stopping.precision import INDEPENDENT, Precision, PrecisionRule, checkpoints
from vflsim.timing.delays import Constant, Delay, Exponential, LogNormal, Mixture, Pareto
from vflsim.timing.floats import Floats

Draw = Callable[[np.random.Generator, int], Floats]
SEEDS = 10
HORIZONS = (10, 30, 100, 1000)
"""Stop times, in mean rounds."""


def pareto(shape: float) -> Draw:
    """Return the law of Pareto with mean 1."""
    return lambda rng, size: (1 - rng.random(size)) ** (-1 / shape) * (shape - 1) / shape


def rare(rng: np.random.Generator, size: int) -> Floats:
    """Draw rounds of which one in a hundred lasts a hundred times as long; the mean is 1."""
    return np.where(rng.random(size) < 0.01, 100.0, 1.0) / 1.99


def correlated(rng: np.random.Generator, size: int, phi: float = 0.9) -> Floats:
    """Draw log-normal rounds with mean 1 whose logarithms are autoregressive."""
    noise = rng.standard_normal(size) * 0.5 * np.sqrt(1 - phi**2)
    noise[:1] /= np.sqrt(1 - phi**2)
    return np.asarray(np.exp(lfilter([1.0], [1.0, -phi], noise) - 0.125))


LAWS: dict[str, tuple[Draw, Delay]] = {
    "exponential": (lambda rng, size: rng.exponential(size=size), Exponential(mean=1.0)),
    "log-normal 1.5": (
        lambda rng, size: np.exp(1.5 * rng.standard_normal(size) - 1.125),
        LogNormal(median=1.0, sigma=1.5),
    ),
    "Pareto 2.2": (pareto(2.2), Pareto(shape=2.2, minimum=1.0)),
    "Pareto 1.5": (pareto(1.5), Pareto(shape=1.5, minimum=1.0)),
    "1 in 100 lasts 100 ×": (
        rare,
        Mixture(weights=(99.0, 1.0), parts=(Constant(value=1.0), Constant(value=100.0))),
    ),
    "correlated, φ = 0.9": (correlated, LogNormal(median=1.0, sigma=0.5)),
}


def known_of(law: Delay) -> Variation | None:
    """Return what a scenario would say of rounds of this law, in any unit of time."""
    if math.isinf(law.variance()):
        return Variation(heavy=law.kind)
    rounds = rounds_for(law)
    return Variation(rounds=rounds, skewed=law.kind) if rounds > FEW else None


def bursts(sojourn: float, slow: float = 5.0, regular: bool = False) -> Draw:
    """Return rounds of mean 1 in one state and ``slow`` in the other, in turns of ``sojourn`` on average; mean 1."""
    mean = 2 / (1 + 1 / slow)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        stays = int(2 * size / sojourn) + 40
        state = (np.arange(stays) + rng.integers(2)) % 2
        length = np.full(stays, sojourn) if regular else rng.exponential(sojourn, stays)
        length[0] *= rng.random() if regular else 1.0
        each = np.where(state == 0, 1.0, slow)
        rounds = np.repeat(each, rng.poisson(length / each))[:size]
        return np.asarray(rng.exponential(size=len(rounds)) * rounds / mean)

    return draw


def bursty(sojourn: float, regular: bool = False, slow: float = 5.0) -> Variation:
    """Return what a scenario would say of :func:`bursts`."""
    unit = 2 / (1 + 1 / slow)
    return Variation(cycle_s=2 * sojourn / unit, cycle="bursts", cycles=PERIODS if regular else CYCLES)


@dataclass(frozen=True)
class Covered:
    """Shares over studies: of those with an interval, how many cover the mean; bias of the mean; how many are shown."""

    bias: float
    coverage: float
    shown: float

    @classmethod
    def of(cls, found: list[tuple[float, bool]], studies: int) -> Covered:
        """Summarise (mean, covers) of the studies that show an interval; the true mean is 1."""
        values = np.array(found, dtype=np.float64).reshape(-1, 2)
        bias, coverage = values.mean(axis=0) if len(values) else (np.nan, np.nan)
        return cls(float(bias) - 1, float(coverage), len(values) / studies)

    def __str__(self) -> str:
        """Return the row's cells."""
        if self.shown == 0:
            return "— | — | 0 %"
        return f"{100 * self.bias:+.1f} % | {self.coverage:.2f} | {100 * self.shown:.0f} %"


def precision(studies: int, seed: int = 0) -> Iterator[tuple[str, Covered, Covered]]:
    """Yield a law and precision, and how runs that ``stop: precision`` ends cover, before and after."""
    cases: list[tuple[str, Draw, Variation | None, float, int]] = [
        (name, draw, known_of(law), share, 60_000) for name, (draw, law) in LAWS.items() for share in (0.1, 0.05)
    ]
    for sojourn in (50, 1000):
        cases.append((f"bursts, {sojourn} rounds", bursts(sojourn), bursty(sojourn), 0.1, 130 * 2 * sojourn))
    cases.append(("two rates, 1000 rounds each", bursts(1000, regular=True), bursty(1000, True), 0.1, 40_000))
    for name, law, variation, share, size in cases:
        rng, asked = np.random.default_rng(seed), Precision(round_duration=share)
        found: tuple[list[tuple[float, bool]], list[tuple[float, bool]]] = ([], [])
        for _ in range(studies):
            durations = law(rng, size)
            for known, into in zip((None, variation), found, strict=True):
                rule = PrecisionRule(asked, RoundFacts(variation=known))
                if rule.extend(durations) is not None:
                    mean = rule.so_far()
                    into.append((mean.mean, mean.low <= 1 <= mean.high))
        yield f"{name}, {100 * share:.0f} %", Covered.of(found[0], studies), Covered.of(found[1], studies)


def looks(studies: int, seed: int = 2) -> Iterator[tuple[str, str, str]]:
    """Yield φ and a precision, and coverage and median rounds of runs that end at the first precise look, and now."""
    counts = list(itertools.takewhile(lambda count: count <= 26_000, checkpoints()))
    for phi in (0.7, 0.8, 0.9):
        rng = np.random.default_rng(seed)
        runs = [correlated(rng, counts[-1], phi) for _ in range(studies)]
        for share in (0.2, 0.1, 0.05):
            asked = Precision(round_duration=share)
            first = [_first_look(run, counts, share) for run in runs]
            now = [PrecisionRule(asked).extend(run) for run in runs]
            cells = (_ended(runs, each) for each in (first, now))
            yield f"correlated, φ = {phi:g}, {100 * share:g} %", *cells


def _first_look(durations: Floats, counts: list[int], share: float) -> int | None:
    for count in counts:
        found = steady_mean(durations[:count])
        enough = found.independent >= min(INDEPENDENT, found.n / 2)
        if found.sound and enough and found.half_width <= share * found.mean:
            return count
    return None


def _ended(runs: list[Floats], counts: list[int | None]) -> str:
    ends = [(run[:count], count) for run, count in zip(runs, counts, strict=True) if count is not None]
    found = [steady_mean(run) for run, _ in ends]
    covered = np.mean([each.low <= 1 <= each.high for each in found])
    return f"{covered:.3f} after {np.median([count for _, count in ends]):,.0f} ({len(ends)} of {len(runs)})"


def stopped_by_time(studies: int, seed: int = 0) -> Iterator[tuple[str, Covered, Covered, Covered]]:
    """Yield a law and horizon, and how means of ten runs cover: before, after, and after without doubted ones."""
    for time in HORIZONS:
        many = studies if time < 1000 else max(1, studies // 5)
        for name, (draw, law) in LAWS.items():
            rng, known = np.random.default_rng(seed), known_of(law)
            found: tuple[list[tuple[float, bool]], ...] = ([], [], [])
            for _ in range(many):
                runs = [_stopped(draw(rng, 5 * time + 60), time) for _ in range(SEEDS)]
                before = [run.complete.mean() for run in runs if len(run.complete)]
                for values, into in ((np.array(before), found[0]), (means(runs), found[1])):
                    each = t_interval(values)
                    into.append((each.mean, each.low <= 1 <= each.high))
                if not doubts(runs, known):
                    found[2].append(found[1][-1])
            before_, after, undoubted = (Covered.of(each, many) for each in found)
            yield f"{name}, {time} rounds", before_, after, undoubted


def _stopped(durations: Floats, time: float) -> Rounds:
    ends = durations.cumsum()
    done = int(np.searchsorted(ends, time, side="right"))
    return Rounds(durations[:done], time - (float(ends[done - 1]) if done else 0.0))


def main() -> None:
    """Print both tables."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"stop: precision, {studies} runs: bias, coverage, ended | before, after")
    for name, *each in precision(studies):
        print(f"| {name} | {' | '.join(map(str, each))} |", flush=True)
    print(f"stop: time, {studies} studies of {SEEDS} runs: bias, coverage, shown | before, after, without doubts")
    for name, *found in stopped_by_time(studies):
        print(f"| {name} | {' | '.join(map(str, found))} |", flush=True)


if __name__ == "__main__":
    main()
