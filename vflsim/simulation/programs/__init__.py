"""Training as programs: a run is timed first, which gives its schedule; then runs train side by side along theirs."""

from vflsim.learning.programs.rounds import NoProgramError
from vflsim.simulation.programs.eligibility import obstacles_to_program
from vflsim.simulation.programs.timing import TimedRun, timed
from vflsim.simulation.programs.training import TrainedRun, trained

__all__ = ["NoProgramError", "TimedRun", "TrainedRun", "obstacles_to_program", "timed", "trained"]
