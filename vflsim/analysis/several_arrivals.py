"""Bounds of the mean time between steps on t arrivals, t > 1, where late clients go on and arrive for a later step."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from vflsim.analysis.cycles import Turn
from vflsim.analysis.pace import Pace
from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import Exponential
from vflsim.timing.floats import Floats
from vflsim.timing.law import Law, Point
from vflsim.timing.order import order_statistic
from vflsim.timing.sums import shifted


def longest_round(pace: Pace) -> float:
    """Give a bound of the mean round from above; inf where none is known.

    No client has longer to go at the end of a step than through a whole new cycle, if cycles are new better than used.
    So a round is at most the t-th smallest of all new cycles, the step, and what messages wait for links.
    """
    if not pace.ageing or pace.longest is None:
        return math.inf
    step, t = pace.mean_step[1], pace.t
    found = _gathering(pace.longest, pace.waits, t) + step
    queues = pace.queues
    if queues is None or pace.alone or not (pace.constant_step and all(map(math.isfinite, pace.hazards))):
        return found
    down = queues.down if queues.in_order else 0.0
    extra = pace.slack([pace.full])
    if not queues.in_order:
        extra = [slack + (pace.clients - 1) * queues.down for slack in extra]
    waiting = _first_waits(pace.hazards, t, queues.up) + _later_waits(
        pace, queues.up, max(t * queues.up, step, t * down)
    )
    return min(found, _gathering(pace.longest, extra, t) + step + (t - 1) * down + waiting)


def _gathering(cycles: list[Law], waits: list[float], t: int) -> float:
    return order_statistic([shifted(law, wait) for law, wait in zip(cycles, waits, strict=True)], t).expectation()


def _intensities(hazards: list[float], t: int) -> Floats:
    """Bound the rate of arrivals by the number (0 to t − 1) of those since the last of a step: they come no sooner."""
    fast = np.sort(hazards)
    return np.array([math.fsum(fast[gone:]) for gone in range(t)])


def _first_waits(hazards: list[float], t: int, transfer: float) -> float:
    """Bound the mean wait of the last of t embeddings for the others: Σ E (transfer − gap)⁺ over exponential gaps."""
    rates = _intensities(hazards, t)[1:]
    return math.fsum(transfer + math.expm1(-rate * transfer) / rate for rate in rates.tolist())


def _later_waits(pace: Pace, transfer: float, busy: float) -> float:
    """Bound the mean wait for messages of the steps before, which keep the busiest station for ``busy`` seconds each.

    Between the last arrivals of two steps lie at least L, a sum of t exponential gaps, independent of the past. So the
    wait is at most max_n (n busy − L₁ − … − L_n + (t − 1) transfer)⁺, whose mean is at most Σ_n of the single means,
    and E X⁺ ≤ E exp(θX) / (e θ) for every θ > 0.
    """
    rates, best = _intensities(pace.hazards, pace.t), math.inf
    for theta in (rates[0] * np.geomspace(0.01, 1e4, 200)).tolist():
        ratio = math.exp(min(700.0, theta * busy - math.fsum(np.log1p(theta / rates))))
        if ratio < 1:
            start = min(700.0, theta * (pace.t - 1) * transfer - 1)
            best = min(best, math.exp(start) / theta * ratio / (1 - ratio))
    return best


def shortest_round(pace: Pace) -> float:
    """Give a bound of the mean round from below: 0 where none is known.

    Let v_k be the time when the last of the k-th step's embeddings reaches the server's link. Then its t clients begin
    a new cycle after a transfer and a server step at the earliest. The others come within dt with probability λ_m dt at
    most, λ_m their largest hazard rate. So v_{k+1} − v_k is stochastically no less than the t-th smallest of
    independent times: step and cycle of t clients, exponential ones of the others. Which clients is not known, but how
    often each can be one: no more than once in its mean cycle and step. The bound is the least mean over all
    distributions of sets of t clients that keep to this (a linear program).
    """
    if pace.queues is None:
        return 0.0
    fresh = _fresh(pace)
    late = [_exponential(hazard) for hazard in pace.hazards]
    groups: dict[tuple[Law, Law], list[int]] = {}
    for place, pair in sorted(enumerate(zip(fresh, late, strict=True)), key=lambda each: pace.means[each[0]]):
        groups.setdefault(pair, []).append(place)
    kinds, chosen = list(groups), 0
    vectors = 1
    for kind in kinds:
        vectors *= min(pace.t, len(groups[kind])) + 1
        if vectors > _MOST_SETS:
            break
        chosen += 1
    told, rest = kinds[:chosen], sum(len(groups[kind]) for kind in kinds[chosen:])
    sets = [
        counts
        for counts in product(*(range(min(pace.t, len(groups[kind])) + 1) for kind in told))
        if 0 <= pace.t - sum(counts) <= rest
    ]
    end = float(order_statistic(fresh, pace.t).quantile(_LEVEL))
    x = np.linspace(0.0, end, _POINTS)[1:]
    cdfs = {law: law.cdf(x) for kind in kinds for law in kind}
    others = [cdfs[law] for kind in kinds[chosen:] for _ in groups[kind] for law in kind[1:]]
    slowest = [_mean_below(_fewer([
        *(cdfs[kind[0]] for kind, n in zip(told, counts, strict=True) for _ in range(n)),
        *(cdfs[kind[1]] for kind, n in zip(told, counts, strict=True) for _ in range(len(groups[kind]) - n)),
        *others,
    ], pace.t), x) for counts in sets]  # fmt: skip
    rates = [1 / (mean + pace.mean_step[0]) for mean in pace.means]
    often = [math.fsum(rates[place] for place in groups[kind]) for kind in told]
    left = math.fsum(rates[place] for kind in kinds[chosen:] for place in groups[kind])
    return _least(slowest, [[*counts, pace.t - sum(counts)] for counts in sets], [*often, left])


def _fresh(pace: Pace) -> list[Law]:
    """Return laws no longer than the step and the cycle of each client, but for what its transfer exceeds the least."""
    steps, clients = pace.shortest_step, pace.cycles.clients
    if pace.shortest is not None:
        longer = _longer(pace, pace.smallest)
        return [shifted(law, steps - more) for law, more in zip(pace.shortest, longer, strict=True)]
    first = [
        min(pace.cycles.cycle(client, turn).support[0] - _longer(pace, turn)[place] for turn in pace.cycles.turns)
        for place, client in enumerate(clients)
    ]
    each = zip(pace.hazards, first, strict=True)
    return [shifted(_exponential(hazard), max(0.0, least + steps)) for hazard, least in each]


def _longer(pace: Pace, turn: Turn) -> list[float]:
    """Return by how much each embedding's transfer exceeds the shortest one."""
    if pace.alone:
        return [0.0] * pace.clients
    transfers = [pace.cycles.transfers(client, turn)[1] for client in pace.cycles.clients]
    shortest = min(pace.cycles.transfers(client, pace.smallest)[1] for client in pace.cycles.clients)
    return [each - shortest for each in transfers]


def _exponential(rate: float) -> Law:
    return OfDelay(Exponential(mean=1 / rate)) if math.isfinite(rate) else Point(0.0)


def _fewer(cdfs: list[Floats], t: int) -> Floats:
    """Return P(fewer than t of independent times are ≤ x), from their cdfs at x."""
    counts = np.zeros((t, len(cdfs[0])))
    counts[0] = 1.0
    for cdf in cdfs:
        counts[1:] = counts[1:] * (1 - cdf) + counts[:-1] * cdf
        counts[0] *= 1 - cdf
    return np.asarray(counts.sum(axis=0))


def _mean_below(survival: Floats, x: Floats) -> float:
    """Bound ∫ P(X > x) dx from below, by rectangles below the falling curve."""
    return float(survival @ np.diff(x, prepend=0.0))


def _least(means: list[float], used: list[list[int]], rates: list[float]) -> float:
    """Return the least T = Σ π means over probabilities π with Σ π used ≤ T rates.

    Some T has such π, since the true one has.
    """
    from scipy.optimize import linprog

    counts = np.array(used, dtype=np.float64).T
    many = len(means)
    above = np.vstack([
        np.concatenate([means, [-1.0]]),
        np.column_stack([counts, -np.array(rates)]),
    ])  # fmt: skip
    found = linprog(
        np.append(np.zeros(many), 1.0), A_ub=above, b_ub=np.zeros(len(above)),
        A_eq=np.append(np.ones(many), 0.0)[None, :], b_eq=[1.0], method="highs",
    )  # fmt: skip
    return (found.fun or 0.0) * (1 - _TOLERANCE) if found.status == 0 else 0.0


_MOST_SETS = 40
_POINTS = 4_000
_LEVEL = 0.9995
_TOLERANCE = 1e-6
"""The relative tolerance of the linear program."""
