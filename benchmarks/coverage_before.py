"""Coverage before: the studies of ``coverage.py`` through the functions that made tables at commit 31d7253.

    git worktree add --detach ../before 31d7253
    PYTHONPATH=../before python benchmarks/coverage_before.py means ratios --studies 1000

The laws, draws and seeds are those of ``coverage.py``. There were no warnings. Costs were arithmetic means, a bounded
speed-up was its mean, several pairs were not corrected for, and a warm-up was cut where a test found dependence.
``coverage_rounds.py`` has the figures before for runs that stop by precision or time.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from coverage_worlds import ROUNDS, SEEDS, WORLDS, Floats, sums

SUMMARY = importlib.import_module("vflsim.results.summary")
RATIOS = importlib.import_module("vflsim.results.ratios")
QUANTILES = importlib.import_module("vflsim.results.quantiles")
STEADY = importlib.import_module("vflsim.results.steady")


def means(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
    """Arithmetic means over seeds of what runs last."""
    for name, world in WORLDS.items():
        for seeds in SEEDS:
            for rounds in ROUNDS:
                truth, exact = rounds * world.law.expectation(), np.zeros(seeds, np.bool_)
                found = [SUMMARY.estimate(each, exact) for each in sums(name, world, seeds, rounds, studies)]
                yield name, f"{seeds} seeds, {rounds} rounds", [each.low <= truth <= each.high for each in found]


def differences(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
    """Paired differences of protocols of which one waits for a second delay, too."""
    for name, world in WORLDS.items():
        for rounds in ROUNDS:
            seeds = SEEDS[0]
            first, second = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
            truth, exact = rounds * world.law.expectation(), np.zeros(seeds, np.bool_)
            found = [SUMMARY.paired(one + two, exact, one, exact) for one, two in zip(first, second, strict=True)]
            yield name, f"{seeds} seeds, {rounds} rounds", [each.low <= truth <= each.high for each in found]


def ratios(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
    """Speed-ups of 2, from independent times of one law."""
    for name, world in WORLDS.items():
        for rounds in ROUNDS:
            seeds = SEEDS[0]
            exact = np.zeros(seeds, np.bool_)
            own, other = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
            found = [ratio_of(one, exact, 2 * two, exact) for one, two in zip(own, other, strict=True)]
            yield name, f"{seeds} seeds, {rounds} rounds", [each.low <= 2 <= each.high for each in found]


def bounds(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
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
                    found = ratio_of(one[number], missed["own"], two[number], missed["other"])
                    hits.append(found.mean >= 2 if side == "most" else found.mean <= 2)
                yield name, f"{seeds} seeds, at {side}", hits


def quantiles(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
    """Quantiles of the steady state, of runs of 4,000 rounds, with and without a warm-up of 100 slow ones."""
    for name, world in WORLDS.items():
        if name == "bursts":
            continue
        for slow in (0, 100):
            rng = np.random.Generator(np.random.Philox([len(name), slow]))
            hits: dict[float, list[bool]] = {0.5: [], 0.9: [], 0.99: [], 0.999: []}
            for _ in range(max(studies // 4, 1)):
                rounds = world.draw(rng, 1, 4000)[0]
                rounds[:slow] += 10 * world.law.expectation()
                left = rounds[STEADY.warm_up(rounds)[0] :] if QUANTILES.dependent(rounds) else rounds
                for level, known in hits.items():
                    found = QUANTILES.quantile_interval(left, level)
                    if found.low == found.low:
                        known.append(bool(found.low <= float(world.law.quantile(level)) <= found.high))
            for level, known in hits.items():
                if known:
                    yield name, f"{100 * level:g} %{', after a warm-up' if slow else ''}", known


def ties(studies: int) -> Iterator[tuple[str, str, list[bool]]]:
    """Equal protocols called unequal to the first: a paired interval without 0."""
    for name, world in WORLDS.items():
        for protocols in (3, 10):
            drawn = sums(name, world, protocols * 5, 30, max(studies // 4, 1)).reshape(-1, protocols, 5)
            exact, wrong = np.zeros(5, np.bool_), []
            for study in drawn:
                first = int(study.mean(axis=1).argmin())
                pairs = [SUMMARY.paired(study[a], exact, study[first], exact) for a in range(protocols) if a != first]
                wrong.append(any(each.low > 0 for each in pairs))
            yield name, f"{protocols} protocols", wrong


def ratio_of(own: Floats, own_late: np.ndarray, other: Floats, other_late: np.ndarray) -> Any:
    """Return the ratio other ÷ own that tables showed."""
    sides = {"own": (own, own_late), "other": (other, other_late)}
    frame = pd.concat(
        pd.DataFrame({"protocol": name, "seed": range(len(times)), "value": times, "censored": late})
        for name, (times, late) in sides.items()
    )
    return RATIOS.ratio(frame, "own", "other")


PARTS = {each.__name__: each for each in (means, differences, ratios, bounds, quantiles, ties)}


def main() -> None:
    """Print a table for each part: law, cell, share of studies."""
    parser = argparse.ArgumentParser(description="coverage of intervals at commit 31d7253")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to measure (default: all)")
    parser.add_argument("--studies", type=int, default=2000)
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        print(f"\n{part}")
        for name, cell, hits in PARTS[part](asked.studies):
            print(f"  {name:28} {cell:36} {np.mean(hits):.3f}", flush=True)


if __name__ == "__main__":
    main()
