"""The base class of protocols: the coroutines of server and client, one set of traits, and hooks with defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vflsim.codecs import Codec
from vflsim.learning.losses import Loss
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.blinding import Blinding
from vflsim.protocols.traits import Traits
from vflsim.setting import BatchPlan, Learners, Setting, split_learners
from vflsim.streams import SERVER
from vflsim.tracing.contents import Contents
from vflsim.vocabulary.base import Part
from vflsim.world.node import Node


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Settings for checking a protocol when a scenario is loaded.

    ``clients`` is the number of clients of the scenario, ``symbols`` the names that formulas in selections may use.
    ``batches`` and ``batch`` are training settings, ``aggregate`` is the kind of the aggregate, ``models`` the clients'
    models in client order, ``server`` the server's; ``active`` is the embedding model of a server with features.
    ``codec`` and ``blinding`` are those of the protocol, ``loss`` is what it trains on (None: the usual one of the
    task). ``setting`` is there once the data have been read.

    Example::

        class Pairs(Synchronous):
            kind: Literal["pairs"] = "pairs"

            def check(self, context: CheckContext) -> None:
                super().check(context)
                if context.clients % 2:
                    raise ValueError(f"{context.clients} clients cannot form pairs; allowed: an even number of them")
    """

    clients: int
    symbols: Mapping[str, float]
    batches: Literal["shared", "own"]
    batch: int | Literal["all"]
    aggregate: str
    models: Sequence[ClientModel]
    server: ServerModel
    codec: Codec
    active: ClientModel | None = None
    blinding: Blinding | None = None
    loss: Loss | None = None
    setting: Setting | None = None


class UnsuitableError(ValueError):
    """Raised if a protocol cannot run with a codec, a blinding or a loss. ``key`` is the scenario's key that is wrong.

    Example::

        UnsuitableError("codec", "it sends integers; allowed: plain").key  # 'codec'
    """

    def __init__(self, key: Literal["codec", "blinding", "loss"], message: str) -> None:
        super().__init__(message)
        self.key = key


class Protocol(Part, ABC):
    """A protocol is one final class: its fields are its keys in a scenario, and its coroutines are the algorithm.

    ``server`` and ``client`` run once per party and usually never return: the run's stop rule ends them. They run
    unchanged in virtual and in real time, because they see only their node and keep their state in local variables.
    Learners store what they remember beside models in ``kept`` (``PartyLearner``), and checkpoints save it. ``traits``
    tells the framework what it has to know of the protocol: begin with a preset, and change what differs.

    Example, which a scenario names by ``{kind: module, path: "mine:Lazy", pause: 2 s}``::

        class Lazy(Protocol):
            kind: Literal["lazy"] = "lazy"
            pause: PositiveSeconds = 1.0

            async def server(self, node: ServerNode) -> None:
                for k in node.rounds():
                    embeddings = await node.gather("embedding", senders=node.clients, round=k)
                    step = await node.compute(node.learner.server_step(embeddings))
                    for message in embeddings:
                        await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))

            async def client(self, node: ClientNode) -> None:
                for k in node.rounds():
                    h = await node.compute(node.learner.embed(node.batch(k)))
                    await node.upload("server", Embedding(node.batch(k), h, round=k))
                    gradient = await node.recv("gradient", round=k)
                    await node.compute(node.learner.client_step(node.batch(k), gradient))
                    await node.sleep(self.pause)
    """

    traits: ClassVar[Traits] = Traits()
    """Facts that hold for every value of the keys."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if not isinstance(cls.traits, Traits):
            raise TypeError(f"{cls.__name__}.traits is {cls.traits!r}; allowed: Traits(…), from vflsim.protocol")

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if the protocol cannot run with these clients, batches or models.

        Called when the scenario is loaded, and again with the data, as ``context.setting``. An ``UnsuitableError`` says
        that the codec or the blinding is the reason.
        """
        if self.traits.shared_batches and context.batches == "own":
            raise ValueError("this protocol's clients must work on the same batch; allowed: training.batches: shared")
        up, down = (context.codec.towards(receiver).lossless for receiver in (SERVER, 1))
        if context.blinding is not None and down and not up and self.traits.only_embeddings_up:
            raise UnsuitableError(
                "codec",
                f"{context.codec.kind} is for what goes up, and blinded embeddings are integers, which no codec "
                "changes; allowed: plain, or a codec of messages to clients",
            )

    def batch_plan(self) -> BatchPlan:
        """Return the mini-batches, epochs and messages of its rounds."""
        return BatchPlan(together=self.traits.shared_batches)

    @property
    def in_flight(self) -> int:
        """Return how many embeddings of a client may be without a reply: one, unless clients work ahead."""
        return 1

    # --- the learning plane -----------------------------------------------------------------------------------------

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the learners of a run: one ``PartyLearner`` for each party, independent of the others.

        Initial weights depend on (seed, party) alone, so that they are equal across protocols.
        """
        return split_learners(setting, seed, self.traits.table, self.traits.reference)

    # --- facts that need no run --------------------------------------------------------------------------------

    def rare_contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return, by kind, what messages carry that neither a few rounds show nor an evaluation: by default none.

        ``rows`` are those of ``batches(…).length``. ``vflsim verify`` and live runs know all others from a trace.
        """
        return {}

    def describe(self, setting: Setting) -> str:
        """Return one line for ``vflsim check`` on the consequences of the parameters; empty if there are none."""
        return ""

    # --- the algorithm ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def server(self, node: Node) -> None:
        """Run the server."""

    @abstractmethod
    async def client(self, node: Node) -> None:
        """Run one client."""
