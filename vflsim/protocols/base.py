"""The base class of protocols: the coroutines of server and client, one set of traits, and hooks with defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal

from torch import Tensor

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import Finding
from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY
from vflsim.learning.batches import BatchSequence, Split
from vflsim.learning.lazy_values import KeptValue
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.operations import Handle
from vflsim.learning.training import Training
from vflsim.privacy.blinding import Blinding
from vflsim.protocols.contents import Contents, split_contents
from vflsim.protocols.evaluation import Scores, answer_evaluation, evaluate
from vflsim.protocols.traits import Traits
from vflsim.recurrences import Obstacle, Recurrence, TimedWorld
from vflsim.setting import (
    Exchange,
    Learners,
    ServerPrediction,
    Setting,
    linear_heads,
    split_learners,
    split_prediction,
    stack_split_learners,
)
from vflsim.streams import SERVER, SHARED
from vflsim.vocabulary.base import Part
from vflsim.world.node import Node


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Settings for checking a protocol when a scenario is loaded.

    ``clients`` is the number of clients of the scenario, ``symbols`` the names that formulas in selections may use.
    ``batches`` and ``batch`` are training settings, ``aggregate`` is the kind of the aggregate, ``models`` the clients'
    models in client order, ``server`` the server's; ``active`` is the embedding model of a server with features.
    """

    clients: int
    symbols: Mapping[str, float]
    batches: Literal["shared", "own"]
    batch: int | Literal["all"]
    aggregate: str
    models: Sequence[ClientModel]
    server: ServerModel
    active: ClientModel | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """A table that shows the effects of other values of the parameter ``key``. Each of ``rows`` begins with a value.

    Protocols that differ in this parameter alone have equal ``same``; only one of their tables is shown.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    same: object


class Protocol(Part, ABC):
    """A protocol is one final class: its fields are its keys in a scenario, and its coroutines are the algorithm.

    ``server`` and ``client`` run once per party and usually never return: the run's stop rule ends them. They run
    unchanged in virtual and in real time, because they see only their node and keep their state in local variables.
    Learners store what they remember beside models in ``kept`` (``PartyLearner``), and checkpoints save it. ``traits``
    tells the framework what it has to know of the protocol: begin with a preset, and change what differs.
    """

    traits: ClassVar[Traits] = Traits()
    """Facts that hold for every value of the keys."""
    runs_on_cpu: ClassVar[bool] = False
    """Whether runs use the CPU even if the study has another device."""
    vectorised_keys: ClassVar[frozenset[str] | None] = None
    """The keys that the ``recurrence`` of this protocol understands. None if it has no recurrence."""
    kept_values: ClassVar[tuple[type[KeptValue], ...]] = ()
    """The types of lazy values in this protocol's handles. Checkpoints save how to compute them, not the values."""
    default_blinding: ClassVar[Blinding | None] = None
    """The blinding of an entry without the key ``blinding``."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if not isinstance(cls.traits, Traits):
            raise TypeError(f"{cls.__name__}.traits is {cls.traits!r}; allowed: Traits(…), from vflsim.protocol")

    @property
    def labels_at_clients(self) -> bool:
        """Whether clients hold the labels of training rows, too, and not the server alone."""
        return False

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the participating clients in client order; others are absent from training and evaluation."""
        return list(range(1, clients + 1))

    def without(self, clients: tuple[int, ...]) -> Protocol:
        """Return this protocol without these clients. Raises ``ValueError`` if it cannot leave any out."""
        raise ValueError("this protocol cannot leave clients out")

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if the protocol cannot run with these clients, batches or models."""
        if self.traits.shared_batches and context.batches == "own":
            raise ValueError("this protocol's clients must work on the same batch; allowed: training.batches: shared")

    def check_blinding(self, blinding: Blinding, context: CheckContext) -> None:
        """Raise ``ValueError`` if the protocol cannot run with clients that blind their embeddings."""
        raise ValueError("the server of this protocol needs each embedding by itself, not only the sum of all")

    def check_codec(self, codec: Codec, blinded: bool) -> None:
        """Raise ``ValueError`` if the codec has no tensor to transform. ``blinded`` embeddings are integers."""
        if blinded and codec.towards(1).lossless and not codec.towards(SERVER).lossless:
            raise ValueError(
                f"{codec.kind} is for what goes up, and blinded embeddings are integers, which no codec changes; "
                "allowed: plain, or a codec of messages to clients"
            )

    def messages(self, clients: int) -> int:
        """Return about how many messages a round takes: here one from and one to every client."""
        return 2 * clients

    def epochs(self, rounds: int, embeddings_used: int, clients: int, batches_per_epoch: int) -> float:
        """Return the passes over the training data after this many server steps and used embeddings."""
        return rounds / batches_per_epoch

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make the mini-batches of ``rows`` training rows that all parties share. Raises ValueError if it cannot."""
        return BatchSequence(rows, training.model_copy(update={"batches": "shared"}), seed, SHARED)

    def placed(self, node: Node) -> Node:
        """Return the node that a party of this protocol gets. A reference may make computations or messages free."""
        return node

    # --- the learning plane -----------------------------------------------------------------------------------------

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the learners of a run, a ``PartyLearner`` for each party; none depends on another.

        Initial weights depend on (seed, party) alone, so that they are equal across protocols.
        """
        return split_learners(setting, seed, self.traits.table, self.traits.reference)

    def heads(self, setting: Setting, learners: Learners[Any, Any]) -> Mapping[int, Tensor]:
        """Return the linear head W_k of every participant, (d_f, d_c).

        The prediction is Σ_k h^k W_k, or the mean over k, plus a constant. Raises ``ValueError`` for any other model.
        """
        return linear_heads(setting, learners)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the server's prediction as a function of embeddings. Raises ``ValueError`` if it is none."""
        return split_prediction(learners)

    def stack(self, setting: Setting, learners: Learners[Any, Any]) -> list[str]:
        """Compute alike clients together. Return, in words, which clients cannot be stacked, and why."""
        if not learners.split:
            return ["clients with learners of their own are computed one by one"] if len(learners.clients) > 1 else []
        return stack_split_learners(setting, learners, self.traits.table)

    def extra_bytes(self, setting: Setting) -> int:
        """Count the bytes of a run besides features, weights and gradients."""
        return setting.dtype.itemsize * setting.data.rows * sum(setting.joined_widths) if self.traits.table else 0

    def view_bytes(self, setting: Setting, rows: int) -> int:
        """Count the bytes of views of so many training rows: what every client sends and receives about them."""
        exchanges = [self.exchange(setting, client, rows) for client in setting.clients]
        shapes = [shape for each in exchanges for shape in (*each.up.values(), *each.down.values())]
        return setting.dtype.itemsize * sum(map(prod, shapes))

    def check_data(self, setting: Setting) -> None:
        """Raise ValueError if the protocol cannot run with these data; all other checks have passed."""

    # --- what is known without a run --------------------------------------------------------------------------------

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of a round and of its parts. Raises ``Unanalysable`` with the reason if there are none.

        A round lasts from the end of one server step to the end of the next, as in ``rounds.parquet``.
        """
        raise Unanalysable("nothing is known of the rounds of this protocol")

    def exchange(self, setting: Setting, client: int, rows: int) -> Exchange:
        """Return what ``client`` sends, receives and computes in a round: its embedding, a gradient, and one step."""
        shape = (rows, setting.models[client - 1].embedding)
        return Exchange({ONLY: shape}, {ONLY: shape})

    def contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return all that messages between two parties may carry, by message kind, about a batch of so many rows.

        ``rows`` are those of ``batches(…).length``. The size of a kind that is left out is unknown.
        """
        client = sender if receiver == SERVER else receiver
        return split_contents(setting, self.exchange(setting, client, rows), sender, receiver, rows)

    def choices(self, setting: Setting) -> tuple[Choices, ...]:
        """Return tables of the effects of other parameter values. Raises ``Unanalysable``."""
        return ()

    def describe(self, setting: Setting) -> str:
        """Describe the consequences of the parameters in one line for ``vflsim check``. Empty if there are none."""
        return ""

    def facts(self) -> Mapping[str, Any]:
        """Return the fields of ``run.json`` that depend on the protocol alone."""
        return {
            "waits_for_all": self.traits.waits_for_all,
            "rounds_correspond": self.traits.rounds_correspond,
            "reference": self.traits.reference,
            "awaited_replies": self.traits.awaited_replies,
        }

    # --- the vectorised path ----------------------------------------------------------------------------------------

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of this protocol's rounds. Called only if ``vectorised_keys`` has all set keys."""
        raise NotImplementedError(f"{type(self).__name__} has no recurrence")

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield values of this protocol's keys for which its recurrence does not hold."""
        yield from ()

    # --- the algorithm ----------------------------------------------------------------------------------------------

    async def evaluate(self, node: Node, splits: Sequence[Split], number: int) -> Mapping[Split, Handle[Scores]]:
        """Server: return the loss and metrics of each split. ``number`` identifies the evaluation.

        The default asks every client for ``learner.embed_split(split)``, and scores the answers, messages in (arrival,
        party) order, by ``learner.evaluate(split, answers)`` of the server: operations whose results are handles. A
        learner without them needs both this method and ``answer_evaluation``. A party's own metric
        ends with the party's name: ``accuracy.client-2``.
        """
        return await evaluate(node, splits, number)

    async def answer_evaluation(self, node: Node, splits: Sequence[Split], number: int) -> None:
        """Client: answer the server's request for evaluation ``number``."""
        await answer_evaluation(node, splits, number)

    @abstractmethod
    async def server(self, node: Node) -> None:
        """Run the server."""

    @abstractmethod
    async def client(self, node: Node) -> None:
        """Run one client."""
