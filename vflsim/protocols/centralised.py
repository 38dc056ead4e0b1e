"""The reference: all features in one place."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflsim.protocols.base import REFERENCE, Protocol, Traits
from vflsim.protocols.synchronous import Synchronous
from vflsim.world.node import ClientNode, ServerNode


class Centralised(Protocol):
    """Train with the models and batches of synchronous training, but with all features at the server and no messages.

    The server computes the whole model, the clients' parts included. A round takes the time of this one computation
    (``compute.server_step``). Counted FLOPs are those of the forward and backward passes of all models, at the server's
    rate. A sampled time of the server covers the whole computation. The difference between another protocol and this
    one is the cost of distribution. It runs the synchronous algorithm with operations and messages that take no time.

    Example: ``{kind: centralised}``
    """

    kind: Literal["centralised"] = "centralised"
    traits: ClassVar[Traits] = REFERENCE

    async def server(self, node: ServerNode) -> None:
        """Run the synchronous server with free messages."""
        await Synchronous().server(node)

    async def client(self, node: ClientNode) -> None:
        """Run the synchronous client in zero time."""
        await Synchronous().client(node)
