"""How long the rounds of a run lasted, read without the rest of their table."""

from __future__ import annotations

from vflsim.results.read import StoredRun
from vflsim.results.statistics import Floats


def durations(run: StoredRun) -> Floats:
    """Durations (rounds,) of a run in seconds, in order. Raises NotRecordedError where rounds were not kept."""
    rounds = run.table("rounds", ("start_s", "end_s"))
    lasted: Floats = rounds["end_s"].to_numpy() - rounds["start_s"].to_numpy()
    return lasted
