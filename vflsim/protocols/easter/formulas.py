"""Laws of EASTER's rounds: two trips, each of the duration of its slowest party, and the active party's step."""

from __future__ import annotations

from dataclasses import replace

import torch

from vflsim.analysis.cycles import Cycles, Turn
from vflsim.analysis.findings import ClosedForm, Finding, Formula
from vflsim.analysis.formulas import round_formulas
from vflsim.analysis.rounds import LATER, ROUND, conditions_of, groups_of, slowed
from vflsim.codecs.frame import ONLY
from vflsim.setting import Algorithm, Exchange, Setting
from vflsim.streams import SERVER
from vflsim.timing.law import Law
from vflsim.timing.order import maximum
from vflsim.timing.sums import total


class EmbeddingTrip(Cycles):
    """The first trip: gradients down, steps, embeddings up. The active party embeds at the same time."""

    def beside(self, turn: Turn) -> list[Law]:
        """Return the law of the active party's embedding."""
        return [self._compute(SERVER, "embed", turn.now)]

    def _flops(self, party: int, kind: str, rows: int) -> float:
        learners = self._learners
        flops: float = (learners.clients[party] if party else learners.server).flops(kind, rows)
        return flops


class PredictionTrip(EmbeddingTrip):
    """The second trip: the global embedding down, predictions up. The active party predicts at the same time."""

    @property
    def uploaded(self) -> torch.dtype:
        """Return the dtype of predictions, which are not blinded."""
        return self.setting.dtype

    def cycle(self, client: int, turn: Turn, used: bool = True) -> Law:
        """Return the law from the end of the first trip to the arrival of this client's prediction."""
        down, up = self.downlink(client, turn.before), self.uplink(client, turn.now)
        return total([*down, self._compute(client, "predict", turn.now), *up])

    def beside(self, turn: Turn) -> list[Law]:
        """Return the law of the active party's prediction."""
        return [self._compute(SERVER, "predict", turn.now)]

    def _exchange(self, client: int, rows: int) -> Exchange:
        first = super()._exchange(client, rows)
        return Exchange({ONLY: first.down[ONLY]}, {ONLY: first.up[ONLY]})  # of the same shapes, the other way round


def two_trips(protocol: Algorithm, setting: Setting) -> tuple[Finding, ...]:
    """Return the law of a round. All messages of a trip arrive before the next trip: waits for links do not add up."""
    first, second = EmbeddingTrip(protocol, setting), PredictionTrip(protocol, setting)

    def trip(of: EmbeddingTrip, turn: Turn, slow: bool) -> Law:
        return maximum([*(slowed(of, turn) if slow else of.cycles(turn)), *of.beside(turn)])

    def later(turn: Turn, slow: bool = False) -> Law:
        return total([trip(second, replace(turn, before=turn.now), slow), first.service(turn.now)])

    def formulas() -> tuple[Formula, ...]:
        turn = first.turns[0]
        groups, names = groups_of(first, first.cycles(turn))
        beside = [(law, 1) for law in first.beside(turn)]
        names += ["the active party's embedding"]
        found, *others = round_formulas([*groups, *beside], names, len(first.clients) + 1, later(turn))
        return replace(found, note="S: the second trip, as long as its slowest party, and the server step"), *others

    def bound(slow: bool) -> Law:
        return first.over_turns(lambda turn: total([trip(first, turn, slow), later(turn, slow)]))

    fast, slow = bound(False), bound(True)
    more = ["bounds: messages wait for each other on the links"] if fast != slow else []
    conditions = conditions_of(first, (LATER, "draws are independent"), *more)
    return (ClosedForm(ROUND, "s", conditions, formulas, fast, None if fast == slow else slow),)
