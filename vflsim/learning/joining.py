"""The way of a server step from embeddings and table to the aggregate, and of its gradient back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflsim.learning.aggregates import Aggregate
from vflsim.learning.batches import Batch
from vflsim.learning.batching.joint import total_of
from vflsim.learning.operations import Handle
from vflsim.learning.party_model import PartyModel
from vflsim.learning.table import EmbeddingTable
from vflsim.privacy.blinding import BlindedSum
from vflsim.streams import SERVER


@dataclass(slots=True)
class Used:
    """The inputs of a server step for one batch.

    ``joined`` is the aggregate, and ``leaves`` the tensors to differentiate by: the fresh embeddings one by one, or the
    aggregate itself, where it is Σ c_m h_m; ``coefficients`` are then the fresh ones' c_m.
    """

    batch: Batch
    fresh: Sequence[Any]
    joined: Tensor
    leaves: list[Tensor]
    coefficients: Sequence[float] | None = None

    def spread(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return ∂ℓ/∂h_m for each fresh embedding, from those of the leaves: one tensor for all with the same c_m."""
        if self.coefficients is None:
            return gradients
        (whole,) = gradients
        scaled = {coefficient: whole * coefficient for coefficient in dict.fromkeys(self.coefficients)}
        return [scaled[coefficient] for coefficient in self.coefficients]


@dataclass(frozen=True, slots=True)
class Joining:
    """Joins embeddings of these ``widths``, always in party order.

    Where the aggregate is Σ c_m h_m, ∂ℓ/∂h_m = c_m ∂ℓ/∂H, and the graph between the two is not needed. ``trained`` is
    the model of an aggregate that has one. In training, ``blinded_sum`` decodes the sum of the clients' embeddings.
    """

    aggregate: Aggregate
    widths: tuple[int, ...]
    trained: PartyModel | None = None
    blinded_sum: BlindedSum | None = None

    def all_of(self, embeddings: Sequence[Handle[Tensor]]) -> Tensor:
        """Join the embeddings of all parties."""
        coefficients = self.aggregate.coefficients(range(len(embeddings)))
        if coefficients is None:
            return self.combined([handle.value for handle in embeddings])
        return _sum(coefficients, None, embeddings)

    def used(self, batch: Batch, fresh: Sequence[Any], places: Sequence[int], table: EmbeddingTable | None) -> Used:
        """Return the inputs for one batch: ``fresh`` messages of the parties at ``places``, the table otherwise."""
        parties = range(len(self.widths))
        coefficients = self.aggregate.coefficients(places if table is None else parties)
        if coefficients is not None:
            rows = None if table is None else table.rows(batch.tensor(table.device), len(parties))
            if rows is not None:
                for place, message in zip(places, fresh, strict=True):
                    rows[:, place] = message.value.value  # the client's answer for another batch may share rows
            if self.blinded_sum is None:
                joined = _sum(coefficients, rows, [message.value for message in fresh])
            else:
                joined = self._unblinded(self.blinded_sum, fresh) * coefficients[0]
            joined.requires_grad_()
            own = coefficients if table is None else [coefficients[place] for place in places]
            return Used(batch, fresh, joined, [joined], own)
        leaves = [message.value.value.clone().requires_grad_() for message in fresh]
        values: list[Tensor | None] = [None] * len(parties)
        if table is not None:
            values = [*table.read(batch.tensor(table.device))]
        for place, leaf in zip(places, leaves, strict=True):
            values[place] = leaf
        return Used(batch, fresh, self.combined(values), leaves)

    def _unblinded(self, group: BlindedSum, fresh: Sequence[Any]) -> Tensor:
        """Return the sum of the embeddings of all clients, and of the server's own, if it is among ``fresh``."""
        values = {message.sender: message.value.value for message in fresh}
        own = values.pop(SERVER, None)
        total = group.total(values)
        return total if own is None else own + total

    def combined(self, values: Sequence[Tensor | None]) -> Tensor:
        """Join the embeddings of all parties, None where one is missing; differentiable in each."""
        if self.trained is None:
            return self.aggregate.combine(values, self.widths)
        joined: Tensor = self.trained.module(values)
        return joined


def _sum(coefficients: Sequence[float], rows: Tensor | None, embeddings: Sequence[Handle[Tensor]]) -> Tensor:
    """Return Σ c_m h_m, of the table's ``rows`` (b, M, width) if given, else of ``embeddings``."""
    first = coefficients[0]
    if all(each == first for each in coefficients):
        return (total_of(embeddings) if rows is None else rows.sum(1)) * first
    if rows is None:
        rows = torch.stack([handle.value for handle in embeddings], 1)
    return torch.tensor(coefficients, dtype=rows.dtype, device=rows.device) @ rows
