"""The parties of SecureBoost. Their operations on ciphertexts take the times of the scheme's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any, Protocol

import numpy as np

from vflsim.codecs.encryption import Paillier
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, nothing, set_loss
from vflsim.learning.learners.inputs import in_client_order
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.staleness import Staleness
from vflsim.protocols.secureboost.trees import (
    Ints,
    LevelSplits,
    SplitRule,
    best_splits,
    bin_codes,
    goes_right,
    histogram,
    leaves_of,
    opened,
    packed_bits,
    quantile_edges,
    sealed,
    unpacked_bits,
)
from vflsim.setting import Setting
from vflsim.streams import SERVER, generator
from vflsim.timing.floats import Floats
from vflsim.vocabulary.on_demand import Tensor, dtype, torch


class BoostingKeys(Protocol):
    """What the parties need of the protocol's keys."""

    @property
    def goss(self) -> Any:
        """The key of this name."""

    @property
    def trees(self) -> int:
        """The key of this name."""

    @property
    def depth(self) -> int:
        """The key of this name."""

    @property
    def bins(self) -> int:
        """The key of this name."""

    @property
    def learning_rate(self) -> float:
        """The key of this name."""

    @property
    def ridge(self) -> float:
        """The key of this name."""

    @property
    def packed(self) -> int:
        """The key of this name."""

    @property
    def scheme(self) -> Paillier:
        """The scheme of ciphertexts."""

    @property
    def inner(self) -> int:
        """The nodes of a tree that may split."""

    @property
    def growth(self) -> SplitRule:
        """What decides a split."""

    def sampled(self, rows: int) -> int:
        """Return how many rows carry gradients."""


@dataclass(frozen=True, slots=True)
class Ciphertexts:
    """How values become ciphertexts. A row of values, such as 2c of a sample, fills whole ones; histograms are packed
    closely."""

    keys: BoostingKeys
    outputs: int

    @property
    def of_row(self) -> int:
        """The ciphertexts of all g and h of a row."""
        return self.keys.scheme.ciphertexts(2 * self.outputs)

    def rows(self, rows: int) -> tuple[int, int]:
        """Return the shape of the ciphertexts of so many rows: (rows, bytes)."""
        return rows, self.of_row * self.keys.scheme.ciphertext_bytes

    def bins(self, count: int) -> tuple[int, int, float]:
        """Return ciphertexts of ``count`` bins, those in each, and the seconds of packing them: shifts and sums."""
        each = max(1, self.keys.packed // (2 * self.outputs))
        whole = ceil(count / each) * self.of_row
        return whole, each, self.keys.scheme.seconds(multiplied=count - whole, added=count - whole) if each > 1 else 0.0


class BoostingParty(PartyLearner):
    """Has bins of its features, the node of every row, and its own splits of all trees."""

    def __init__(self, keys: BoostingKeys, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed))
        self.keys, self.rows, self.outputs = keys, setting.data.rows, setting.data.outputs
        holds = party != SERVER or setting.data.active is not None
        self.width = prod(setting.feature_shape_of(party)) if holds else 0
        self.ciphertexts = Ciphertexts(keys, self.outputs)

    @cached_property
    def edges(self) -> Floats:
        """The edges of bins, from the training rows."""
        return quantile_edges(self.table("train"), self.keys.bins)

    @cached_property
    def codes(self) -> Ints:
        """The bins of the training rows, (rows, width)."""
        return bin_codes(self.table("train"), self.edges)

    def table(self, split: Split) -> Floats:
        """Return the features of a split as a table (rows, width)."""
        if not self.width:
            return np.empty((len(self.labels(split)), 0))
        x = self.features(split)
        return x.reshape(len(x), -1).double().cpu().numpy()

    def remembered(self, name: str, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        """Return an array that the party keeps, made when it is first asked for."""
        if name not in self.kept:
            kind = torch.float64 if name in ("scores", "leaves", "values") else torch.int64
            self.kept[name] = torch.full(shape, fill, dtype=kind)
        return self.kept[name].numpy()

    def nodes_after(self, level: int, right: Any) -> Ints:
        """Return the node of every training row at ``level``, from whether rows went ``right`` at the level before."""
        nodes: Ints = self.remembered("nodes", (self.rows,))
        nodes[:] = 2 * nodes + right if level else 0
        return nodes

    def splits_of(self, tree: int, level: int) -> Ints:
        """Return the party's own splits of a level, feature and bin, (nodes, 2): -1 where others split."""
        every: Ints = self.remembered("splits", self.shape, -1)
        return every[tree, 2**level - 1 : 2 ** (level + 1) - 1]

    def directions(self, split: Split) -> Any:
        """Return whether each row of a split would go right at each of the party's own nodes, (rows, trees, nodes)."""
        codes, every = bin_codes(self.table(split), self.edges), self.remembered("splits", self.shape, -1)
        features, bins = every[..., 0], every[..., 1]
        if not self.width:
            return np.zeros((len(codes), *features.shape), bool)
        return (features >= 0) & (codes[:, np.maximum(features, 0)] > bins)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of all splits."""
        return self.keys.trees, self.keys.inner, 2

    def weights(self) -> dict[str, Tensor]:
        """Return the party's own splits."""
        self.remembered("splits", self.shape, -1)
        return {"splits": self.kept["splits"]}

    def outlines(self) -> dict[str, Tensor]:
        """Return ``weights`` without their values."""
        return {name: tensor.to("meta") for name, tensor in self.weights().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load what ``weights`` returned."""
        self.kept.update({name: tensor.clone() for name, tensor in weights.items()})


class PassiveParty(BoostingParty):
    """A client: it adds up ciphertexts, and partitions rows at its own splits."""

    def histogram(self, level: int, gradients: Any, right: Any) -> Operation[Handle[Tensor]]:
        """Add up the ciphertexts of each node, feature and bin; at lower levels of the smaller children alone."""
        nodes, cells = 2**level, 2**level * self.width * self.keys.bins
        whole, each, packing = self.ciphertexts.bins(cells)
        value, rows = gradients["ciphertexts"], gradients.tensors.get("rows")
        known = [value, *([] if rows is None else [rows]), *([] if right is None else [right.value])]
        width = each * self.ciphertexts.of_row * self.keys.scheme.ciphertext_bytes
        sums = self.promise(whole // self.ciphertexts.of_row, width // each, dtype=dtype("uint8"))
        many = value.shape[0] * self.width if level == 0 else value.shape[0] * self.width / 2 + cells / 2
        seconds = packing + self.keys.scheme.seconds(added=many * self.ciphertexts.of_row)

        def run() -> None:
            went = 0 if right is None else unpacked_bits(right.value.value.numpy(), self.rows)
            placed = self.nodes_after(level, went)
            some = slice(None) if rows is None else rows.value.numpy()
            clear = opened(value.value.numpy(), 2 * self.outputs)
            cells_of = histogram(self.codes[some], placed[some], clear, nodes, self.keys.bins)
            flat = np.zeros((sums.shape[0] * each, 2 * self.outputs))
            flat[:cells] = cells_of.reshape(cells, -1)
            sums.set(torch.from_numpy(sealed(flat.reshape(sums.shape[0], -1), sums.shape[1])))

        return self.operation("histogram", run, sums, inputs=known, rows=self.rows, seconds=seconds)

    def partition(self, tree: int, level: int, chosen: Any) -> Operation[Handle[Tensor]]:
        """Note the splits that are this party's, and say which rows go right at them, as bits.

        At the last level it is the client's step, which counts as an update.
        """
        bits, value = self.promise(ceil(self.rows / 8), dtype=dtype("uint8")), chosen.value

        def run() -> None:
            mine = self.splits_of(tree, level)
            mine[:] = value.value.numpy()
            right = goes_right(self.codes, self.remembered("nodes", (self.rows,)), LevelSplits(mine[:, 0], mine[:, 1]))
            bits.set(torch.from_numpy(packed_bits(right)))

        last = level + 1 == self.keys.depth
        return self.operation(
            "client_step" if last else "partition", run, bits, inputs=[value], rows=self.rows,
            cost=lambda: float(self.rows), counts="update" if last else None,
        )  # fmt: skip

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        """Say for each row of a split where it would go at each of the party's nodes, as bits, (rows, bytes)."""
        rows, nodes = len(self.features(split)), self.keys.trees * self.keys.inner
        bits = self.promise(rows, ceil(nodes / 8), dtype=dtype("uint8"))
        return self.operation(
            "evaluate",
            lambda: bits.set(torch.from_numpy(packed_bits(self.directions(split).reshape(rows, nodes)))),
            bits, rows=rows, cost=lambda: float(rows * nodes),
        )  # fmt: skip


class BoostingServer(BoostingParty):
    """The server: it has the labels and the private key, and finds the splits."""

    def __init__(self, keys: BoostingKeys, setting: Setting, seed: int) -> None:
        super().__init__(keys, setting, SERVER, seed)
        self.widths = {client: prod(setting.feature_shape_of(client)) for client in setting.clients}
        self.staleness, self.seed = Staleness(setting.clients, self.rows), seed

    # --- gradients ----------------------------------------------------------------------------------------------

    def encrypt(self, tree: int) -> Operation[dict[str, Handle[Tensor]]]:
        """Encrypt g and h of all rows, or of those that GOSS chooses, with their numbers."""
        many = self.keys.sampled(self.rows)
        result = {"ciphertexts": self.promise(*self.ciphertexts.rows(many), dtype=dtype("uint8"))}
        if self.keys.goss is not None:
            result["rows"] = self.promise(many, dtype=dtype("int64"))

        def run() -> None:
            some, values = self._gradients(tree)
            if "rows" in result:
                result["rows"].set(torch.from_numpy(some))
            result["ciphertexts"].set(torch.from_numpy(sealed(values[some], result["ciphertexts"].shape[1])))

        seconds = self.keys.scheme.seconds(encrypted=many * self.ciphertexts.of_row)
        return self.operation("encrypt_gradients", run, result, rows=self.rows, seconds=seconds)

    def first_tree(self) -> Operation[None]:
        """Grow a tree on the party's own features (completely secure mode)."""

        def run() -> None:
            some, values = self._gradients(0)
            for level in range(self.keys.depth):
                mine = histogram(self.codes[some], self._nodes[some], values[some], 2**level, self.keys.bins)
                self._split(0, level, mine, [])
                self.nodes_after(level + 1, self._right(0, level))
            self._finish(0)

        flops = float(self.keys.depth * self.rows * self.width * 2 * self.outputs)
        return self.operation("first_tree", run, None, rows=self.rows, cost=lambda: flops)

    def _gradients(self, tree: int) -> tuple[Ints, Floats]:
        """Return the chosen rows and g and h of all (n, 2c), after the trees so far; every row is at the root."""
        values: Floats = self.remembered("values", (self.rows, 2 * self.outputs))
        values[:] = _slopes(self._scores, self.labels("train"), self.held.task.name if self.held.task else "")
        self.nodes_after(0, 0)
        every = np.arange(self.rows)
        if self.keys.goss is None:
            return every, values
        top, other = self.keys.goss.counts(self.rows)
        order = np.argsort(-np.abs(values[:, : self.outputs]).sum(1), kind="stable")
        drawn = generator(self.seed, SERVER, f"secureboost/goss/{tree}").permutation(self.rows - top)[:other]
        rest = order[top:][drawn]
        factors = np.zeros(self.rows)
        factors[order[:top]], factors[rest] = 1.0, (self.rows - top) / max(1, other)
        values *= factors[:, None]
        return np.sort(np.concatenate([order[:top], rest])), values

    # --- splits ---------------------------------------------------------------------------------------------------

    def decrypt(self, level: int) -> Operation[None]:
        """Decrypt the histograms of all clients: the time that it takes."""
        cells = [2**level * width * self.keys.bins for width in self.widths.values()]
        seconds = self.keys.scheme.seconds(decrypted=sum(self.ciphertexts.bins(count)[0] for count in cells))
        return self.operation("decrypt", nothing, None, rows=self.rows, seconds=seconds)

    def find_splits(self, tree: int, level: int, received: Sequence[Any]) -> Operation[dict[int, Handle[Tensor]]]:
        """Find the best split of each node of a level; tell each client its own, (nodes, 2)."""
        ordered = in_client_order(received)
        result = {message.sender: self.promise(2**level, 2, dtype=dtype("int64")) for message in ordered}

        def run() -> None:
            sums = [histogram(self.codes, self._nodes, self._values, 2**level, self.keys.bins)] if self.width else []
            for message in ordered:
                cells = 2**level * self.widths[message.sender] * self.keys.bins
                each = self.ciphertexts.bins(cells)[1]
                clear = opened(message.value.value.numpy(), 2 * self.outputs * each).reshape(-1, 2 * self.outputs)
                sums.append(clear[:cells].reshape(2**level, -1, self.keys.bins, 2 * self.outputs))
            told = self._split(tree, level, np.concatenate(sums, 1), [message.sender for message in ordered])
            for client, handle in result.items():
                handle.set(torch.from_numpy(told[client]))

        flops = 12.0 * 2**level * (self.width + sum(self.widths.values())) * self.keys.bins * self.outputs
        inputs = [message.value for message in ordered]
        return self.operation("find_splits", run, result, inputs=inputs, rows=self.rows, cost=lambda: flops)

    def _split(self, tree: int, level: int, sums: Floats, clients: Sequence[int]) -> Mapping[int, Any]:
        """Note whose each split is; return each client's own. Features are those of the server, then of the clients."""
        found = best_splits(sums, self.keys.growth)
        owners: Ints = self.remembered("owners", self.shape[:2], -1)
        here = owners[tree, 2**level - 1 : 2 ** (level + 1) - 1]
        first, told = 0, {}
        for party, width in ((SERVER, self.width), *((client, self.widths[client]) for client in clients)):
            its = (found.features >= first) & (found.features < first + width)
            here[its] = party
            told[party] = np.where(its[:, None], np.stack([found.features - first, found.bins], 1), -1)
            first += width
        self.splits_of(tree, level)[:] = told[SERVER]
        return told

    def assign(self, tree: int, level: int, received: Sequence[Any]) -> Operation[Handle[Tensor]]:
        """Join whether rows go right at the splits of all parties, as bits for all clients."""
        bits = self.promise(ceil(self.rows / 8), dtype=dtype("uint8"))

        def run() -> None:
            right = self._joined(tree, level, received)
            self.nodes_after(level + 1, right)
            bits.set(torch.from_numpy(packed_bits(right)))

        inputs = [message.value for message in received]
        return self.operation("assign", run, bits, inputs=inputs, rows=self.rows, cost=lambda: float(self.rows))

    def finish(self, tree: int, batch: Batch, received: Sequence[Any]) -> Operation[Handle[float]]:
        """Weigh the leaves, and add the tree to the scores. The loss is that before the tree."""
        loss: Handle[float] = Handle()
        senders = sorted(message.sender for message in received)

        def run() -> None:
            set_loss(loss, self.loss(torch.from_numpy(self._scores.copy()).to(self.dtype), self._in_order))
            self.nodes_after(self.keys.depth, self._joined(tree, self.keys.depth - 1, received))
            self._finish(tree)

        return self.operation(
            "server_step", run, loss, inputs=[message.value for message in received], rows=self.rows,
            cost=lambda: float(self.rows * 2 * self.outputs), counts="round",
            commit=lambda: self.staleness.complete([(batch, senders)] if senders else [], loss),
        )  # fmt: skip

    def _joined(self, tree: int, level: int, received: Sequence[Any]) -> Any:
        right = self._right(tree, level)
        for message in received:
            right = right | unpacked_bits(message.value.value.numpy(), self.rows)
        return right

    def _right(self, tree: int, level: int) -> Any:
        mine = self.splits_of(tree, level)
        if not self.width:
            return np.zeros(self.rows, bool)
        return goes_right(self.codes, self._nodes, LevelSplits(mine[:, 0], mine[:, 1]))

    def _finish(self, tree: int) -> None:
        count = 2**self.keys.depth
        weights = leaves_of(self._nodes, self._values, count, self.keys.ridge, self.keys.learning_rate)
        self.remembered("leaves", (self.keys.trees, count, self.outputs))[tree] = weights
        self._scores[:] += weights[self._nodes]

    # --- evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, split: Split, answers: Sequence[Any]) -> Operation[Handle[dict[str, float]]]:
        """Route the rows of a split through all trees, and score the sums of their leaves."""
        result: Handle[dict[str, float]] = Handle()
        inputs, rows = [answer.value for answer in answers], len(self.labels(split))

        def run() -> None:
            bits = [self.own_bits(split), *(answer.value.value for answer in answers)]
            result.set(self.scores(self.routed(bits), split))

        return self.operation("evaluate", run, result, inputs=inputs, rows=rows, cost=lambda: float(rows))

    def own_bits(self, split: Split) -> Tensor:
        """Return where each row of a split would go at the server's own nodes, as bits, (rows, bytes)."""
        right = self.directions(split)
        return torch.from_numpy(packed_bits(right.reshape(len(right), -1)))

    def routed(self, bits: Sequence[Tensor]) -> Tensor:
        """Return the predictions for rows, (rows, outputs), from the bits of all parties: (rows, bytes) each."""
        trees, inner = self.shape[:2]
        right = np.any([unpacked_bits(each.numpy(), trees * inner) for each in bits], axis=0)
        rows, right = len(right), right.reshape(len(right), trees, inner)
        leaves = self.remembered("leaves", (trees, inner + 1, self.outputs))
        nodes, every = np.zeros((rows, trees), np.int64), np.arange(trees)
        for level in range(self.keys.depth):
            nodes = 2 * nodes + right[np.arange(rows)[:, None], every, 2**level - 1 + nodes]
        return torch.from_numpy(leaves[every, nodes].sum(1)).to(self.dtype)

    def weights(self) -> dict[str, Tensor]:
        """Return the splits, whose each is, and the leaves."""
        self.remembered("owners", self.shape[:2], -1)
        self.remembered("leaves", (self.keys.trees, self.keys.inner + 1, self.outputs))
        return super().weights() | {name: self.kept[name] for name in ("owners", "leaves")}

    # --- what it keeps --------------------------------------------------------------------------------------------

    @property
    def _nodes(self) -> Ints:
        nodes: Ints = self.remembered("nodes", (self.rows,))
        return nodes

    @property
    def _values(self) -> Floats:
        values: Floats = self.remembered("values", (self.rows, 2 * self.outputs))
        return values

    @property
    def _scores(self) -> Floats:
        scores: Floats = self.remembered("scores", (self.rows, self.outputs))
        return scores

    @property
    def _in_order(self) -> Batch:
        return Batch(0, np.arange(self.rows))


def _slopes(scores: Floats, labels: Tensor, task: str) -> Floats:
    """Return g and h of every row and output, (n, 2c): of the usual loss of the task, h of its diagonal alone."""
    target = labels.cpu().numpy()
    if task == "multiclass":
        exps = np.exp(scores - scores.max(1, keepdims=True))
        p = exps / exps.sum(1, keepdims=True)
        y = np.eye(scores.shape[1])[target.astype(np.int64).ravel()]
    elif task == "binary":
        p, y = 1 / (1 + np.exp(-scores)), target.astype(np.float64).reshape(scores.shape)
    else:
        y = target.astype(np.float64).reshape(scores.shape)
        return np.concatenate([2 * (scores - y), np.full_like(scores, 2.0)], 1)
    return np.concatenate([p - y, np.maximum(p * (1 - p), 1e-16)], 1)
