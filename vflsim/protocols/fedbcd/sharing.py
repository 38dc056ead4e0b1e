"""What protocols have in common whose clients step on values that the server shares: C-VFL and Flex-VFL."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import Finding
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import LabelSharing
from vflsim.protocols.contents import Contents
from vflsim.protocols.fedbcd.formulas import in_parallel
from vflsim.protocols.fedbcd.messages import SharedValues
from vflsim.protocols.fedbcd.recomputed import recomputing_learners, shared_content, shared_shapes
from vflsim.protocols.traits import ROUNDS, Traits
from vflsim.protocols.waiting import WaitsForAll
from vflsim.setting import Exchange, Learners, Setting
from vflsim.streams import SERVER, party_name


class SharingRounds(WaitsForAll, LabelSharing, Protocol):
    """Rounds in which the server sends all embeddings and its weights to all clients, and each party takes its steps.

    Clients hold the labels and compute their own gradients.
    """

    traits: ClassVar[Traits] = ROUNDS

    @abstractmethod
    def steps_of(self, party: int) -> int | None:
        """Return the number of steps of a party in each round; None if it follows from the rounds before."""

    @property
    def labels_at_clients(self) -> bool:
        """Return True: clients need labels to compute their gradients."""
        return True

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients that compute their own gradients, and a server that steps repeatedly."""
        return recomputing_learners(setting, seed)

    def exchange(self, setting: Setting, client: int, rows: int) -> Exchange:
        """Return an embedding up, all embeddings and θ_0 down, and the client's steps.

        All but the first repeat the forward pass.
        """
        up, down = super().exchange(setting, client, rows).up, shared_shapes(setting, setting.clients, rows)
        passed_on = tuple(map(party_name, setting.clients))
        return Exchange(up, down, self.steps_of(client) or 1, anew=True, passed_on=passed_on)

    def contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return the contents of split training, and the values from which clients compute gradients."""
        split = super().contents(setting, sender, receiver, rows)
        if receiver == SERVER:
            return split
        return {**split, SharedValues.kind: shared_content(setting, self.exchange(setting, receiver, rows))}

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the law of the maximum of the clients' cycles and the server's further steps, plus a server step."""
        steps = self.steps_of(SERVER)
        if steps is None:
            raise Unanalysable("how many steps a party takes follows from the times of the round before")
        return in_parallel(self, setting, steps - 1)
