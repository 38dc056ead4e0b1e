"""How a server step comes from embeddings and table to the one aggregate that it differentiates by, and back."""

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
from vflsim.learning.table import EmbeddingTable


@dataclass(slots=True)
class Used:
    """What a server step uses for one batch.

    ``joined`` is the aggregate, and ``leaves`` what the gradient is taken by: the fresh embeddings one by one, or the
    aggregate itself, where it is Σ c_m h_m; ``coefficients`` are then the fresh ones' c_m.
    """

    batch: Batch
    fresh: Sequence[Any]
    joined: Tensor
    leaves: list[Tensor]
    coefficients: Sequence[float] | None = None

    def spread(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """∂ℓ/∂h_m for each fresh embedding, from those of the leaves: one and the same tensor where c_m is the same."""
        if self.coefficients is None:
            return gradients
        (whole,) = gradients
        scaled = {coefficient: whole * coefficient for coefficient in dict.fromkeys(self.coefficients)}
        return [scaled[coefficient] for coefficient in self.coefficients]


@dataclass(frozen=True, slots=True)
class Joining:
    """Joins embeddings of clients of these ``widths``, always in client order.

    Where the aggregate is Σ c_m h_m, ∂ℓ/∂h_m = c_m ∂ℓ/∂H, and nobody needs the graph between the two.
    """

    aggregate: Aggregate
    widths: tuple[int, ...]

    def everybody(self, embeddings: Sequence[Handle[Tensor]]) -> Tensor:
        """The aggregate of all clients' embeddings."""
        coefficients = self.aggregate.coefficients(range(len(embeddings)))
        if coefficients is None:
            return self.aggregate.combine([handle.value for handle in embeddings], self.widths)
        return _sum(coefficients, None, embeddings)

    def used(self, batch: Batch, fresh: Sequence[Any], places: Sequence[int], table: EmbeddingTable | None) -> Used:
        """What a step uses for one batch: ``fresh`` messages of the clients at ``places``, the table for the others."""
        everybody = range(len(self.widths))
        coefficients = self.aggregate.coefficients(places if table is None else everybody)
        if coefficients is not None:
            rows = None if table is None else table.rows(batch.tensor(table.device), len(everybody))
            if rows is not None:
                for place, message in zip(places, fresh, strict=True):
                    rows[:, place] = message.value.value  # the client's answer for another batch may share rows
            joined = _sum(coefficients, rows, [message.value for message in fresh]).requires_grad_()
            own = coefficients if table is None else [coefficients[place] for place in places]
            return Used(batch, fresh, joined, [joined], own)
        leaves = [message.value.value.clone().requires_grad_() for message in fresh]
        values: list[Tensor | None] = [None] * len(everybody)
        if table is not None:
            values = [*table.read(batch.tensor(table.device))]
        for place, leaf in zip(places, leaves, strict=True):
            values[place] = leaf
        return Used(batch, fresh, self.aggregate.combine(values, self.widths), leaves)


def _sum(coefficients: Sequence[float], rows: Tensor | None, embeddings: Sequence[Handle[Tensor]]) -> Tensor:
    """Σ c_m h_m, of the table's ``rows`` (b, M, width) if there are any, else of ``embeddings``."""
    first = coefficients[0]
    if all(each == first for each in coefficients):
        return (total_of(embeddings) if rows is None else rows.sum(1)) * first
    if rows is None:
        rows = torch.stack([handle.value for handle in embeddings], 1)
    return torch.tensor(coefficients, dtype=rows.dtype, device=rows.device) @ rows
