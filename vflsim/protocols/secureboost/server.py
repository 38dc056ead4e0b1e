"""The server of SecureBoost: it encrypts gradients, decrypts histograms, and chooses the splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from vflsim.codecs.encryption import opened, sealed
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, nothing, set_loss
from vflsim.learning.learners.inputs import in_client_order
from vflsim.learning.learners.staleness import Staleness
from vflsim.protocols.secureboost.parties import BoostingKeys, BoostingParty
from vflsim.protocols.secureboost.trees import (
    Ints,
    LevelSplits,
    best_splits,
    goes_right,
    histogram,
    leaves_of,
    packed_bits,
    unpacked_bits,
)
from vflsim.protocols.solving import closest
from vflsim.setting import Setting
from vflsim.streams import SERVER, generator
from vflsim.timing.floats import Floats
from vflsim.vocabulary.on_demand import Tensor, dtype, torch


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
                sums.append(self._decrypted(level, message))
            told = self._split(tree, level, np.concatenate(sums, 1), [message.sender for message in ordered])
            for client, handle in result.items():
                handle.set(torch.from_numpy(told[client]))

        flops = 12.0 * 2**level * (self.width + sum(self.widths.values())) * self.keys.bins * self.outputs
        inputs = [message.value for message in ordered]
        return self.operation("find_splits", run, result, inputs=inputs, rows=self.rows, cost=lambda: flops)

    def _decrypted(self, level: int, message: Any) -> Floats:
        """Return a client's histograms of a level, (nodes, width, bins, 2c)."""
        cells = 2**level * self.widths[message.sender] * self.keys.bins
        each = self.ciphertexts.bins(cells)[1]
        clear = opened(message.value.value.numpy(), 2 * self.outputs * each).reshape(-1, 2 * self.outputs)
        return clear[:cells].reshape(2**level, -1, self.keys.bins, 2 * self.outputs)

    def solved(self, message: Any, gradients: Mapping[str, Handle[Tensor]], shown: Sequence[Handle[Tensor]]) -> Tensor:
        """Return what the server can tell of a client's bins from the histograms of the last level, (rows, width).

        It knows g and h of all rows, and their nodes: sums of g and of h over a bin's rows are equations. Rows' bins
        come to the closest numbers to those of the trees before that solve them.
        """
        values, nodes = np.zeros((self.rows, 2 * self.outputs)), np.zeros(self.rows, np.int64)
        some = gradients["rows"].value.numpy() if "rows" in gradients else slice(None)
        values[some] = opened(gradients["ciphertexts"].value.numpy(), 2 * self.outputs)
        for bits in shown:
            nodes = 2 * nodes + unpacked_bits(bits.value.numpy(), self.rows)
        by_node = np.tensordot(self._decrypted(len(shown), message), np.arange(self.keys.bins), ([2], [0]))
        blank = torch.zeros(self.rows, self.widths[message.sender], dtype=torch.float64)
        guess: Tensor = self.kept.setdefault(f"bins/{message.sender}", blank)
        for node in np.unique(nodes):
            rows = torch.from_numpy(np.flatnonzero(nodes == node))
            weights = torch.from_numpy(values)[rows].T
            guess[rows] = closest(guess[rows], weights, torch.from_numpy(by_node[node].T))
        return guess.clone()

    def _split(self, tree: int, level: int, sums: Floats, clients: Sequence[int]) -> Mapping[int, Any]:
        """Note whose each split is; return each client's own. Features are those of the server, then of the clients."""
        splits = best_splits(sums, self.keys.growth)
        owners: Ints = self.remembered("owners", self.shape[:2], -1)
        here = owners[tree, 2**level - 1 : 2 ** (level + 1) - 1]
        first, told = 0, {}
        for party, width in ((SERVER, self.width), *((client, self.widths[client]) for client in clients)):
            its = (splits.features >= first) & (splits.features < first + width)
            here[its] = party
            told[party] = np.where(its[:, None], np.stack([splits.features - first, splits.bins], 1), -1)
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
