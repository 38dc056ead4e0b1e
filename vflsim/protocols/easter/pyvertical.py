"""A split network (PyVertical, Romanini et al. 2021)."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflsim.protocols.base import CheckContext, Protocol
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.traits import ROUNDS, Traits
from vflsim.world.node import ClientNode, ServerNode


class PyVertical(Protocol):
    """Synchronous rounds: every party with features, the active one included, has a bottom model; a top model takes
    their concatenated outputs.

    Example: ``{kind: pyvertical}``
    """

    kind: Literal["pyvertical"] = "pyvertical"
    traits: ClassVar[Traits] = ROUNDS

    async def server(self, node: ServerNode) -> None:
        """Wait for the outputs of all bottoms; step; return the gradients."""
        await Synchronous().server(node)

    async def client(self, node: ClientNode) -> None:
        """Each round: embed, upload, wait for the gradient, step."""
        await Synchronous().client(node)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another aggregate than ``concat``."""
        super().check(context)
        if context.aggregate != "concat":
            raise ValueError(
                f"the top of a split network takes the bottoms' outputs side by side, not their {context.aggregate}; "
                "allowed: models.aggregate: concat"
            )
