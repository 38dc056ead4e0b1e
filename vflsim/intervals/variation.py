"""What a scenario says of how its round durations vary, and a single run cannot show: slow changes and heavy tails."""

from pydantic import BaseModel, Field

from vflsim.vocabulary.amounts import quantity

CYCLES, PERIODS = 100, 10
"""Random cycles, and fixed periods, that a run must have gone through before an interval from within it counts."""
SKEWED = 25
"""Rounds needed per squared skewness of their durations (Cochran, Sampling Techniques, §2.15)."""
MOST_ROUNDS = 10**9
"""Rounds that no run has: where a mean needs more, ``rounds`` is this."""


class Variation(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Why rounds may vary in ways that a run of ordinary length does not show.

    ``cycle_s`` is the mean time (s) of the slowest change that recurs, named by ``cycle`` (bursts, outages, traces,
    rates), and ``cycles`` how often a run has to see it; 0 and empty without any. ``heavy`` names what has an infinite
    variance; empty without any. ``rounds`` is how many rounds a mean needs because of the delay that ``skewed`` names:
    fewer may miss its rare, long draws. 0 and empty if a few hundred do.
    """

    cycle_s: float = Field(default=0.0, ge=0)
    cycle: str = ""
    cycles: int = Field(default=0, ge=0)
    heavy: str = ""
    rounds: int = Field(default=0, ge=0)
    skewed: str = ""

    @property
    def needed_s(self) -> float:
        """How long the rounds of an interval from within have to last together (s)."""
        return self.cycles * self.cycle_s

    def covers(self, rounds: int, seconds: float) -> bool:
        """Whether an interval from within so many rounds, which last so long together, can be trusted."""
        return not self.heavy and rounds >= self.rounds and seconds >= self.needed_s

    @property
    def never(self) -> bool:
        """Whether no run is ever long enough: no finite variance, or more rounds than any run has."""
        return bool(self.heavy) or self.rounds >= MOST_ROUNDS

    def waits(self) -> str:
        """Say what the stop rule ``precision`` waits for."""
        if self.heavy:
            return f"never ends a run: no variance is known to be finite: {self.heavy}"
        waits = []
        if self.rounds:
            waits.append(f"{self._needed_rounds} rounds, since {self.skewed} is skewed")
        if self.cycles:
            each, lasts = quantity(self.cycle_s, "s"), quantity(self.needed_s, "s")
            waits.append(f"{self.cycles} cycles of {self.cycle} ({each} each), {lasts} of rounds")
        return f"waits for {' and for '.join(waits)}"

    def lacking(self, rounds: int, seconds: float) -> str:
        """Say what an interval from so many rounds, which last so long together, lacks; empty if nothing."""
        if self.heavy:
            return f"no variance is known to be finite: {self.heavy}"
        if self.covers(rounds, seconds):
            return ""
        if rounds < self.rounds:
            return f"{rounds:,} of {self._needed_rounds} rounds, which {self.skewed} needs, since it is skewed"
        seen = int(seconds / self.cycle_s)
        return f"{seen} of {self.cycles} cycles of {self.cycle} ({quantity(self.cycle_s, 's')} each) seen"

    @property
    def _needed_rounds(self) -> str:
        return f"over {MOST_ROUNDS:,}" if self.rounds >= MOST_ROUNDS else f"{self.rounds:,}"


def lacking(variation: Variation | None, rounds: int, seconds: float) -> str:
    """Say what an interval from so many rounds of so many ``seconds`` lacks, if anything is known against it."""
    return "" if variation is None else variation.lacking(rounds, seconds)
