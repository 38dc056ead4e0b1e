"""Secrets and their shares: a client's data, once, and its model, every round (FedVS Eq. 2, 4).

A share evaluates a polynomial with coefficients from the secret and from masks. In a simulation it is computed at its
first use; unused shares are never computed. In a live run it is a tensor, which its owner has computed and sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.coding.field import Words
from vflsim.coding.limbs import product
from vflsim.learning.learners.inputs import KeptValue, Plain, RecipeReader, RecipeWriter
from vflsim.protocols.fedvs.plan import MOST_KEPT, CodingPlan, SegmentedBatch
from vflsim.streams import generator
from vflsim.vocabulary.on_demand import Tensor, torch

Holders = tuple[int, ...]
"""Places among the shares."""
Sources: TypeAlias = Callable[[str], Words]
"""Gives the random words of a client's masks for a purpose."""


def seeded_words(seed: int, client: int) -> Sources:
    """Return words that depend on seed, client and purpose alone, so that repeated shares are equal."""
    return lambda purpose: generator(seed, client, purpose).bit_generator


class SystemWords:
    """Words of the operating system's generator, which nobody can derive from a seed. Each is drawn once."""

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` words."""
        return np.frombuffer(os.urandom(8 * size), np.uint64)


class DataSecret:
    """X̄_n: a client's quantised features, padded with zeros to K segments, and their T masks.

    ``quantised`` is (rows, columns), integers. Masks are drawn once, so that repeated shares are equal.
    """

    def __init__(self, plan: CodingPlan, client: int, quantised: Tensor, words: Sources) -> None:
        self.plan, self.client = plan, client
        padding = plan.segments * plan.segment_rows - len(quantised)
        self.quantised = torch.cat([quantised, quantised.new_zeros(padding, quantised.shape[1])])
        self._words = words
        self._masks: Tensor | None = None

    def rows(self, batch: SegmentedBatch) -> Tensor:
        """Return the K|B| rows of a batch, (K|B|, columns), signed."""
        return self.quantised[torch.from_numpy(np.array(batch.rows))]

    def has(self, masks: Tensor) -> None:
        """Take up masks that another process has drawn."""
        self._masks = masks

    def masks(self) -> Tensor:
        """Return the masks, (T, rows of a segment, columns)."""
        if self._masks is None:
            plan = self.plan
            shape = plan.masks, plan.segment_rows, self.quantised.shape[1]
            self._masks = plan.quantiser.field.uniform(shape, self._words("data_masks"))
        return self._masks


class ModelSecret(KeptValue):
    """W̄_n: a client's quantised weights of one round, (columns, h), and their T masks.

    Repeated shares of a round are equal: seeded masks are drawn anew, and others are kept.
    """

    recipe = "model_secret"

    def __init__(self, plan: CodingPlan, client: int, round_: int, quantised: Tensor, words: Sources) -> None:
        self.plan, self.client, self.round = plan, client, round_
        self.quantised = quantised
        self._words = words
        self._masks: Tensor | None = None

    def written(self, writer: RecipeWriter) -> Plain:
        """Write client, round and the quantised weights."""
        return [self.client, self.round, writer.tensor(self.quantised)]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> ModelSecret:
        """Read the secret of a client and round."""
        client, round_, quantised = plain
        learner = reader.learner(client)
        return cls(learner.plan, client, round_, reader.tensor(quantised), learner.words)

    @cached_property
    def shares(self) -> Tensor:
        """The shares of all clients as on the wire, (clients, columns, h)."""
        return model_shares((self,))

    def has(self, masks: Tensor) -> None:
        """Take up masks that another process has drawn."""
        self._masks = masks

    def masks(self) -> Tensor:
        """Return the masks, (T, columns, h)."""
        if self._masks is not None:
            return self._masks
        words = self._words(f"model_masks/{self.round}")
        masks = self.plan.quantiser.field.uniform((self.plan.masks, *self.quantised.shape), words)
        if isinstance(words, SystemWords):
            self._masks = masks
        return masks


def data_shares(secrets: Sequence[DataSecret], positions: NDArray[np.int64], holders: Holders | None = None) -> Tensor:
    """Compute rows of shares of data, side by side, as on the wire, (holders, positions, columns) (Eq. 2)."""
    plan, places = secrets[0].plan, torch.from_numpy(np.array(positions))
    segments = [each.quantised.reshape(plan.segments, plan.segment_rows, -1)[:, places] for each in secrets]
    embedded = plan.quantiser.field.embed(torch.cat(segments, -1).to(torch.int64))
    masks = torch.cat([each.masks()[:, places] for each in secrets], -1)
    return plan.code.encode(torch.cat([embedded, masks]), holders).to(plan.quantiser.field.wire_dtype)


def model_shares(secrets: Sequence[ModelSecret], holders: Holders | None = None) -> Tensor:
    """Compute shares of models, one above the other, as on the wire, (holders, columns, h) (Eq. 4)."""
    plan, masks = secrets[0].plan, torch.cat([each.masks() for each in secrets], 1)
    weights = plan.quantiser.field.embed(torch.cat([each.quantised for each in secrets]))
    return plan.code.encode_repeated(weights, masks, holders).to(plan.quantiser.field.wire_dtype)


class KeptShares:
    """Everybody's shares of everybody's data in a simulation, as on the wire: computed once, unless they are many."""

    _kept: Tensor | None = None

    def rows(self, secrets: Sequence[DataSecret], positions: NDArray[np.int64], holders: Holders) -> Tensor:
        """Return what ``data_shares`` computes."""
        plan = secrets[0].plan
        if len(secrets) < len(plan.clients) or len(secrets) * plan.storage > MOST_KEPT:
            return data_shares(secrets, positions, holders)
        if self._kept is None:
            self._kept = data_shares(secrets, np.arange(plan.segment_rows)).flatten(0, 1)
        at = np.add.outer(np.array(holders) * plan.segment_rows, positions)
        return self._kept.index_select(0, torch.from_numpy(at.ravel())).view(*at.shape, -1)


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

    @property
    def at_once(self) -> bool:
        """Whether the owner holds this share itself: it keeps its own, and no copy of those that it sends."""
        return self.place == self.secret.plan.places[self.secret.client]

    def on_wire(self) -> Tensor:
        """Return the whole share, (rows of a segment, columns)."""
        return self.rows_at(np.arange(self.secret.plan.segment_rows))

    def rows_at(self, places: NDArray[np.int64]) -> Tensor:
        """Return the share's rows at some places, (places, columns), as on the wire."""
        return data_shares((self.secret,), places, (self.place,))[0]


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

    def on_wire(self) -> Tensor:
        """Return the share, (columns, h); those of all holders are computed together."""
        return self.secret.shares[self.place].clone()


@dataclass(frozen=True, slots=True)
class CodedSum(KeptValue):
    """H̃_{n'}: one client's sum over ``summands``, pairs of data and model share (Eq. 5).

    In a live run shares are tensors, as on the wire.
    """

    recipe: ClassVar[str] = "coded_sum"
    plan: CodingPlan
    batch: SegmentedBatch
    summands: tuple[tuple[HeldData | Tensor, HeldModel | Tensor], ...]

    def written(self, writer: RecipeWriter) -> Plain:
        """Write the batch, and every summand."""
        return [
            writer.batch(self.batch),
            [[data.written(writer), model.written(writer)] for data, model in self._secrets()],
        ]

    @classmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> CodedSum:
        """Read a sum."""
        batch, pairs = plain
        summands = tuple((HeldData.read(reader, data), HeldModel.read(reader, model)) for data, model in pairs)
        return cls(summands[0][0].secret.plan, reader.batch(batch), summands)

    def on_wire(self) -> Tensor:
        """Return the sum, (|B|, h)."""
        return self.rows_at(np.arange(len(self.batch.positions)))

    def rows_at(self, places: NDArray[np.int64]) -> Tensor:
        """Compute rows of Σ_n X̃_n[B] W̃_n over F_p at some places of the batch, (places, h), as on the wire (Eq. 5)."""
        field, at = self.plan.quantiser.field, self.batch.positions[places]
        data = [x[torch.from_numpy(at)] if isinstance(x, Tensor) else x.rows_at(at) for x, _ in self.summands]
        weights = [share if isinstance(share, Tensor) else share.on_wire() for _, share in self.summands]
        return product(torch.cat(data, 1), torch.cat(weights), field.p).to(field.wire_dtype)

    def all_of(self, holders: Holders, kept: KeptShares) -> Tensor:
        """Compute the sums of some clients at once, (holders, |B|, h), where the secrets behind shares are known."""
        pairs = self._secrets()
        data = kept.rows([share.secret for share, _ in pairs], self.batch.positions, holders)
        return product(data, model_shares([share.secret for _, share in pairs], holders), self.plan.quantiser.field.p)

    def decoded(self) -> Tensor:
        """Compute what any R sums decode to in the clear: Σ_n X̄_n W̄_n of the batch, (K|B|, h), signed.

        Exact: in float64 if every partial sum of integers stays below 2^53, else in the field.
        """
        pairs = self._secrets()
        data = torch.cat([share.secret.rows(self.batch) for share, _ in pairs], dim=1)
        weights = torch.cat([share.secret.quantised for _, share in pairs])
        if self.plan.worst < 2**53:
            return (data.double() @ weights.double()).to(torch.int64)
        field = self.plan.quantiser.field
        return field.signed(field.matmul(field.embed(data.to(torch.int64)), field.embed(weights)))

    def _secrets(self) -> list[tuple[HeldData, HeldModel]]:
        """Return the summands of a simulation, where the secrets behind shares are known."""
        pairs: list[Any] = []
        for data, model in self.summands:
            known = isinstance(data, HeldData) and isinstance(model, HeldModel)
            assert known, "a live run knows no secrets behind others' shares"
            pairs.append((data, model))
        return pairs
