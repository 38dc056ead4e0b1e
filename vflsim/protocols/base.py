"""The base class of protocols: the coroutines of server and client, one set of traits, and hooks with defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from vflsim.analysis.findings import Choices, Finding
from vflsim.analysis.lockstep import lockstep_law
from vflsim.codecs import Codec
from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.blinding import Blinding
from vflsim.learning.tasks import Loss
from vflsim.protocols.answering import Scores, answer_evaluation, evaluate
from vflsim.setting import (
    BatchPlan,
    Learners,
    ServerPrediction,
    Setting,
    linear_heads,
    split_learners,
    split_prediction,
)
from vflsim.streams import SERVER
from vflsim.tracing.exchanges import Contents
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor
from vflsim.world.node import Node

ALL_ROWS = "its learners are its own, and need every row of every party"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts of a protocol that hold for every value of its keys. Begin with a preset, and ``replace`` what differs.

    Example: ``traits: ClassVar[Traits] = replace(ROUNDS, mechanism=False)``
    """

    shared_batches: bool = True
    """Whether all embeddings of a step must belong to the same batch."""
    waits_for_all: bool = False
    """Whether each step waits for every client. Speed-ups refer to the first such protocol of a scenario."""
    rounds_correspond: bool = False
    """Whether every participant begins its k-th work in round k. Rounds of two such protocols can be paired."""
    table: bool = False
    """Whether the server keeps the latest embedding of every (sample, client)."""
    reference: bool = False
    """Whether the server computes the clients' models, too: messages and clients take no time and cannot fail, and
    their FLOPs count as the server's."""
    active_features: bool = False
    """Whether the server's learner uses its own features (``partition.active``)."""
    predictors: bool = False
    """Whether every party has a prediction net on an embedding of its own model's width (``models.predictor``)."""
    party_scores: bool = False
    """Whether parties have their own predictors, with metrics in columns such as ``test_accuracy.client-2``."""
    mechanism: bool = True
    """Whether clients upload their own embeddings, which a mechanism (bound and noise) can protect."""
    noise: bool = False
    """Whether the server adds noise to its answers, which a live run draws from secrets of the operating system."""
    shows_uploads: bool = True
    """Whether the server can read what a single client uploads, unless it is blinded."""
    blindable: bool = False
    """Whether the server needs only the sum of the clients' embeddings, so that masks can hide each embedding."""
    party_dropout: bool = False
    """Whether the server's steps can leave parties out on purpose (``training.dropout``): they are those of
    ``ServerLearner.inputs_of``."""
    default_blinding: Blinding | None = None
    """The blinding of an entry without the key ``blinding``."""
    refuses_absent_rows: str = ALL_ROWS
    """Why parties cannot lack rows (``data.align: outer``). Empty if they can: embeddings are joined by a
    ``ServerLearner``, and clients are ``ClientLearner``."""
    only_embeddings_up: bool = True
    """Whether embeddings are all that clients upload in training. Blinded ones are integers, which no codec changes."""
    uploads_nothing: str = ""
    """Why the server gets no embedding from anybody, so that none can be attacked. Empty if it does."""
    evaluates_uncompressed: bool = False
    """Whether to skip the codec in evaluations that take no virtual time. With blinding they always skip it."""
    in_the_clear: bool = False
    """Whether messages that a deployment encrypts have only the cost of it, so that no live run may send them."""
    refuses_live: str = ""
    """Why no live run can have it. Empty if one can."""
    runs_on_cpu: bool = False
    """Whether runs use the CPU even if the study has another device."""
    awaited_replies: tuple[str, ...] = ()
    """Extra message kinds that the server waits for before a step."""
    aggregate: tuple[str, str] | None = None
    """The kind of ``models.aggregate`` that it needs, and why ``{other}`` does not do for ``{kind}``. None: any."""


ROUNDS = Traits(waits_for_all=True, rounds_correspond=True, active_features=True, refuses_absent_rows="")
"""Rounds of plain split learners on shared batches: each step waits for every client.

Example: ``traits: ClassVar[Traits] = ROUNDS``.
"""
TABLE = Traits(
    shared_batches=False,
    table=True,
    active_features=True,
    refuses_absent_rows="",
    awaited_replies=("answer",),
    party_dropout=True,
)
"""A server that keeps the latest embedding of every row and never waits for all clients.

Example: ``traits: ClassVar[Traits] = TABLE``.
"""
REFERENCE = Traits(
    reference=True,
    active_features=True,
    refuses_absent_rows="",
    mechanism=False,
    uploads_nothing="all features are at the server, which gets no embedding from anybody",
    party_dropout=True,
)
"""A reference with all features in one place. The difference to it is the cost of distribution.

Example: ``traits: ClassVar[Traits] = REFERENCE``.
"""

__all__ = ["ALL_ROWS", "REFERENCE", "ROUNDS", "TABLE", "Traits", "replace"]


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
        if self.traits.predictors and context.active is None:
            raise ValueError(
                "the active party has an embedding net, and the server holds no features; "
                "set partition.active: true and models.active"
            )
        needed, why = self.traits.aggregate or (context.aggregate, "")
        if context.aggregate != needed:
            kind = getattr(self, "kind", type(self).__name__)
            raise ValueError(f"{why.format(kind=kind, other=context.aggregate)}; allowed: models.aggregate: {needed}")
        up, down = (context.codec.towards(receiver).lossless for receiver in (SERVER, 1))
        if context.blinding is not None and down and not up and self.traits.only_embeddings_up:
            raise UnsuitableError(
                "codec",
                f"{context.codec.kind} is for what goes up, and blinded embeddings are integers, which no codec "
                "changes; allowed: plain, or a codec of messages to clients",
            )

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the participating clients in client order: by default all. Others are absent from the whole run."""
        return list(range(1, clients + 1))

    def without(self, clients: tuple[int, ...]) -> Protocol:
        """Return this protocol without these clients. Raises ``ValueError`` if it cannot leave any out."""
        raise ValueError("this protocol cannot leave clients out")

    def batch_plan(self) -> BatchPlan:
        """Return the mini-batches, epochs and messages of its rounds."""
        return BatchPlan(together=self.traits.shared_batches)

    @property
    def in_flight(self) -> int:
        """Return how many embeddings of a client may be without a reply: one, unless clients work ahead."""
        return 1

    @property
    def most_rounds(self) -> int | None:
        """Return after how many rounds it ends its run, if it does."""
        return None

    # --- the learning plane -----------------------------------------------------------------------------------------

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the learners of a run: one ``PartyLearner`` for each party, independent of the others.

        Initial weights depend on (seed, party) alone, so that they are equal across protocols.
        """
        return split_learners(setting, seed, self.traits.table, self.traits.reference)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the server's prediction as a function of embeddings. Raises ``ValueError`` if it is none."""
        return split_prediction(learners)

    def heads(self, setting: Setting, learners: Learners[Any, Any]) -> Mapping[int, Tensor]:
        """Return the linear head W_k of every participant, (d_f, d_c).

        The prediction is Σ_k h^k W_k, or the mean over k, plus a constant. Raises ``ValueError`` for any other model.
        """
        return linear_heads(setting, learners)

    async def evaluate(self, node: Node, splits: Sequence[Split], number: int) -> Mapping[Split, Handle[Scores]]:
        """Server: return the loss and metrics of each split. ``number`` identifies the evaluation.

        By default clients embed all rows of a split by ``learner.embed_split(split)``, and the server scores the
        answers by ``learner.evaluate(split, answers)``, operations whose results are handles. A party's own metric ends
        with the party's name: ``accuracy.client-2``.
        """
        return await evaluate(node, splits, number)

    async def answer_evaluation(self, node: Node, splits: Sequence[Split], number: int) -> None:
        """Client: answer the server's request for evaluation ``number``."""
        await answer_evaluation(node, splits, number)

    # --- facts that need no run --------------------------------------------------------------------------------

    def rare_contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return, by kind, what messages carry that neither a few rounds show nor an evaluation: by default none.

        ``rows`` are those of ``batches(…).length``. ``vflsim verify`` and live runs know all others from a trace.
        """
        return {}

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of a round and of its parts: by default that of its trace, if the server waits for all.

        A round lasts from the end of one server step to the end of the next, as in ``rounds.parquet``. Raises
        ``Unanalysable`` with the reason if there are none.
        """
        return lockstep_law(self, setting)

    def choices(self, setting: Setting) -> tuple[Choices, ...]:
        """Return tables of the effects of other parameter values. Raises ``Unanalysable``."""
        return ()

    def extra_bytes(self, setting: Setting) -> int:
        """Count the bytes that all parties keep besides features, weights, gradients and the server's table."""
        return 0

    def extra_view_bytes(self, setting: Setting, rows: int) -> int:
        """Count the bytes that clients receive about this many training rows in addition to their exchanges."""
        return 0

    @property
    def labels_at_clients(self) -> bool:
        """Whether clients also hold the labels of training rows, in addition to the server."""
        return False

    def facts(self) -> Mapping[str, Any]:
        """Return the fields of ``run.json`` that the keys decide. The other fields follow from the traits."""
        return {}

    def describe(self, setting: Setting) -> str:
        """Return one line for ``vflsim check`` on the consequences of the parameters; empty if there are none."""
        return ""

    def placed(self, node: Node) -> Node:
        """Return the node that a party gets: of a reference, one on which only the server's computations take time."""
        return node.free(messages_only=node.party == SERVER, wired=False) if self.traits.reference else node

    # --- the algorithm ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def server(self, node: Node) -> None:
        """Run the server."""

    @abstractmethod
    async def client(self, node: Node) -> None:
        """Run one client."""
