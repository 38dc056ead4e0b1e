"""Bounds of each client's rate where every arrival makes a step (t = 1), and arrivals wait for the server or a link.

In the long run a client's rate is 1 / (its mean cycle, step and wait). No wait is below 0, which bounds rates from
above. What bounds waits: the stations on a message's way (server's link, server, server's other link) have constant
times and keep the order of messages, so all waits together are those of one queue whose server takes the longest of
these times, D (Friedman 1965, Reduction methods for tandem queuing systems, Operations Research 13: 121–131).
"""

from __future__ import annotations

import math

from vflsim.analysis.pace import Pace


def rates(pace: Pace) -> tuple[list[float], list[float]]:
    """Give bounds of the steps per second by each client, from below and from above, in client order."""
    most = [1 / (mean + pace.mean_step[0]) for mean in pace.means]
    worst = [wait + (pace.clients - 1) * pace.longest_step for wait in pace.waits]
    queues = pace.queues
    station = busiest(pace)
    if queues is None or station is None:
        return _slower(most, worst), most
    others, extra = pace.clients - 1, pace.slack(pace.cycles.turns)
    if not queues.in_order:
        extra = [slack + others * queues.down for slack in extra]
    if pace.constant_step:
        mean, square = station, station * station
        extra = [slack + pace.longest_step - pace.mean_step[0] for slack in extra]
        worst = [min(wait, others * mean + slack) for wait, slack in zip(worst, extra, strict=True)]
        longest = others * mean
    else:
        mean, square = station, max(law.expectation() ** 2 + law.variance() for law in pace.steps)
        longest = others * pace.longest_step
    waiting = waiting_in_queue(most, pace.hazards, mean, square, longest, any(extra))
    close = [max(0.0, 1 - y) / (1 / rate + slack) for rate, slack, y in zip(most, extra, waiting, strict=True)]
    return [max(pair) for pair in zip(_slower(most, worst), close, strict=True)], most


def busiest(pace: Pace) -> float | None:
    """Give the longest time at a station (s), the mean if it is random; None where only the longest waits are known."""
    queues = pace.queues
    if queues is None or not (pace.constant_step or pace.alone):
        return None
    if pace.constant_step:
        return max(queues.up, pace.longest_step, queues.down if queues.in_order else 0.0)
    return max(law.expectation() for law in pace.steps)


def _slower(rates: list[float], waits: list[float]) -> list[float]:
    return [1 / (1 / rate + wait) for rate, wait in zip(rates, waits, strict=True)]


def waiting_in_queue(
    rates: list[float], hazards: list[float], mean: float, square: float, longest: float, again: bool
) -> list[float]:
    """Bound the mean number y_m of each client's messages that wait in a queue; its server's time has these moments.

    ``rates`` bound those of arrivals from above. Client m arrives within dt with probability λ_m dt at most, whatever
    the others do, λ_m its largest hazard rate. So what it finds has at most λ_m / (m's rate) times the mean work in the
    queue (a stochastic intensity; Brémaud 1981, Point Processes and Queues, ch. II), which is Σ_j (E[S] y_j +
    rate_j E[S²]/2):

        y_m ≤ λ_m Σ_{j≠m} (E[S] y_j + rate_j E[S²]/2).

    With ``again``, m's own last message may still be in the queue: j = m counts, too. Else no wait exceeds ``longest``.
    Returns inf where nothing is known.
    """
    own, cap = (0.0, math.inf) if again else (1.0, longest)
    brings = [rate * square / 2 for rate in rates]
    caps = [rate * cap for rate in rates]
    known = [hazard for hazard in hazards if math.isfinite(hazard)]
    whole = math.fsum(brings)
    # y_m (1 + λ_m E[S]) ≤ λ_m (E[S] Y + Σ_{j≠m} …) with Y = Σ y.
    slopes = [hazard * mean / (1 + own * hazard * mean) for hazard in known]
    starts = [
        hazard * (whole - own * mine) / (1 + own * hazard * mean)
        for hazard, mine in zip(hazards, brings, strict=True)
        if math.isfinite(hazard)
    ]
    total = math.fsum(caps)
    if len(known) == len(rates) and math.fsum(slopes) < 1:
        total = min(total, math.fsum(starts) / (1 - math.fsum(slopes)))
    if math.isinf(total):
        return [math.inf] * len(rates)
    found = caps
    for _ in range(_ITERATIONS):
        lines = iter(zip(slopes, starts, strict=True))
        found = []
        for limit, hazard in zip(caps, hazards, strict=True):
            slope, start = next(lines) if math.isfinite(hazard) else (0.0, math.inf)
            found.append(min(limit, slope * total + start))
        total = min(total, math.fsum(found))
    return found


_ITERATIONS = 100
"""Of a sum that falls towards its fixed point. Each is a bound, so any number will do."""
