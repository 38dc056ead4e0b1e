"""Coverage of intervals: how often what vflsim prints holds, over thousands of replicated studies of known laws.

    python benchmarks/coverage.py                     # all parts, a few minutes
    python benchmarks/coverage.py means ratios --studies 500

Every part draws studies from laws with a known truth, passes them to the functions that make tables, and counts. An
interval of 95 % should hold in at least 93 % of them, or come with a warning: "warned" is where tables say that it
covers too seldom. Parts: means (over seeds), differences (paired), ratios (speed-ups and costs), bounds
(of censored ratios), quantiles (of rounds), ties (equal protocols called unequal; 5 % is the most), precision (runs
that ``stop: precision`` ends), looks (of its dependent rounds) and stopped (by time, with a round in progress); the
last three in coverage_rounds.py.
coverage_before.py passes the same studies to an earlier commit's functions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import coverage_rounds
import numpy as np
import pandas as pd
from coverage_worlds import ROUNDS, SEEDS, WORLDS, World, sums

from vflsim.results.facts.heavy_tail import WORRYING
from vflsim.results.statistics.estimates import GEOMETRIC, estimate, paired
from vflsim.results.statistics.means import holm
from vflsim.results.statistics.quantiles import quantile_interval
from vflsim.results.statistics.ratios import ratio
from vflsim.results.statistics.steady import warm_up
from vflsim.timing.floats import Floats
from vflsim.timing.tail_share import tail_share


def warned(world: World, rounds: int) -> bool:
    """Whether tables warn of means over runs of so many rounds; bursts count by their cycles."""
    return tail_share(world.law, rounds / world.cycle) > WORRYING


def means(studies: int) -> Iterator[tuple[str, ...]]:
    """Arithmetic means over seeds of what runs last."""
    for name, world in WORLDS.items():
        for seeds in SEEDS:
            for rounds in ROUNDS:
                truth = rounds * world.law.expectation()
                exact = np.zeros(seeds, np.bool_)
                found = [estimate(each, exact) for each in sums(name, world, seeds, rounds, studies)]
                hits = [each.low <= truth <= each.high for each in found]
                yield name, f"{seeds} seeds, {rounds} rounds", share(hits), said(warned(world, rounds))


def differences(studies: int) -> Iterator[tuple[str, ...]]:
    """Paired differences of protocols of which one waits for a second delay, too."""
    for name, world in WORLDS.items():
        for rounds in ROUNDS:
            seeds = SEEDS[0]
            first, second = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
            truth, exact = rounds * world.law.expectation(), np.zeros(seeds, np.bool_)
            found = [paired(one + two, exact, one, exact) for one, two in zip(first, second, strict=True)]
            hits = [each.low <= truth <= each.high for each in found]
            yield name, f"{seeds} seeds, {rounds} rounds", share(hits), said(warned(world, rounds))


def rows(**sides: tuple[Floats, np.ndarray]) -> pd.DataFrame:
    """Rows as ``outcomes`` gives them, from the times and the censored ones of two protocols."""
    return pd.concat(
        pd.DataFrame({"protocol": name, "seed": range(len(times)), "value": times, "censored": late})
        for name, (times, late) in sides.items()
    )


def ratios(studies: int) -> Iterator[tuple[str, ...]]:
    """Speed-ups of 2, from independent times of one law; costs are geometric means."""
    for name, world in WORLDS.items():
        for rounds in ROUNDS:
            seeds = SEEDS[0]
            exact = np.zeros(seeds, np.bool_)
            own, other = (sums(name + mark, world, seeds, rounds, studies) for mark in ("", "+"))
            found = [
                ratio(rows(own=(one, exact), other=(2 * two, exact)), "own", "other")
                for one, two in zip(own, other, strict=True)
            ]
            hits = [each is not None and each.low <= 2 <= each.high for each in found]
            yield name, f"{seeds} seeds, {rounds} rounds", share(hits), "—"
            logs = np.log(sums(name + "-", world, 200_000, rounds, 1)[0]) if rounds < 300 else None
            if logs is not None:
                geometric = [estimate(one, exact, GEOMETRIC) for one in own]
                hits = [each.low <= math.exp(logs.mean()) <= each.high for each in geometric]
                yield name, f"{seeds} seeds, {rounds} rounds, cost", share(hits), said(warned(world, rounds))


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
    """Quantiles of the steady state, of runs of 4,000 rounds, with and without a warm-up of 100 slow ones."""
    worlds = {name: world for name, world in WORLDS.items() if name != "bursts"}
    for name, world in worlds.items():
        for slow in (0, 100):
            rng = np.random.Generator(np.random.Philox([len(name), slow]))
            hits: dict[float, list[bool]] = {0.5: [], 0.9: [], 0.99: [], 0.999: []}
            for _ in range(max(studies // 4, 1)):
                rounds = world.draw(rng, 1, 4000)[0]
                rounds[:slow] += 10 * world.law.expectation()
                left = rounds[warm_up(rounds)[0] :]
                for level, known in hits.items():
                    found = quantile_interval(left, level)
                    if found.low == found.low:
                        known.append(bool(found.low <= float(world.law.quantile(level)) <= found.high))
            for level, known in hits.items():
                if known:
                    what = f"{100 * level:g} %{', after a warm-up' if slow else ''}"
                    yield name, what, share(known), f"{len(known):,} of {max(studies // 4, 1):,} given"


def ties(studies: int) -> Iterator[tuple[str, ...]]:
    """Equal protocols called unequal to the first, with Holm's correction over all pairs."""
    for name, world in WORLDS.items():
        for protocols in (3, 10):
            drawn = sums(name, world, protocols * 5, 30, max(studies // 4, 1)).reshape(-1, protocols, 5)
            exact, wrong = np.zeros(5, np.bool_), []
            for study in drawn:
                pairs = [(a, b) for a in range(protocols) for b in range(a)]
                p = np.array([paired(study[a], exact, study[b], exact, GEOMETRIC).p for a, b in pairs])
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


def said(whether: bool) -> str:
    """Say whether the table warns."""
    return "warned" if whether else "—"


PARTS = {
    each.__name__: each for each in (means, differences, ratios, bounds, quantiles, ties, precision, looks, stopped)
}


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
