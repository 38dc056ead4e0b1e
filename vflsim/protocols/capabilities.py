"""Capabilities that only some protocols have: one class each.

A protocol derives from it as well as from ``Protocol``. Callers test for a capability with ``isinstance``, or call
the functions of ``protocols.defaults``, which also answer for protocols without one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from vflsim.analysis.findings import Finding
from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.privacy.blinding import Blinding
from vflsim.protocols.answering import Answering, Scores, answer_evaluation
from vflsim.protocols.base import Protocol
from vflsim.protocols.vectorisable import Vectorisable
from vflsim.setting import Learners, ServerPrediction, Setting, linear_heads
from vflsim.tables import Cell
from vflsim.world.node import Node


@dataclass(frozen=True, slots=True)
class Choices:
    """A table that shows the effects of other values of the parameter ``key``. Each of ``rows`` begins with a value.

    Protocols that differ in this parameter alone have equal ``same``; only one of their tables is shown. ``best`` is
    the value with the best row, if one is.

    Example::

        Choices(
            key="t",
            title="mean round by t",
            columns=("mean round [s]",),
            rows=((1, "0.8"), (2, "1.3")),
            notes=("waits for the first t embeddings",),
            same="exponential uploads",
        ).rows[1][0]  # 2
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    same: object
    best: str = ""


class Analysable(ABC):
    """A protocol whose laws of rounds are known without a run.

    Example::

        class Uploads(Analysable, Protocol):
            kind: Literal["uploads"] = "uploads"

            def closed_forms(self, setting: Setting) -> tuple[ClosedForm, ...]:
                law = setting.timings[1].upload_delay
                return (ClosedForm("upload delay", "s", ("client 1 alone",), formulas=tuple, law=law, clients=(1,)),)
    """

    @abstractmethod
    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of a round and of its parts. Raises ``Unanalysable`` with the reason if there are none.

        A round lasts from the end of one server step to the end of the next, as in ``rounds.parquet``.
        """

    def choices(self, setting: Setting) -> tuple[Choices, ...]:
        """Return tables of the effects of other parameter values. Raises ``Unanalysable``."""
        return ()


class Selective(ABC):
    """A protocol whose keys select the participating clients.

    Example::

        class FirstHalf(Selective, Synchronous):
            kind: Literal["first_half"] = "first_half"

            def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
                return list(range(1, clients // 2 + 1))


        FirstHalf().participants(4, {})  # [1, 2]
    """

    @abstractmethod
    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the participating clients in client order; others are absent from training and evaluation."""


class Blindable:
    """A protocol whose server needs only the sum of the clients' embeddings, so that masks can hide each embedding.

    Example, whose entries may have the key ``blinding``::

        class Masked(Blindable, Protocol):
            kind: Literal["masked"] = "masked"
    """

    default_blinding: ClassVar[Blinding | None] = None
    """The blinding of an entry without the key ``blinding``."""


class Predicting(ABC):
    """A protocol whose server does not predict by its model on the joined embeddings.

    Example::

        class Scaled(Predicting, Synchronous):
            kind: Literal["scaled"] = "scaled"

            def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
                plain = split_prediction(learners)
                return replace(plain, predict=lambda embeddings: 2 * plain.predict(embeddings))
    """

    @abstractmethod
    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the server's prediction as a function of embeddings. Raises ``ValueError`` if it is none."""


class Explainable:
    """A protocol that can leave clients out, and knows each client's part of the server's model.

    Example::

        class Sums(Explainable, Protocol):
            kind: Literal["sums"] = "sums"

            def heads(self, setting: Setting, learners: Learners[Any, Any]) -> Mapping[int, Tensor]:
                weight = learners.server.top.module.weight.detach().T
                return {client: weight for client in setting.clients}
    """

    def heads(self, setting: Setting, learners: Learners[Any, Any]) -> Mapping[int, Tensor]:
        """Return the linear head W_k of every participant, (d_f, d_c).

        The prediction is Σ_k h^k W_k, or the mean over k, plus a constant. Raises ``ValueError`` for any other model.
        """
        return linear_heads(setting, learners)

    def without(self, clients: tuple[int, ...]) -> Protocol:
        """Return this protocol without these clients. Raises ``ValueError`` if it cannot leave any out."""
        raise ValueError("this protocol cannot leave clients out")


class Remembering(ABC):
    """A protocol whose runs keep tensors besides features, weights, gradients and the server's table.

    Example::

        class Cached(Remembering, Synchronous):
            kind: Literal["cached"] = "cached"

            def extra_bytes(self, setting: Setting) -> int:
                return sum(setting.batch * width * setting.dtype.itemsize for width in setting.widths)


        Cached().extra_bytes(setting)  # 3840
    """

    @abstractmethod
    def extra_bytes(self, setting: Setting) -> int:
        """Count the bytes of these tensors, summed over all parties."""

    def extra_view_bytes(self, setting: Setting, rows: int) -> int:
        """Count the bytes that clients receive about this many training rows in addition to their exchanges."""
        return 0


class OwnEvaluation(ABC):
    """A protocol with an evaluation of its own, in place of embeddings that the server scores.

    The default for other protocols asks every client for ``learner.embed_split(split)``, and scores the answers,
    messages in (arrival, party) order, by ``learner.evaluate(split, answers)`` of the server: operations whose results
    are handles. A protocol whose learners lack these methods derives from this class.

    Example::

        class Constant(OwnEvaluation, Synchronous):
            kind: Literal["constant"] = "constant"

            async def evaluate(
                self, node: Node, splits: Sequence[Split], number: int
            ) -> Mapping[Split, Handle[Scores]]:
                scores: dict[Split, Handle[Scores]] = {split: Handle() for split in splits}
                for handle in scores.values():
                    handle.set({"loss": 0.0})
                return scores
    """

    @abstractmethod
    async def evaluate(self, node: Node, splits: Sequence[Split], number: int) -> Mapping[Split, Handle[Scores]]:
        """Server: return the loss and metrics of each split. ``number`` identifies the evaluation.

        A party's own metric ends with the party's name: ``accuracy.client-2``.
        """

    async def answer_evaluation(self, node: Node, splits: Sequence[Split], number: int) -> None:
        """Client: answer the server's request for evaluation ``number``."""
        await answer_evaluation(node, splits, number)


class OwnNodes(ABC):
    """A reference protocol: some computations or messages of its parties are free.

    Example::

        class Ideal(OwnNodes, Synchronous):
            kind: Literal["ideal"] = "ideal"

            def placed(self, node: Node) -> Node:
                return node.free()
    """

    @abstractmethod
    def placed(self, node: Node) -> Node:
        """Return the node that a party of this protocol gets."""


class LabelSharing(ABC):
    """A protocol whose keys decide whether clients also hold the labels of training rows.

    Example::

        class Labelled(LabelSharing, Synchronous):
            kind: Literal["labelled"] = "labelled"
            share: bool = False

            @property
            def labels_at_clients(self) -> bool:
                return self.share


        Labelled(share=True).labels_at_clients  # True
    """

    @property
    @abstractmethod
    def labels_at_clients(self) -> bool:
        """Whether clients also hold the labels of training rows, in addition to the server."""


class Peering:
    """A protocol whose clients send each other messages, too: in a live run they connect to each other.

    What its parties must know of everybody's data before a run are ``public_facts``: numbers by name, told by each
    client to all others in a live run. They are in ``setting.public`` then, and leak nothing else.

    Example::

        class Neighbours(Peering, Protocol):
            kind: Literal["neighbours"] = "neighbours"
            facts_told: ClassVar[tuple[str, ...]] = ("largest",)

            def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
                return {"largest": float(setting.data.features[client - 1]["train"].abs().max())}
    """

    facts_told: ClassVar[tuple[str, ...]] = ()
    """The names of all public facts."""

    def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
        """Return the facts about the training data of ``client`` that all parties must know: finite numbers."""
        return {}

    def needs_one_process(self) -> str:
        """Say why it cannot run live with these keys, and which it can; empty if it can."""
        return ""


class OwnFacts(ABC):
    """A protocol whose keys decide fields of ``run.json``.

    Example::

        class Queried(OwnFacts, Synchronous):
            kind: Literal["queried"] = "queried"

            def facts(self) -> Mapping[str, Any]:
                return {"awaited_replies": ("answer",)}


        Queried().facts()["awaited_replies"]  # ('answer',)
    """

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the fields of ``run.json`` that the keys decide. The other fields follow from the traits."""


CAPABILITIES: tuple[type, ...] = (
    Analysable,
    Vectorisable,
    Selective,
    Blindable,
    Predicting,
    Explainable,
    Remembering,
    OwnEvaluation,
    Answering,
    OwnNodes,
    LabelSharing,
    Peering,
    OwnFacts,
)
