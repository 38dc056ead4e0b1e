"""The reference: all features in one place."""

from __future__ import annotations

from typing import Literal

from vflsim.protocols.synchronous import Synchronous
from vflsim.world.node import Node


class Centralised(Synchronous):
    """The same models and batches as synchronous training, with all features at the server: no delay, no message.

    A round takes the server's compute time (``compute.server_step``) and nothing else, so what it reaches, and how
    fast, is what the others lose to distribution. It is the synchronous algorithm over verbs that cost nothing.
    """

    kind: Literal["centralised"] = "centralised"

    async def server(self, node: Node) -> None:
        """Synchronous, with free returns of the gradients."""
        await super().server(node.free(messages_only=True))

    async def client(self, node: Node) -> None:
        """Synchronous, in no time."""
        await super().client(node.free())
