"""Laws of CELU-VFL's rounds."""

from __future__ import annotations

import math

from vflsim.analysis.cycles import Cycles, Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding
from vflsim.analysis.lockstep import lockstep_law
from vflsim.analysis.rounds import ROUND, conditions_of, slowed
from vflsim.setting import Setting
from vflsim.streams import SERVER, party_name
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import maximum
from vflsim.tracing.recording import Traceable

LATE = "bounds: a message may find its receiver at a local step, which is finished first"


class CachedCycles(Cycles):
    """Cycles of clients that may be at a local step when the gradient arrives, as the server when embeddings do."""

    def longest_step(self, party: int, rows: int) -> float:
        """Return the longest local step. Raises ``Unanalysable`` if there is none."""
        longest = self._local(party, rows).support[1]
        if not math.isfinite(longest):
            raise Unanalysable(f"a local step of {party_name(party)} may last for ever: it delays rounds by any time")
        return longest

    def _local(self, party: int, rows: int) -> Law:
        if not self._by_flops:
            return self._compute(party, "local_step" if party == SERVER else "client_step", rows)
        raise Unanalysable("what local steps cost in FLOPs is not in the closed form")


def with_local_steps(protocol: Traceable, setting: Setting, local: bool) -> tuple[Finding, ...]:
    """Return the law of synchronous rounds; with ``local`` steps, that and the one of rounds that wait for them."""
    if not local:
        return lockstep_law(protocol, setting)
    cycles = CachedCycles(protocol, setting)
    rows = max(turn.now for turn in cycles.turns)
    served = cycles.longest_step(SERVER, rows)

    def fast(turn: Turn) -> Law:
        return total([maximum(cycles.cycles(turn)), cycles.service(turn.now)])

    def slow(turn: Turn) -> Law:
        laws = zip(cycles.clients, slowed(cycles, turn), strict=True)
        late = [shifted(law, cycles.longest_step(client, rows)) for client, law in laws]
        return shifted(total([maximum(late), cycles.service(turn.now)]), served)

    conditions = conditions_of(cycles, (LATE,))
    return (ClosedForm(ROUND, "s", conditions, tuple, cycles.over_turns(fast), cycles.over_turns(slow)),)
