"""Coverage of intervals: how often what vflsim prints holds, over thousands of replicated studies of known laws.

    python benchmarks/coverage.py                     # all parts, a few minutes
    python benchmarks/coverage.py over_seeds ratios --studies 500

Every part draws studies from laws with a known truth, passes them to the functions that make tables, and counts. An
interval of 95 % should hold in at least 93 % of them, or come with a warning, whose figures are those of over_seeds:
``vflsim/results/statistics/doubts.py`` has them. Parts: over_seeds (means, paired differences, costs), ratios
(speed-ups), bounds (of censored ratios), quantiles (of rounds), ties (equal protocols called unequal; 5 % is the most),
precision (runs that ``stop: precision`` ends), looks (of its dependent rounds) and stopped (by time, with a round in
progress); the last three in coverage_rounds.py.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import coverage_rounds
import numpy as np
import pandas as pd
from coverage_worlds import SEEDS, WORLDS, lengths, sums

from vflsim.intervals import Variation, holm, warm_up
from vflsim.results.statistics.estimates import GEOMETRIC, SeedSample, estimate, paired
from vflsim.results.statistics.pairs import ratio
from vflsim.results.statistics.quantiles import quantile_estimates
from vflsim.timing.floats import Floats

BURSTY = (2_500, 5_500, 10_000, 40_000)
"""Rounds of runs with bursts, for quantiles: 10, 22, 40 and 160 cycles."""


def over_seeds(studies: int) -> Iterator[tuple[str, ...]]:
    """Means, paired differences and costs over seeds, of runs of so many rounds."""
    for name, world in WORLDS.items():
        for seeds in SEEDS:
            for rounds in lengths(world):
                found = covered(name, seeds, rounds, studies)
                yield name, f"{seeds} seeds, {rounds} rounds", "", ", ".join(f"{each:.3f}" for each in found)


def covered(name: str, seeds: int, rounds: int, studies: int) -> tuple[float, float, float]:
    """Return how often intervals over seeds cover: of means, of paired differences, of costs (geometric means).

    A difference is that of protocols of which one waits for a second delay, too. The truth of a cost is that of 100,000
    runs.
    """
    world = WORLDS[name]
    own, more = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
    truth = rounds * world.law.expectation()
    cost = math.exp(np.log(sums(name + "-", world, 1, rounds, 100_000)).mean())
    cases = [
        (truth, [estimate(sample(each)) for each in own]),
        (truth, [paired(sample(one + two), sample(one)) for one, two in zip(own, more, strict=True)]),
        (cost, [estimate(sample(each), GEOMETRIC) for each in own]),
    ]
    mean, difference, geometric = (np.mean([each.low <= true <= each.high for each in found]) for true, found in cases)
    return float(mean), float(difference), float(geometric)


def sample(values: Floats) -> SeedSample:
    """Return values of runs, by number."""
    return SeedSample.exact(dict(enumerate(values.tolist())))


def rows(**sides: tuple[Floats, np.ndarray]) -> pd.DataFrame:
    """Rows as ``outcomes`` gives them, from the times and the censored ones of two protocols."""
    return pd.concat(
        pd.DataFrame({"protocol": name, "seed": range(len(times)), "value": times, "lower": times, "censored": late})
        for name, (times, late) in sides.items()
    )


def ratios(studies: int) -> Iterator[tuple[str, ...]]:
    """Speed-ups of 2, from independent times of one law."""
    for name, world in WORLDS.items():
        for rounds in lengths(world):
            seeds = SEEDS[0]
            exact = np.zeros(seeds, np.bool_)
            own, other = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
            found = [
                ratio(rows(own=(one, exact), other=(2 * two, exact)), "own", "other")
                for one, two in zip(own, other, strict=True)
            ]
            hits = [each is not None and each.low <= 2 <= each.high for each in found]
            yield name, f"{seeds} seeds, {rounds} rounds", share(hits), "—"


def bounds(studies: int) -> Iterator[tuple[str, ...]]:
    """Bounds of a speed-up of 2 where one side's runs end at a horizon that a fifth of them exceeds."""
    for name, world in WORLDS.items():
        for seeds in SEEDS:
            own, other = (sums(name + mark, world, seeds, 30, studies) for mark in ("", "+"))
            for side in ("most", "least"):
                one, two = own.copy(), 2 * other
                ends = one if side == "most" else two
                horizon = float(np.quantile(ends, 0.8))
                late, exact = ends > horizon, np.zeros(seeds, np.bool_)
                np.minimum(ends, horizon, out=ends)
                hits = []
                for number in np.flatnonzero(late.any(axis=1)):
                    missed = {"own": exact, "other": exact, "own" if side == "most" else "other": late[number]}
                    frame = rows(own=(one[number], missed["own"]), other=(two[number], missed["other"]))
                    found = ratio(frame, "own", "other")
                    assert found is not None
                    assert found.bound == side
                    hits.append(found.mean >= 2 if side == "most" else found.mean <= 2)
                yield name, f"{seeds} seeds, at {side}", share(hits), "—"


def quantiles(studies: int) -> Iterator[tuple[str, ...]]:
    """Quantiles of the steady state: runs of 4,000 rounds, with and without a warm-up of 100 slow ones, and bursts."""
    for name, world in WORLDS.items():
        if name == "bursts":
            cases = [(count, 0, f", {count / world.cycle:g} cycles") for count in BURSTY]
        else:
            cases = [(4000, 0, ""), (4000, 100, ", after a warm-up")]
        known = Variation(cycle_s=world.cycle * world.law.expectation()) if world.cycle > 1 else None
        for count, slow, what in cases:
            rng = np.random.Generator(np.random.Philox([len(name), slow, count]))
            hits: dict[float, list[bool]] = {0.5: [], 0.9: [], 0.99: [], 0.999: []}
            for _ in range(max(studies // 4, 1)):
                rounds = world.draw(rng, 1, count)[0]
                rounds[:slow] += 10 * world.law.expectation()
                left = rounds[warm_up(rounds)[0] :]
                given = quantile_estimates(left, list(hits), variation=known)
                for (level, covered), found in zip(hits.items(), given, strict=True):
                    if found.low == found.low:
                        covered.append(bool(found.low <= float(world.law.quantile(level)) <= found.high))
            for level, covered in hits.items():
                given = f"{len(covered):,} of {max(studies // 4, 1):,} given"
                yield name, f"{100 * level:g} %{what}", share(covered), given


def ties(studies: int) -> Iterator[tuple[str, ...]]:
    """Equal protocols called unequal to the first, with Holm's correction over all pairs."""
    for name, world in WORLDS.items():
        for protocols in (3, 10):
            drawn = sums(name, world, protocols * 5, 30, max(studies // 4, 1)).reshape(-1, protocols, 5)
            wrong = []
            for study in drawn:
                pairs = [(a, b) for a in range(protocols) for b in range(a)]
                p = np.array([paired(sample(study[a]), sample(study[b]), GEOMETRIC).p for a, b in pairs])
                first = int(np.log(study).mean(axis=1).argmin())
                own = [first in pair for pair in pairs]
                wrong.append(bool((holm(p)[own] < 0.05).any()))
            yield name, f"{protocols} protocols", share(wrong), "at most 0.05"


def precision(studies: int) -> Iterator[tuple[str, ...]]:
    """Intervals from within runs that ``stop: precision`` ends; "before": with durations alone."""
    for name, before, after in coverage_rounds.precision(studies):
        yield name, "bias | coverage | ended, before; now", "", f"{before}; {after}"


def looks(studies: int) -> Iterator[tuple[str, ...]]:
    """Coverage and median rounds of dependent runs: ended at the first precise look; now."""
    for name, first, now in coverage_rounds.looks(studies):
        yield name, "at the first precise look; now", "", f"{first}; {now}"


def stopped(studies: int) -> Iterator[tuple[str, ...]]:
    """Means of ten runs that stop by time; "before": of complete rounds alone."""
    for name, *found in coverage_rounds.stopped_by_time(studies):
        yield name, "before; now; now, if not warned", "", "; ".join(map(str, found))


def share(hits: list[bool]) -> str:
    """Format a share, or a dash for none."""
    return f"{np.mean(hits):.3f}" if hits else "—"


PARTS = {each.__name__: each for each in (over_seeds, ratios, bounds, quantiles, ties, precision, looks, stopped)}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description="coverage of intervals")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to measure (default: all)")
    parser.add_argument("--studies", type=int, default=2000)
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        print(f"\n{part}")
        for row in PARTS[part](asked.studies):
            print(f"  {row[0]:28} {row[1]:36} {row[2]:>6}  {row[3]}", flush=True)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
