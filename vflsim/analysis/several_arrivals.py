"""Bounds of the mean time between steps on t arrivals, t > 1, where late clients go on and arrive for a later step."""

from __future__ import annotations

import math

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
    step, t, queues = pace.mean_step[1], pace.t, pace.queues
    if pace.clients * t > _MOST_ARRIVALS:
        return math.inf
    if queues is None or pace.alone or not (pace.constant_step and all(map(math.isfinite, pace.hazards))):
        return _gathering(pace.longest, pace.waits, t) + step
    slack = pace.slack([pace.full])
    if queues.in_order:
        down, extra = queues.down, _turns(pace.longest, slack, t, queues.down)
    else:
        down, extra = 0.0, [each + (pace.clients - 1) * queues.down for each in slack]
    busiest = max(t * queues.up, step, t * down)
    waiting = _first_waits(pace.hazards, t, queues.up) + _later_waits(pace, queues.up, busiest)
    if waiting > max(pace.waits):
        return _gathering(pace.longest, pace.waits, t) + step
    return _gathering(pace.longest, extra, t) + step + waiting


def _turns(cycles: list[Law], slack: list[float], t: int, transfer: float) -> list[float]:
    """Bound the waits for the gradients of a step that are sent before a client's own, alike clients apart.

    These are 0, 1, …, t − 1 transfers. Of alike clients all but t have none, and the others different ones: which of
    them has which does not matter.
    """
    if t > _MOST_TURNS:
        return [each + (t - 1) * transfer for each in slack]
    seen: dict[tuple[Law, float], int] = {}
    found = []
    for pair in zip(cycles, slack, strict=True):
        place = seen.setdefault(pair, 0)
        seen[pair] += 1
        found.append(pair[1] + max(0, t - 1 - place) * transfer)
    return found


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

    Between the last arrivals of two steps lie at least L, independent of the past: the t-th smallest of exponential
    times. So the wait is at most max_n (n busy − L₁ − … − L_n + (t − 1) transfer)⁺, whose mean is at most the sum of
    the single means, and E X⁺ ≤ E exp(θX) / (e θ) for every θ > 0.
    """
    between = order_statistic([_exponential(hazard) for hazard in pace.hazards], pace.t)
    x = np.linspace(0.0, float(between.quantile(_LEVEL)), _POINTS)
    masses = np.diff(between.cdf(x), append=1.0)  # counted at the beginning of each stretch: L is longer
    best = math.inf
    for theta in np.geomspace(0.01, 1e4, 200) / between.expectation():
        ratio = float(masses @ np.exp(-theta * x)) * math.exp(min(700.0, theta * busy))
        if ratio < 1:
            start = min(700.0, theta * (pace.t - 1) * transfer - 1)
            best = min(best, math.exp(start) / theta * ratio / (1 - ratio))
    return best


def shortest_round(pace: Pace) -> float:
    """Give a bound of the mean round from below: 0 where none is known.

    Let v_k be the time when the last of the k-th step's embeddings reaches the server's link. Then its t clients begin
    a new cycle after a transfer and a server step at the earliest, and their gradients move one after the other. The
    other clients come within dt with probability λ_m dt at most, λ_m their largest hazard rate. So v_{k+1} − v_k is
    stochastically no less than the t-th smallest of independent times: step and cycle of t clients, exponential ones of
    the others. Which clients is not known, but how often each can be one: no more than once in its mean cycle and step.
    The bound is the least mean over all distributions of sets of t clients that keep to this (a linear program).
    """
    if pace.queues is None:
        return 0.0
    fresh = _fresh(pace)
    late = [_exponential(hazard) for hazard in pace.hazards]
    groups: dict[tuple[Law, Law], list[int]] = {}
    for place, pair in sorted(enumerate(zip(fresh, late, strict=True)), key=lambda each: pace.means[each[0]]):
        groups.setdefault(pair, []).append(place)
    kinds, points = list(groups), _POINTS if pace.clients * pace.t < _MANY else _POINTS // 8
    most = min(_MOST_SETS, _MOST_WORK // (points * pace.clients * pace.t))
    if most == 0:
        return 0.0
    sets = _sets([len(groups[kind]) for kind in kinds], pace.t, most)
    chosen = len(sets[0])
    told = kinds[:chosen]
    apart = _apart(pace)
    end = float(order_statistic(fresh, pace.t).quantile(_LEVEL)) + (pace.t - 1) * apart
    x = np.linspace(0.0, end, points)[1:]
    late_cdfs = {kind: kind[1].cdf(x) for kind in kinds}
    used_cdfs = {
        kind: [kind[0].cdf(x - place * apart) for place in range(min(pace.t, len(groups[kind])))] for kind in told
    }
    others = [late_cdfs[kind] for kind in kinds[chosen:] for _ in groups[kind]]
    slowest = [_mean_below(_fewer([
        *(cdf for kind, n in zip(told, counts, strict=True) for cdf in used_cdfs[kind][:n]),
        *(late_cdfs[kind] for kind, n in zip(told, counts, strict=True) for _ in range(len(groups[kind]) - n)),
        *others,
    ], pace.t), x) for counts in sets]  # fmt: skip
    rates = [1 / (mean + pace.mean_step[0]) for mean in pace.means]
    often = [math.fsum(rates[place] for place in groups[kind]) for kind in told]
    left = math.fsum(rates[place] for kind in kinds[chosen:] for place in groups[kind])
    return _least(slowest, [[*counts, pace.t - sum(counts)] for counts in sets], [*often, left])


def _sets(sizes: list[int], t: int, most: int) -> list[tuple[int, ...]]:
    """Return how many of each of the first kinds may be among t clients, the others taken together.

    Of as many kinds as leave no more than ``most`` possibilities.
    """
    found, rest = [tuple[int, ...]()], sum(sizes)
    for size in sizes:
        rest -= size
        more = [
            (*counts, n)
            for counts in found
            for n in range(max(0, t - sum(counts) - rest), min(size, t - sum(counts)) + 1)
        ]
        if len(more) > most:
            break
        found = more
    return found


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


def _apart(pace: Pace) -> float:
    """Return the least time between the arrivals of a step's gradients at clients of the same latency."""
    if pace.alone or not (pace.queues and pace.queues.in_order):
        return 0.0
    return min(pace.cycles.transfers(client, pace.smallest)[0] for client in pace.cycles.clients)


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


_MOST_TURNS = 64
"""The largest t for which alike clients are told apart by the transfers that they wait for."""
_MOST_SETS = 40
"""The most sets of used clients in the linear program, by numbers of alike clients; slower ones count as alike."""
_MOST_ARRIVALS = 50_000
"""The most clients times t for which the t-th smallest cycle is computed: seconds."""
_MANY, _MOST_WORK = 20_000, 200_000_000
"""Clients times t from which fewer rectangles must do; and the most clients times t times rectangles of all sets."""
_POINTS = 4_000
_LEVEL = 0.9995
"""Rectangles of equal width up to this quantile: they leave out about a thousandth of the mean."""
_TOLERANCE = 1e-6
"""The relative tolerance of the linear program."""
