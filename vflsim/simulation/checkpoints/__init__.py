"""Checkpoints of runs: the state to resume from an event boundary with unchanged results."""

from vflsim.simulation.checkpoints.keeper import Keeper as Keeper
