"""Secrets and their shares: a client's data, once, and its model, every round (FedVS Eq. 2, 4).

A share evaluates a polynomial with coefficients from the secret and from seeded masks. It is computed at its first
use; unused shares are never computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflsim.learning.learners.lazy_values import KeptValue, Plain, RecipeReader, RecipeWriter
from vflsim.protocols.fedvs.learning.plan import CodingPlan
from vflsim.protocols.fedvs.learning.segments import SegmentedBatch
from vflsim.streams import generator

Holders = tuple[int, ...]
"""Places among the shares."""


class DataSecret:
    """X̄_n: a client's quantised features, padded with zeros to K segments, and their T masks.

    ``quantised`` is (rows, columns), integers. Masks depend on (seed, client) alone, so that repeated shares are equal.
    """

    def __init__(self, plan: CodingPlan, client: int, quantised: Tensor) -> None:
        self.plan, self.client = plan, client
        padding = plan.segments * plan.segment_rows - len(quantised)
        self.quantised = torch.cat([quantised, quantised.new_zeros(padding, quantised.shape[1])])
        self._masks: Tensor | None = None
        self._latest: tuple[SegmentedBatch, Holders, Tensor] | None = None

    def rows(self, batch: SegmentedBatch) -> Tensor:
        """Return the K|B| rows of a batch, (K|B|, columns), signed."""
        return self.quantised[torch.from_numpy(np.array(batch.rows))]

    def shares(self, batch: SegmentedBatch, holders: Holders) -> Tensor:
        """Return the |B| rows of a batch of the shares of ``holders``, (holders, |B|, columns) (Eq. 2)."""
        if self._latest is None or self._latest[:2] != (batch, holders):
            self._latest = batch, holders, self.shares_at(batch.positions, holders)
        return self._latest[2]

    def shares_at(self, positions: NDArray[np.int64], holders: Holders) -> Tensor:
        """Return the rows at some places of the shares of ``holders``, (holders, places, columns)."""
        plan, places = self.plan, torch.from_numpy(np.array(positions))
        segments = self.quantised.reshape(plan.segments, plan.segment_rows, -1)[:, places]
        secrets = torch.cat([plan.quantiser.field.embed(segments.to(torch.int64)), self._mask_rows()[:, places]])
        return plan.code.encode(secrets, holders)

    def _mask_rows(self) -> Tensor:
        if self._masks is None:
            plan = self.plan
            bits = generator(plan.seed, self.client, "data_masks").bit_generator
            shape = plan.masks, plan.segment_rows, self.quantised.shape[1]
            self._masks = plan.quantiser.field.uniform(shape, bits)
        return self._masks


class ModelSecret(KeptValue):
    """W̄_n: a client's quantised weights of one round, (columns, h), and their T masks.

    Masks depend on (seed, client, round) alone, so that repeated shares of a round are equal.
    """

    recipe = "model_secret"

    def __init__(self, plan: CodingPlan, client: int, round_: int, quantised: Tensor) -> None:
        self.plan, self.client, self.round = plan, client, round_
        self.quantised = quantised
        self._latest: tuple[Holders, Tensor] | None = None

    def written(self, writer: RecipeWriter) -> Plain:
        """Write client, round and the quantised weights."""
        return [self.client, self.round, writer.tensor(self.quantised)]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> ModelSecret:
        """Read the secret of a client and round."""
        client, round_, quantised = plain
        return cls(reader.learner(client).plan, client, round_, reader.tensor(quantised))

    def shares(self, holders: Holders) -> Tensor:
        """Return the shares of ``holders``, (holders, columns, h) (Eq. 4)."""
        if self._latest is None or self._latest[0] != holders:
            plan, field = self.plan, self.plan.quantiser.field
            bits = generator(plan.seed, self.client, f"model_masks/{self.round}").bit_generator
            masks = field.uniform((plan.masks, *self.quantised.shape), bits)
            self._latest = holders, plan.code.encode_repeated(field.embed(self.quantised), masks, holders)
        return self._latest[1]


@dataclass(frozen=True, slots=True)
class HeldData(KeptValue):
    """X̃_{n,n'}: the share of a client's data that the client at ``place`` holds."""

    recipe: ClassVar[str] = "held_data"
    secret: DataSecret
    place: int

    def written(self, writer: RecipeWriter) -> Plain:
        """Write the owner of the data, and the place."""
        return [self.secret.client, self.place]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> HeldData:
        """Read the share of a client's data."""
        client, place = plain
        return cls(reader.learner(client).data_secret, place)

    def rows_at(self, places: NDArray[np.int64]) -> Tensor:
        """Return the share's rows at some places, (places, columns), as on the wire."""
        return self.secret.shares_at(places, (self.place,))[0].to(self.secret.plan.quantiser.field.wire_dtype)

    def rows(self, batch: SegmentedBatch, among: Holders | None = None) -> Tensor:
        """Return the |B| rows of a batch, (|B|, columns); ``among`` lists all needed holders, computed together."""
        among = among or (self.place,)
        return self.secret.shares(batch, among)[among.index(self.place)]


@dataclass(frozen=True, slots=True)
class HeldModel(KeptValue):
    """W̃_{n,n'}: the share of a client's weights that the client at ``place`` holds."""

    recipe: ClassVar[str] = "held_model"
    secret: ModelSecret
    place: int

    def written(self, writer: RecipeWriter) -> Plain:
        """Write the secret, which several shares have in common, and the place."""
        return [writer.once(self.secret), self.place]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> HeldModel:
        """Read the share of a secret."""
        secret, place = plain
        return cls(reader.shared(ModelSecret, secret), place)

    def tensor(self, among: Holders | None = None) -> Tensor:
        """Return the share, (columns, h); ``among`` lists all needed holders, computed together."""
        among = among or (self.place,)
        return self.secret.shares(among)[among.index(self.place)]


@dataclass(frozen=True, slots=True)
class CodedSum(KeptValue):
    """H̃_{n'}: one client's sum over ``summands``, pairs of data and model share (Eq. 5)."""

    recipe: ClassVar[str] = "coded_sum"
    plan: CodingPlan
    batch: SegmentedBatch
    summands: tuple[tuple[HeldData, HeldModel], ...]

    def written(self, writer: RecipeWriter) -> Plain:
        """Write the batch, and every summand."""
        return [
            writer.batch(self.batch),
            [[data.written(writer), model.written(writer)] for data, model in self.summands],
        ]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> CodedSum:
        """Read a sum."""
        batch, pairs = plain
        summands = tuple((HeldData.read(reader, data), HeldModel.read(reader, model)) for data, model in pairs)
        return cls(summands[0][0].secret.plan, reader.batch(batch), summands)

    def evaluate(self, among: Holders | None = None) -> Tensor:
        """Compute Σ_n X̃_n[B] W̃_n over F_p, (|B|, h); ``among`` lists the places of all needed answers."""
        data = torch.cat([share.rows(self.batch, among) for share, _ in self.summands], dim=1)
        weights = torch.cat([share.tensor(among) for _, share in self.summands])
        return self.plan.quantiser.field.matmul(data, weights)

    def rows_at(self, places: NDArray[np.int64]) -> Tensor:
        """Return the sum's rows at some places of the batch, (places, h), as on the wire."""
        field, positions = self.plan.quantiser.field, self.batch.positions[places]
        data = torch.cat([share.secret.shares_at(positions, (share.place,))[0] for share, _ in self.summands], dim=1)
        weights = torch.cat([share.tensor() for _, share in self.summands])
        return field.matmul(data, weights).to(field.wire_dtype)

    def decoded(self) -> Tensor:
        """Compute what any R sums decode to in the clear: Σ_n X̄_n W̄_n of the batch, (K|B|, h), signed.

        Exact: in float64 if every partial sum of integers stays below 2^53, else in the field.
        """
        data = torch.cat([share.secret.rows(self.batch) for share, _ in self.summands], dim=1)
        weights = torch.cat([share.secret.quantised for _, share in self.summands])
        if self.plan.worst < 2**53:
            return (data.double() @ weights.double()).to(torch.int64)
        field = self.plan.quantiser.field
        return field.signed(field.matmul(field.embed(data.to(torch.int64)), field.embed(weights)))
