"""Bounds of the mean round of clients in exponential stages: the Markov chain, and what links change at most.

Let h(x) be the relative value of a state x of the chain of ``stages``: what is expected until the next steps from x,
compared with other states. In the real network, too, h changes at no mean rate but −1 (a mean round per step made up
for), except while something stands still that moves in the chain (Dynkin's formula). Two things do:

- A used client's stages, for what its constants exceed the least, and while its gradient waits for the server's link.
  A second of this costs μ (h(x) − h(x')) s, μ its first stage's rate and x' the state when that stage has ended.
- The server's step, while the embedding that it still needs waits for the link behind others. A second costs
  1 − Σ μ (h(x) − h(x')) s, over the clients that work.

So the mean round is that of the chain and these costs, of which the least and greatest over all states are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from vflsim.analysis.pace import Pace
from vflsim.analysis.renewal import exponential_rate
from vflsim.analysis.single_arrivals import waiting_in_queue
from vflsim.analysis.stages import StageChain
from vflsim.timing.delays import Exponential
from vflsim.timing.law import Law, Point


def stage_round(pace: Pace) -> tuple[float, float]:
    """Give bounds of the mean round (s), from below and from above; 0 and inf where the chain does not apply.

    It applies to cycles of constants and exponential stages, and constant steps, if 2t ≥ M; up to 60,000 states.
    """
    if pace.clients > min(2 * pace.t, _MOST_CLIENTS) or not pace.constant_step:
        return 0.0, math.inf
    queues, low = pace.queues, pace.shortest_step
    if queues is None or not queues.in_order:
        return 0.0, math.inf
    cycles = [[staged(pace.cycles.cycle(client, turn)) for turn in pace.cycles.turns] for client in pace.cycles.clients]
    known = [[each for each in own if each is not None] for own in cycles]
    if any(len(own) < len(pace.cycles.turns) or len({rates for _, rates in own}) != 1 for own in known):
        return 0.0, math.inf
    rates = tuple(own[0][1] for own in known)
    if not all(rates) or math.prod(len(each) + 1 for each in rates) > _MOST_STATES:
        return 0.0, math.inf
    least = min(constant for own in known for constant, _ in own) if 2 * pace.t > pace.clients else 0.0
    if low + least <= 0:
        return 0.0, math.inf
    means = [
        math.fsum(turn.share * constant for turn, (constant, _) in zip(pace.cycles.turns, own, strict=True))
        for own in known
    ]
    costs = StandingStill(StageChain(rates, pace.t, low + least))
    return costs.bounds([mean - least for mean in means], _left(pace), (_quickest(pace)[0], queues.down), *_late(pace))


def staged(cycle: Law) -> tuple[float, tuple[float, ...]] | None:
    """Give the constant of a cycle and the rates of its exponential stages (1/s); None if it has other parts."""
    parts = cycle.summands()
    rates = [
        1 / part.mean if isinstance(part, Exponential) else exponential_rate(part)
        for part in parts
        if not isinstance(part, Point)
    ]
    known = tuple(sorted(rate for rate in rates if rate is not None))
    constant = math.fsum(part.value for part in parts if isinstance(part, Point))
    return (constant, known) if len(known) == len(rates) else None


def _left(pace: Pace) -> float:
    """Bound what gradients of earlier steps a step's gradients find in the server's link (s).

    These are of clients that the step did not use, since they have not got them. With 2t > M it used one of the step
    before: that one's gradient, an embedding and a step came after all that was there.
    """
    if pace.alone or pace.queues is None:
        return 0.0
    step, others = pace.shortest_step, (pace.clients - pace.t) * pace.queues.down
    if 2 * pace.t > pace.clients:
        return max(0.0, others - _quickest(pace)[1] - step)
    return 0.0 if pace.t * pace.queues.down <= step else others


def _quickest(pace: Pace) -> tuple[float, float]:
    """Give the shortest transfers of a gradient and of an embedding that others may wait for; 0: none."""
    if pace.alone:
        return 0.0, 0.0
    turns, clients = pace.cycles.turns, pace.cycles.clients
    down, up = zip(*(pace.cycles.transfers(client, turn) for client in clients for turn in turns), strict=True)
    return min(down), min(up)


def _late(pace: Pace) -> tuple[float, float]:
    """Bound by how much a step starts or ends late: seconds each time, and seconds per second of embeddings' waits."""
    uneven = pace.longest_step - pace.shortest_step
    if pace.alone or pace.queues is None:
        return uneven, 0.0
    up = pace.queues.up
    most = [1 / (mean + pace.mean_step[0]) for mean in pace.means]
    waits = waiting_in_queue(most, pace.hazards, up, up * up, (pace.clients - 1) * up, again=False)
    return uneven + up - _quickest(pace)[1], math.fsum(waits)


@dataclass(frozen=True)
class StandingStill:
    """What it costs in a chain that clients or the server stand still."""

    chain: StageChain

    @cached_property
    def begins(self) -> list[tuple[float, float]]:
        """Bounds of what a second costs in which a client does not begin its first stage, in client order.

        While the server works, this is an average of all its stages' gains: of the first with the weight
        exp(−μ s) after s seconds, of stage i with no more than 1 − exp(−μ_i s), the chance that it has ended.
        """
        found = []
        for client, rates in enumerate(self.chain.rates):
            gains, step = self.chain.gains(client), self.chain.step
            others = [-math.expm1(-rate * step) for rate in rates[1:]]
            stays = math.exp(-rates[0] * step)
            low = min(gains[0][0], stays * gains[0][0])
            high = max(gains[0][1], stays * gains[0][1])
            low += math.fsum(share * min(0.0, gain[0]) for share, gain in zip(others, gains[1:], strict=True))
            high += math.fsum(share * max(0.0, gain[1]) for share, gain in zip(others, gains[1:], strict=True))
            found.append((rates[0] * low, rates[0] * high))
        return found

    @cached_property
    def starts(self) -> tuple[float, float]:
        """Bounds of what a second costs in which a step does not start though nobody is missing.

        It is the average of 1 − Σ μ (h(x) − h(x')) over what the others do until the step ends. There all clients
        together have Σ = 1, so that this is also the sum over the clients that begin, or 1 where nobody else works.
        """
        slow = math.fsum(
            max(0.0, *(-rate * gain[0] for rate, gain in zip(rates, self.chain.gains(client), strict=True)))
            for client, rates in enumerate(self.chain.rates)
        )
        return min(1.0, math.fsum(sorted(low for low, _ in self.begins)[: self.chain.t])), 1.0 + slow

    def bounds(
        self, extra: list[float], left: float, moves: tuple[float, float], late: float, waits: float
    ) -> tuple[float, float]:
        """Give bounds of the mean round (s).

        ``extra``: each client's mean constants beyond those of the chain. ``left``: what a step's gradients wait for
        those before, at most. ``moves``: a gradient's shortest and longest transfer; a step's move in turn. ``late``:
        by how much a step starts late, at most, and ``waits``: in the mean by so many seconds per second.
        """
        low, high, _ = self.chain.solution
        t = self.chain.t
        turns = [place * moves[1] + left for place in range(t)]
        dear = sorted(max(0.0, cost) for _, cost in self.begins)[-t:]
        high += math.fsum(map(math.prod, zip(turns, dear, strict=True)))
        own = [(cost[0] * more, cost[1] * more) for cost, more in zip(self.begins, extra, strict=True)]
        high += math.fsum(sorted(max(0.0, most) for _, most in own)[-t:])
        cheap = sorted(cost for cost, _ in self.begins)[:t]
        places = range(t - 1, -1, -1)
        low += math.fsum(
            cost * (place * moves[0] if cost > 0 else (t - 1) * moves[1] + left)
            for place, cost in zip(places, cheap, strict=True)
        )
        low += math.fsum(sorted(least for least, _ in own)[:t])
        least, most = self.starts
        if most * waits >= 1:
            return (low if least >= 0 else 0.0), math.inf
        high = (high + most * late) / (1 - most * waits)
        return low + min(0.0, least) * (late + waits * high), high


_MOST_STATES, _MOST_CLIENTS = 60_000, 15
"""Of the chain: value iteration takes a tenth of a second."""
