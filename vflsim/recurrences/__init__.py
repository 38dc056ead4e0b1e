"""Recurrences of rounds on arrays of clients: every round follows from the previous one."""

from vflsim.recurrences.acts import Acts
from vflsim.recurrences.chunk import Obstacle, Recurrence
from vflsim.recurrences.world import TimedWorld

__all__ = ["Acts", "Obstacle", "Recurrence", "TimedWorld"]
