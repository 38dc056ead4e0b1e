"""Recurrences of rounds on arrays of clients: every round follows from the previous one."""

from vflsim.recurrences.chunk import Obstacle, Recurrence
from vflsim.recurrences.world import TimedWorld

__all__ = ["Obstacle", "Recurrence", "TimedWorld"]
