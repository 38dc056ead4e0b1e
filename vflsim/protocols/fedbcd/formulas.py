"""Laws of FedBCD's rounds."""

from __future__ import annotations

from dataclasses import replace

from vflsim.analysis.cycles import Cycles, Turn
from vflsim.analysis.findings import ClosedForm, Finding, Formula, Range
from vflsim.analysis.formulas import round_formulas
from vflsim.analysis.rounds import LATER, ROUND, conditions_of, groups_of, slowed, synchronous
from vflsim.setting import Algorithm, Setting
from vflsim.timing.law import Law, Point
from vflsim.timing.order import maximum
from vflsim.timing.sums import total

MOST_RANDOM = 10
"""The most consecutive random times whose law is convolved; 12 take about 7 s."""


class BlockCycles(Cycles):
    """The clients' cycles, and the ``further`` steps that the server takes besides one step in each round."""

    def __init__(self, protocol: Algorithm, setting: Setting, further: int) -> None:
        super().__init__(protocol, setting)
        self._further = further

    def server_steps(self, rows: int) -> list[Law]:
        """Return the laws of the further steps on ``rows`` rows."""
        return [self.service(rows)] * self._further


class ParallelCycles(BlockCycles):
    """Parallel rounds: the server takes its further steps while the clients take theirs."""

    def sort(self, client: int) -> object:
        """Return the client's number of steps."""
        return self._exchange(client, 1).steps

    def beside(self, turn: Turn) -> list[Law]:
        """Return the law of all further steps on the batch of the round before."""
        return [total(self.server_steps(turn.before))] if self._further else []


class TurnCycles(BlockCycles):
    """Sequential rounds: parties step one after another.

    An unused client's cycle is the exchange that begins a round.
    """

    def turns_taken(self, turn: Turn) -> list[Law]:
        """Return the laws of all consecutive activities of a round; the server's steps come last."""
        rows, taken = turn.now, list[Law]()
        for client in self.clients:
            taken += [self.service(rows), *self.downlink(client, rows), *self.steps(client, rows)]
            taken += [self._compute(client, "answer", rows), *self.uplink(client, rows)]
        return [*taken, *self.server_steps(rows), self.service(rows)]


def in_parallel(protocol: Algorithm, setting: Setting, further: int) -> tuple[Finding, ...]:
    """Return the law of a round: the maximum of the clients' cycles and the further steps, plus a server step."""
    return synchronous(ParallelCycles(protocol, setting, further))


def in_turn(protocol: Algorithm, setting: Setting, further: int) -> tuple[Finding, ...]:
    """Return the law of a round: the slowest of the first embeddings, plus all turns.

    With many turns, return its mean. Each turn has the links to itself, so messages can wait for each other only in the
    first exchange.
    """
    cycles = TurnCycles(protocol, setting, further)

    def fast(turn: Turn) -> Law:
        return total([maximum(cycles.cycles(turn, used=False)), *cycles.turns_taken(turn)])

    def slow(turn: Turn) -> Law:
        return total([maximum(slowed(cycles, turn, used=False)), *cycles.turns_taken(turn)])

    def formulas() -> tuple[Formula, ...]:
        turn = cycles.turns[0]
        groups, names = groups_of(cycles, cycles.cycles(turn, used=False))
        first, *others = round_formulas(groups, names, len(cycles.clients), total(cycles.turns_taken(turn)))
        return replace(first, note="S: the turns of all clients and of the server"), *others

    bounds = cycles.over_turns(fast), cycles.over_turns(slow)
    more = ["bounds: messages wait for each other on the links"] if bounds[0] != bounds[1] else []
    conditions = conditions_of(cycles, (LATER, "draws are independent"), *more)
    if sum(not isinstance(law, Point) for law in cycles.turns_taken(cycles.turns[0])) > MOST_RANDOM:
        mean = Range(bounds[0].expectation(), bounds[1].expectation())
        return (ClosedForm(ROUND, "s", (*conditions, "of so many random times only the mean"), formulas, given=mean),)
    return (ClosedForm(ROUND, "s", conditions, formulas, bounds[0], None if bounds[0] == bounds[1] else bounds[1]),)
