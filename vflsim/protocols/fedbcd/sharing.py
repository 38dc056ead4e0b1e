"""What protocols have in common whose clients step on values that the server shares: C-VFL and Flex-VFL."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import LabelSharing
from vflsim.protocols.fedbcd.recomputed import recomputing_learners
from vflsim.protocols.traits import ROUNDS, Traits
from vflsim.setting import Learners, Setting


class SharingRounds(LabelSharing, Protocol):
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
