"""Bounds of BS-VFL's mean round."""

from __future__ import annotations

import math

from vflsim.analysis.cycles import Cycles, Turn
from vflsim.analysis.findings import ClosedForm, Finding, Range
from vflsim.analysis.lockstep import lockstep_law
from vflsim.analysis.own_pace import LONG_RUN
from vflsim.analysis.rounds import ROUND, conditions_of
from vflsim.setting import Setting
from vflsim.timing.delays.sums import total
from vflsim.tracing.recording import Traceable

LEAST = "at least what the server does on a batch, a client does on one, an upload, and a cycle ÷ (D + 1)"
MOST = "at most a round with D = 0"


class PipelinedCycles(Cycles):
    """A client's cycles, of which up to D + 1 overlap; the server takes ``further`` steps on each batch."""

    def __init__(self, protocol: Traceable, setting: Setting, further: int) -> None:
        super().__init__(protocol, setting)
        self._further = further

    def least(self, turn: Turn, depth: int) -> float:
        """Return a lower bound of the mean round with batches like those of ``turn``."""
        served = self.service(turn.now).expectation()
        work = served * (1 + self._further)
        return max([work, *(self._least_of(client, turn, depth, served) for client in self.clients)])

    def _least_of(self, client: int, turn: Turn, depth: int, served: float) -> float:
        delay, *_ = self.uplink(client, turn.now)
        own = [*self.steps(client, turn.before), self._compute(client, "embed", turn.now)]
        cycle = self.cycle(client, turn).expectation() + served
        return max(total(own).expectation(), delay.expectation(), cycle / (depth + 1))

    def most(self, in_step: Traceable) -> float:
        """Return an upper bound of the mean round: that of rounds whose clients wait for each gradient.

        It is infinite where batches in flight delay each other on the links, or cost FLOPs of another embedding.
        """
        waits = any(any(self.longest_waits(turn)) for turn in self.turns)
        if waits or self._by_flops:
            return math.inf
        (law,) = lockstep_law(in_step, self.setting)
        assert isinstance(law, ClosedForm), "rounds in parallel have a law wherever cycles have"
        return law.mean.high


def pipelined(
    protocol: Traceable, setting: Setting, depth: int, further: int, in_step: Traceable
) -> tuple[Finding, ...]:
    """Return bounds of the mean round with batches in flight.

    ``in_step`` is the same protocol with none: its rounds are no shorter.
    """
    cycles = PipelinedCycles(protocol, setting, further)
    least = math.fsum(turn.share * cycles.least(turn, depth) for turn in cycles.turns)
    bounds = Range(least, max(least, cycles.most(in_step)))
    reasons = (LONG_RUN, LEAST, MOST if math.isfinite(bounds.high) else "no upper bound: links, or costs by FLOPs")
    return (ClosedForm(ROUND, "s", conditions_of(cycles, reasons), formulas=tuple, given=bounds),)
