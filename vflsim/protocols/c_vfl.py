"""C-VFL: every party takes Q steps on values exchanged once in compressed form (Castiglia et al. 2022, Alg. 1)."""

from __future__ import annotations

from typing import Any, Literal

from vflsim.protocols.fedbcd.sharing import SharingRounds, StepCounts
from vflsim.vocabulary.quantities import Count
from vflsim.world.node import Node


class CVfl(SharingRounds):
    """Round t: clients send C(h_m) of B(t), the server sends all C(h_m) and C(θ_0) to all clients; all take Q steps.

    C is the ``codec``. In each step a client recomputes its own h_m without compression, and uses the received values
    of the other parties. The server's steps use its own, uncompressed θ_0. Clients hold the labels.

    Example: ``{kind: c_vfl, local_steps: 5}``
    """

    kind: Literal["c_vfl"] = "c_vfl"
    local_steps: Count = 1
    """Q, the steps of every party in a round. Each is a computation; a client's counts as an update."""

    def counts(self, node: Node[Any]) -> StepCounts:
        """Return Q for every party."""
        return StepCounts(lambda: node.now, self.local_steps)
