"""What a scenario says of how its round durations vary, and a single run cannot show: slow changes and heavy tails."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from vflsim.vocabulary.amounts import quantity

CYCLES, PERIODS = 100, 10
"""Random cycles, and fixed periods, that a run must have gone through before an interval from within it counts."""


class Variation(BaseModel):
    """Why rounds may vary in ways that a run of ordinary length does not show.

    ``cycle_s`` is the mean time (s) of the slowest change that recurs, named by ``cycle`` (bursts, outages, traces,
    rates), and ``cycles`` how often a run has to see it; 0 and empty without any. ``heavy`` names what has an infinite
    variance; empty without any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cycle_s: float = Field(default=0.0, ge=0)
    cycle: str = ""
    cycles: int = Field(default=0, ge=0)
    heavy: str = ""

    @property
    def needed_s(self) -> float:
        """How long the rounds of an interval from within have to last together (s)."""
        return self.cycles * self.cycle_s

    def covers(self, seconds: float) -> bool:
        """Whether an interval from within rounds that last so long together can be trusted."""
        return not self.heavy and seconds >= self.needed_s

    def waits(self) -> str:
        """Say what the stop rule ``precision`` waits for."""
        if self.heavy:
            return f"never ends a run: no variance is known to be finite: {self.heavy}"
        lasts = quantity(self.needed_s, "s")
        return f"waits for {self.cycles} cycles of {self.cycle} ({quantity(self.cycle_s, 's')} each), {lasts} of rounds"

    def lacking(self, seconds: float) -> str:
        """Say what an interval from rounds of so many ``seconds`` lacks; empty if nothing."""
        if self.heavy:
            return f"no variance is known to be finite: {self.heavy}"
        if self.covers(seconds):
            return ""
        seen = int(seconds / self.cycle_s)
        return f"{seen} of {self.cycles} cycles of {self.cycle} ({quantity(self.cycle_s, 's')} each) seen"


def lacking(variation: Variation | None, seconds: float) -> str:
    """Say what an interval from rounds of so many ``seconds`` lacks, if anything is known against it."""
    return "" if variation is None else variation.lacking(seconds)
