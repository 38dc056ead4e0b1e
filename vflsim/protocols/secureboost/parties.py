"""The parties of SecureBoost. Their operations on ciphertexts take the times of the scheme's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any, Protocol

import numpy as np

from vflsim.codecs.encryption import Paillier, opened, sealed
from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.secureboost.trees import (
    Ints,
    LevelSplits,
    SplitRule,
    bin_codes,
    goes_right,
    histogram,
    packed_bits,
    quantile_edges,
    unpacked_bits,
)
from vflsim.setting import Setting
from vflsim.streams import SERVER
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
