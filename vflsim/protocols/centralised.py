"""The reference: all features in one place."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.rounds import centralised
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import Analysable, OwnNodes, Vectorisable
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.traits import REFERENCE, Traits
from vflsim.recurrences import Recurrence, TimedWorld
from vflsim.recurrences.synchronous import ServerSteps
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.world.node import ClientNode, Node, ServerNode


class Centralised(Analysable, Vectorisable, OwnNodes, Protocol):
    """The same models and batches as synchronous training, with all features at the server: no delay, no message.

    The server computes the whole model, the clients' parts included. A round takes the time of that one computation
    (``compute.server_step``): with FLOPs those of all models' forward and backward passes at the server's rate; a
    sampled time of the server is that of the whole. The other protocols' distance to it is the
    cost of distribution. It is the synchronous algorithm over verbs that cost nothing.

    Example: ``{kind: centralised}``
    """

    kind: Literal["centralised"] = "centralised"
    traits: ClassVar[Traits] = REFERENCE
    vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind"})

    def placed(self, node: Node) -> Node:
        """The server's computations take their time, and nothing else does."""
        return node.free(messages_only=node.party == SERVER, wired=False)

    async def server(self, node: ServerNode) -> None:
        """Synchronous, with messages that cost nothing."""
        await Synchronous().server(node)

    async def client(self, node: ClientNode) -> None:
        """Synchronous, in no time."""
        await Synchronous().client(node)

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """A round is a server step."""
        return centralised(Cycles(self, setting))

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """One server step after the other."""
        return ServerSteps(world)
