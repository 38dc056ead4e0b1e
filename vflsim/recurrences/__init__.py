"""Recurrences of rounds on arrays of clients: every round follows from the previous one."""

from vflsim.recurrences.chunk import Obstacle, Recurrence
from vflsim.recurrences.synchronous import BARRIERS, WITH_EVENTS, SynchronousRounds
from vflsim.recurrences.world import TimedWorld
from vflsim.tracing.acts import (
    Activated,
    Acts,
    ClientDelay,
    ClientsWait,
    ClientWork,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToPeers,
    ToServer,
)

__all__ = [
    "BARRIERS",
    "WITH_EVENTS",
    "Activated",
    "Acts",
    "ClientDelay",
    "ClientWork",
    "ClientsWait",
    "InTurn",
    "Obstacle",
    "Recurrence",
    "ServerWaits",
    "ServerWork",
    "SynchronousRounds",
    "TimedWorld",
    "ToClients",
    "ToPeers",
    "ToServer",
]
