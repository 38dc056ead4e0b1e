"""The timing of round-based protocols by arrays: the same tables as of the event path.

Between two server steps clients are independent, so a round is a few additions of arrays over clients, and a run is a
loop over rounds. The additions follow the order of the clock (``(start + compute) + delay``, never
``start + (compute + delay)``), so that every time has the same bits.
"""

from vflsim.recurrences.chunk import UndecidedError
from vflsim.simulation.vectorised.eligibility import obstacles
from vflsim.simulation.vectorised.run import run_vectorised

__all__ = [
    "UndecidedError",
    "obstacles",
    "run_vectorised",
]
