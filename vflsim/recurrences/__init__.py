"""Recurrences of rounds on arrays of clients: every round follows from the previous one."""

from vflsim.recurrences.acts import (
    Activated,
    Acts,
    ClientWork,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToServer,
)
from vflsim.recurrences.chunk import Obstacle, Recurrence
from vflsim.recurrences.synchronous import BARRIERS, SynchronousRounds
from vflsim.recurrences.world import TimedWorld

__all__ = [
    "BARRIERS",
    "Activated",
    "Acts",
    "ClientWork",
    "InTurn",
    "Obstacle",
    "Recurrence",
    "ServerWaits",
    "ServerWork",
    "SynchronousRounds",
    "TimedWorld",
    "ToClients",
    "ToServer",
]
