"""LASER-VFL: late and missing embeddings are masked, in training and in inference (Valdeira et al., ICLR 2025)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from vflsim.protocols.base import CheckContext, Traits, replace
from vflsim.protocols.ignore import InTime
from vflsim.protocols.laser_vfl.learning import SubsetServer
from vflsim.setting import Learners, Setting, split_clients


class LaserVfl(InTime):
    """Rounds in which every party has a head on the mean of any set of embeddings with its own.

    A step uses the observed embeddings: of clients that have the row, and that are in time where ``fastest`` or
    ``deadline`` is given. All heads are at the server, where the labels are; ``models.server`` is one of them. The
    paper's parties hold theirs, and the labels, themselves.

    Examples: ``{kind: laser_vfl, deadline: 2 s}``, ``{kind: laser_vfl, fastest: 3}``
    """

    kind: Literal["laser_vfl"] = "laser_vfl"
    traits: ClassVar[Traits] = replace(InTime.traits, party_scores=True)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another aggregate than the mean, and for more clients than there are."""
        super().check(context)
        if context.aggregate != "mean":
            raise ValueError(
                f"heads predict from the mean of embeddings, not their {context.aggregate}; "
                "allowed: models.aggregate: mean"
            )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if None not in (self.fastest, self.deadline):
            raise ValueError("laser_vfl takes fastest or deadline, not both")
        return self

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server with a head for every party."""
        return Learners(SubsetServer(setting, seed), split_clients(setting, seed))
