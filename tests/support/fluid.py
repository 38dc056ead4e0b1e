"""Fluid flows, slowly and exactly: progressive filling and a simulator in fractions, written for clarity alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

INF = math.inf


def filled(flows: Sequence[tuple[int, int]], capacity: Sequence[float]) -> list[Fraction | float]:
    """Max–min fair rates: raise all rates together; whoever meets a full link stays; go on with the others."""
    rate: list[Fraction | float] = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        room = {
            link: (Fraction(limit) - sum(rate[f] for f, flow in enumerate(flows) if link in flow))
            / sum(link in flows[f] for f in rising)
            for link, limit in enumerate(capacity)
            if limit < INF and any(link in flows[f] for f in rising)
        }
        if not room:
            for f in rising:
                rate[f] = INF
            break
        step = min(room.values())
        for f in rising:
            rate[f] += step
        full = {link for link, more in room.items() if more == step}
        rising -= {f for f in rising if full & set(flows[f])}
    return rate


@dataclass
class Flow:
    """A transfer of ``size`` bits that comes to its links at ``start``; taken off at ``abandoned`` if still there."""

    start: Fraction
    up: int
    down: int
    size: Fraction
    abandoned: Fraction | None = None


def simulate(
    flows: Sequence[Flow], steps: Sequence[Sequence[tuple[Fraction, float]]], horizon: Fraction
) -> list[tuple[Fraction | None, Fraction]]:
    """When each flow completes (None: not by ``horizon``), and how many bits are through by then.

    ``steps[link]`` are pairs of time and rate (from then on), the first at 0.
    """
    now = Fraction(0)
    left = [flow.size for flow in flows]
    ended: list[Fraction | None] = [None] * len(flows)
    gone: set[int] = set()
    instants = {horizon, *(flow.start for flow in flows), *(time for link in steps for time, _ in link)}
    instants |= {flow.abandoned for flow in flows if flow.abandoned is not None}
    while now < horizon:
        gone |= {f for f, flow in enumerate(flows) if flow.abandoned is not None and flow.abandoned <= now}
        capacity = [[rate for time, rate in link if time <= now][-1] for link in steps]
        there = [f for f, flow in enumerate(flows) if flow.start <= now and ended[f] is None and f not in gone]
        rates = dict(zip(there, filled([(flows[f].up, flows[f].down) for f in there], capacity), strict=True))
        through = [f for f in there if rates[f] == INF or (left[f] == 0 and rates[f] > 0)]
        if through:
            for f in through:
                ended[f], left[f] = now, Fraction(0)
            continue
        completions = [now + left[f] / rate for f, rate in rates.items() if rate > 0]
        then = min([*completions, *(instant for instant in instants if instant > now)])
        for f, rate in rates.items():
            left[f] -= rate * (then - now)
            if left[f] == 0 and flows[f].size > 0:
                ended[f] = then
        now = then
    return [(ended[f], flow.size - left[f]) for f, flow in enumerate(flows)]
