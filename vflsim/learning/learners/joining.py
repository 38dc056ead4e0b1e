"""Joins embeddings and table rows to the aggregate of a server step, and passes its gradient back to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.learning.learners.joint import total_of
from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.learners.summed_table import SummedTable
from vflsim.learning.models.aggregates import Aggregate, with_zeros
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.streams import SERVER


@dataclass(slots=True)
class Used:
    """The inputs of a server step for one batch.

    ``joined`` is the aggregate. ``leaves`` are the tensors to differentiate by: the fresh embeddings one by one. If the
    aggregate is Σ c_m h_m, it is the only leaf, and ``coefficients`` are the c_m of the fresh embeddings.
    """

    batch: Batch
    fresh: Sequence[Any]
    joined: Tensor
    leaves: list[Tensor]
    coefficients: Sequence[float] | None = None

    def spread(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return ∂ℓ/∂h_m for each fresh embedding, from the leaves' gradients. Equal c_m share one tensor."""
        if self.coefficients is None:
            return gradients
        (whole,) = gradients
        scaled = {coefficient: whole * coefficient for coefficient in dict.fromkeys(self.coefficients)}
        return [scaled[coefficient] for coefficient in self.coefficients]


@dataclass(frozen=True, slots=True)
class Joining:
    """Joins embeddings of these ``widths``, always in party order.

    If the aggregate is Σ c_m h_m, no graph leads from it to the embeddings, since ∂ℓ/∂h_m = c_m ∂ℓ/∂H. ``trained`` is
    the model of an aggregate that has one. In training, ``blinded_sum`` decodes the sum of the clients' embeddings.
    ``present``, (rows, parties) by split, says which rows each party holds (None: all). The embedding of a row that a
    party lacks counts as missing, whatever has arrived in its place, and gets no gradient.
    """

    aggregate: Aggregate
    widths: tuple[int, ...]
    trained: PartyModel | None = None
    blinded_sum: BlindedSum | None = None
    present: Mapping[Split, Tensor] | None = None

    def all_of(self, embeddings: Sequence[Handle[Tensor]], split: Split | None = None) -> Tensor:
        """Join the embeddings of all parties. ``split`` is required when parties may lack rows."""
        if self.present is not None:
            assert split is not None, "`split` is required when parties may lack rows"
            return self.combined([handle.value for handle in embeddings], self.present[split])
        coefficients = self.aggregate.coefficients(range(len(embeddings)))
        if coefficients is None:
            return self.combined([handle.value for handle in embeddings])
        return _sum(coefficients, None, embeddings)

    def used(
        self,
        batch: Batch,
        fresh: Sequence[Any],
        places: Sequence[int],
        table: EmbeddingTable | None,
        unlike: Collection[int] = (),
    ) -> Used:
        """Return the inputs for one batch: ``fresh`` messages of the parties at ``places``, table rows for others.

        The table has the same rows as the fresh messages, but for the parties at the places ``unlike``.
        """
        parties = range(len(self.widths))
        present = None if self.present is None else self.present["train"]
        coefficients = (
            None if present is not None else self.aggregate.coefficients(places if table is None else parties)
        )
        if coefficients is not None:
            values = [message.value for message in fresh]
            if self.blinded_sum is not None:
                joined = self._unblinded(self.blinded_sum, fresh) * coefficients[0]
            elif table is None:
                joined = _sum(coefficients, None, values)
            elif isinstance(table, SummedTable):
                pairs = zip(places, values, strict=True)
                joined = table.joined(batch, {place: each.value for place, each in pairs if place in unlike})
            else:
                rows = table.rows(batch.tensor(table.device), len(parties))
                for place, each in zip(places, values, strict=True):
                    rows[:, place] = each.value
                joined = _sum(coefficients, rows, values)
            joined.requires_grad_()
            own = coefficients if table is None else [coefficients[place] for place in places]
            return Used(batch, fresh, joined, [joined], own)
        leaves = [message.value.value.clone().requires_grad_() for message in fresh]
        every: list[Tensor | None] = [None] * len(parties)
        if table is not None:
            every = [*table.read(batch.tensor(table.device))]
        for place, leaf in zip(places, leaves, strict=True):
            every[place] = leaf
        here = None if present is None else present[batch.tensor(present.device)]
        return Used(batch, fresh, self.combined(every, here), leaves)

    @property
    def sums_of_all(self) -> Sequence[float] | None:
        """c_m of the sum Σ c_m h_m over all parties, if that is what every batch is joined to; else None."""
        return None if self.present is not None else self.aggregate.coefficients(range(len(self.widths)))

    def _unblinded(self, group: BlindedSum, fresh: Sequence[Any]) -> Tensor:
        """Return the sum of all clients' embeddings, plus the server's own if ``fresh`` has it."""
        values = {message.sender: message.value.value for message in fresh}
        own = values.pop(SERVER, None)
        total = group.total(values)
        return total if own is None else own + total

    def combined(self, values: Sequence[Tensor | None], present: Tensor | None = None) -> Tensor:
        """Join the embeddings of all parties, None where one is missing; differentiable in each."""
        if present is not None and self.trained is None:
            return self.aggregate.combine_present(values, self.widths, present)
        if present is not None:
            values = with_zeros(values, present)
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
