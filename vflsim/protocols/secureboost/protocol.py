"""SecureBoost (Cheng et al. 2021) and what SecureBoost+ (Chen et al. 2021) adds: packing, GOSS, subtraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from vflsim.codecs.encryption import Paillier, in_the_clear
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle
from vflsim.learning.tasks import Auto, BinaryCrossEntropy, CrossEntropy, MeanSquaredError
from vflsim.learning.training import Training
from vflsim.protocols.base import CheckContext, Protocol, Traits, UnsuitableError
from vflsim.protocols.secureboost.parties import PassiveParty
from vflsim.protocols.secureboost.server import BoostingServer
from vflsim.protocols.secureboost.trees import SplitRule, shown_nodes, unpacked_bits
from vflsim.setting import BatchPlan, Learners, ServerPrediction, Setting, prediction_of, shared_batches
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class EncryptedGradients(Message):
    """[[g]] and [[h]] of all rows, ``ciphertexts`` (rows, bytes); under GOSS of the chosen ``rows``."""

    kind: ClassVar[str] = "enc_gradients"
    rowless: ClassVar[frozenset[str]] = frozenset({"ciphertexts", "rows"})


@dataclass(slots=True, eq=False)
class Histogram(Message):
    """The encrypted sums of a client's nodes, features and bins at a level, (ciphertexts, bytes)."""

    kind: ClassVar[str] = "histogram"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class ChosenSplits(Message):
    """A client's own splits of a level, (nodes, 2): feature and bin, or -1 and -1."""

    kind: ClassVar[str] = "splits"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class RightRows(Message):
    """Which rows go right: at a client's own splits, or, from the server, at those of all; a bit a row."""

    kind: ClassVar[str] = "right_rows"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


class Goss(Part):
    """LightGBM's sampling: rows with the largest gradients, and some of the others, which count for more.

    Example: ``{top: 0.2, other: 0.1}``
    """

    top: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of rows with the largest Σ |g|."""
    other: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The share of rows, drawn among all others."""

    def counts(self, rows: int) -> tuple[int, int]:
        """Return how many of both there are."""
        top = min(rows, max(1, round(self.top * rows)))
        return top, min(rows - top, round(self.other * rows))


def whole_batches(rows: int, training: Training, seed: int) -> BatchSequence:
    """Make batches of all rows: a tree is grown from all of them."""
    return shared_batches(rows, training.model_copy(update={"batch": "all"}), seed)


class SecureBoost(Protocol):
    """A round grows a tree level by level; every level is two trips with messages of fixed sizes.

    1. The server encrypts g and h of every row, and sends them.
    2. For each level: clients add up ciphertexts by node, feature and bin, and send the sums. The server decrypts them,
       finds the best split of each node over all parties' features, and tells each client its own splits. Clients
       answer which rows go right at them. The server joins these bits, and sends them to all.
    3. After the last level the server weighs the leaves by −G / (H + λ).

    Left open by the papers: levels are padded to 2^l nodes, and all clients learn which rows go right. Below the root,
    histograms add half of the rows; siblings follow by subtraction. Models and optimisers are not used. Several outputs
    share a tree (SecureBoost-MO). **Values pass in the clear inside the simulator**; ciphertexts are a cost.

    Example: ``{kind: secureboost, trees: 50, depth: 3, bins: 32, learning_rate: 0.3, ridge: 1, least_gain: 0,
    least_hessian: 0.001, packed: 32, goss: {top: 0.2, other: 0.1}, encryption: {kind: paillier, key: 2048},
    secure_first: true}``
    """

    kind: Literal["secureboost"] = "secureboost"
    trees: Count = 100
    """The most trees. A run ends with the last one."""
    depth: Annotated[int, Field(ge=1, le=8)] = 3
    """Levels of splits; a tree has 2^depth leaves."""
    bins: Annotated[int, Field(ge=2, le=256)] = 32
    """Bins of a feature, by quantiles of the training rows."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.3
    """The factor of a tree's leaves."""
    ridge: Annotated[float, Field(gt=0)] = 1.0
    """λ: the penalty on leaves."""
    least_gain: Annotated[float, Field(ge=0)] = 0.0
    """γ: the gain that a split must exceed."""
    least_hessian: Annotated[float, Field(ge=0)] = 1e-3
    """The least sum of h in a child."""
    packed: Annotated[int, Field(ge=1)] = 1
    """Values in one ciphertext: 1 is SecureBoost; more, up to key ÷ 64, packs g, h and bins as SecureBoost+ does."""
    goss: Goss | None = None
    """Sampling of rows by their gradients."""
    secure_first: bool = False
    """Completely secure: before the first round, the server grows a tree on its own features."""
    encryption: Paillier = Paillier()
    """The scheme: its key, and times of your own."""
    traits: ClassVar[Traits] = Traits(
        waits_for_all=True,
        rounds_correspond=True,
        active_features=True,
        mechanism=False,
        shows_uploads=False,
        only_embeddings_up=False,
        uploads_nothing="clients upload sums of encrypted gradients, and no embedding",
        refuses_absent_rows="a tree is grown from all rows of all parties",
        in_the_clear=True,
        runs_on_cpu=True,
    )

    async def server(self, node: Node[BoostingServer]) -> None:
        """Active party: a tree a round."""
        if self.secure_first:
            await node.compute(node.learner.first_tree())
        for t in node.rounds():
            tree = t + self.secure_first
            if tree >= self.trees:
                node.finish("all trees are grown")
                return
            gradients, shown = await node.compute(node.learner.encrypt(tree)), list[list[Handle[Any] | None]]()
            for client in node.clients:
                await node.send(client, EncryptedGradients(tensors=gradients, round=t))
            for level in range(self.depth):
                sums = await node.gather("histogram", senders=node.clients, round=t)
                await node.compute(node.learner.decrypt(level))
                splits = await node.compute(node.learner.find_splits(tree, level, sums))
                for client in node.clients:
                    await node.send(client, ChosenSplits(value=splits[client], round=t))
                right = await node.gather("right_rows", senders=node.clients, round=t)
                if level + 1 < self.depth:
                    joined = await node.compute(node.learner.assign(tree, level, right))
                    shown.append([joined])
                    for client in node.clients:
                        await node.send(client, RightRows(value=joined, round=t))
            shown.append([message.value for message in right])
            self._derive(node, t, shown)
            known = [handle for level in shown[:-1] for handle in level if handle is not None]
            for message in sums:
                solve = partial(node.learner.solved, message, gradients, known)
                inputs = [*gradients.values(), *known, *message.carried.values()]
                node.derive("bins", Batch(t, np.arange(node.learner.rows)), inputs, solve, party_name(message.sender))
            await node.compute(node.learner.finish(tree, node.batch(t), right))

    async def client(self, node: Node[PassiveParty]) -> None:
        """Passive party: sums of ciphertexts, and its own splits."""
        for t in node.rounds():
            gradients, right = await node.recv("enc_gradients", round=t), None
            shown = list[list[Handle[Any] | None]]()
            await node.activated()
            for level in range(self.depth):
                sums = await node.compute(node.learner.histogram(level, gradients, right))
                await node.upload("server", Histogram(value=sums, round=t))
                chosen = await node.recv("splits", round=t)
                mine = await node.compute(node.learner.partition(t + self.secure_first, level, chosen))
                await node.upload("server", RightRows(value=mine, round=t))
                if level + 1 < self.depth:
                    right = await node.recv("right_rows", round=t)
                    shown.append([right.value])
            shown.append([mine])
            self._derive(node, t, shown)

    def _derive(self, node: Node[Any], t: int, shown: Sequence[Sequence[Handle[Any] | None]]) -> None:
        """Record the nodes of a tree that a party sees all rows in, from bits that it has, of each level.

        Those of the last level are without the splits of others: of all other parties, or of the server at the server.
        """
        rows, bits = node.learner.rows, [[handle for handle in level if handle is not None] for level in shown]
        node.derive("nodes", Batch(t, np.arange(rows)), [*chain(*bits)], partial(_nodes_of, bits, rows))

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def scheme(self) -> Paillier:
        """The scheme, with as many values in a ciphertext as are packed."""
        return self.encryption.model_copy(update={"packed": self.packed})

    @property
    def inner(self) -> int:
        """The nodes of a tree that may split."""
        return (1 << self.depth) - 1

    @property
    def growth(self) -> SplitRule:
        """What decides a split."""
        return SplitRule(self.ridge, self.least_gain, self.least_hessian)

    @property
    def most_rounds(self) -> int:
        """The rounds after which all trees are grown. A trace ends before them: it sees rounds that repeat."""
        return self.trees - self.secure_first

    def sampled(self, rows: int) -> int:
        """Return how many rows carry gradients."""
        return rows if self.goss is None else sum(self.goss.counts(rows))

    def batch_plan(self) -> BatchPlan:
        """Return batches of all rows."""
        return BatchPlan(make=whole_batches)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the parties."""
        clients = {client: PassiveParty(self, setting, client, seed) for client in setting.clients}
        return Learners(BoostingServer(self, setting, seed), clients)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the prediction from the bits of all parties; the server's own come first if it holds features."""
        server: BoostingServer = learners.server
        return prediction_of(server, server.routed, server.own_bits if server.width else None)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another loss, keys that do not fit, an outage that loses work, or no features."""
        super().check(context)
        if not isinstance(context.loss, Auto | CrossEntropy | BinaryCrossEntropy | MeanSquaredError | None):
            raise UnsuitableError(
                "loss", f"{context.loss.kind} has no second derivative here; allowed: auto, or leave loss out"
            )
        if not context.codec.towards(SERVER).lossless:
            raise UnsuitableError(
                "codec",
                f"clients of secureboost upload ciphertexts, which no codec changes, and {context.codec.kind} is for "
                "floating-point numbers; allowed: plain",
            )
        if self.packed > self.encryption.key // 64:
            most = self.encryption.key // 64
            raise ValueError(f"packed: {self.packed} does not fit into a ciphertext; allowed: 1 to {most}, key ÷ 64")
        if self.most_rounds < 1:
            raise ValueError("trees: 1 leaves no tree to grow together with secure_first; allowed: 2 or more")
        setting = context.setting
        if setting is None:
            return
        if self.secure_first and setting.data.active is None:
            raise ValueError("secure_first needs features at the server; allowed: partition.active: true")
        if lost := setting.crashing:
            raise ValueError(
                f"{party_name(lost[0])} would lose its part of a tree in a crash (interrupted: lost); allowed: "
                "interrupted: resumed"
            )

    def describe(self, setting: Setting) -> str:
        """Say what ciphertexts cost, and that nothing is encrypted."""
        rows, each = self.sampled(setting.data.rows), self.scheme.ciphertexts(2 * setting.data.outputs)
        return f"{rows * each:,} ciphertexts of gradients a tree; {in_the_clear(self.scheme)}"


def _nodes_of(shown: Sequence[Sequence[Handle[Tensor]]], rows: int) -> Tensor:
    """Return the nodes of all levels that each row is in, (rows, nodes), from bits that say which rows went right."""
    bits = [[unpacked_bits(handle.value.numpy(), rows) for handle in level] for level in shown]
    return torch.from_numpy(shown_nodes([np.any(level, axis=0) for level in bits]))
