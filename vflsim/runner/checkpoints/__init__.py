"""Checkpoints of runs: what is needed to go on from an event boundary as if nothing had happened."""

from vflsim.runner.checkpoints.keeper import Keeper as Keeper
