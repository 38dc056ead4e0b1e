"""Embeddings of several clients for the same rows, often needed only as a sum, joined to the aggregate of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Kernel
from vflsim.learning.learners.embedding_table import EmbeddingTable, SummedTable
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.models.aggregates import Aggregate, with_zeros
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.streams import SERVER, generator
from vflsim.vocabulary.on_demand import Tensor, torch


@dataclass(frozen=True, slots=True)
class PartyDropout:
    """Which of the parties of a server are left out of which batch: a function of seed and batch.

    ``active``: the first of the parties is the server itself, which is never left out.
    """

    rate: float
    seed: int
    active: bool = False

    def there(self, batch: Batch, parties: int, device: torch.device | str) -> Tensor:
        """Return which parties a step on this batch uses, (parties,) of bool.

        Example: ``PartyDropout(0.2, seed=0).there(batch, 4, "cpu").any()``
        """
        draws = generator(self.seed, SERVER, f"dropout/{batch.origin}/{batch.index}").random(parties)
        kept = draws >= self.rate
        kept[0 if self.active else int(np.argmax(draws))] = True
        return torch.from_numpy(kept).to(device)


class PartyStack(ABC):
    """Parties whose identical operations run as one batched call: what their learners know of it."""

    @abstractmethod
    def kernel(self, kind: str, rows: int | Split, alike: Hashable = None) -> Kernel:
        """Return the kernel for operations of a kind, on so many rows or on a whole split, that agree in ``alike``."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what the parties have learnt and remember, by name: the tensors themselves."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""


def total_of(handles: Sequence[Handle[Tensor]]) -> Tensor:
    """Sum the values, given in client order: first those outside a joint, then joint by joint."""
    joints: dict[Any, list[int]] = {}
    alone: list[Tensor] = []
    for handle in handles:
        if handle.joint is None:
            alone.append(handle.value)
            continue
        joint, place = handle.joint
        joints.setdefault(joint, []).append(place)
    total = torch.stack(alone).sum(0) if alone else None
    for joint, places in joints.items():
        total = joint.total(places) if total is None else total + joint.total(places)
    assert total is not None, "there is at least one embedding"
    return total


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
    party lacks counts as missing, whatever has arrived in its place, and gets no gradient; so does that of a party
    which ``dropout`` leaves out of a batch of training.
    """

    aggregate: Aggregate
    widths: tuple[int, ...]
    trained: PartyModel | None = None
    blinded_sum: BlindedSum | None = None
    present: Mapping[Split, Tensor] | None = None
    dropout: PartyDropout | None = None

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
        coefficients = None if self._masks else self.aggregate.coefficients(places if table is None else parties)
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
            factors = coefficients if table is None else [coefficients[place] for place in places]
            return Used(batch, fresh, joined, [joined], factors)
        leaves = [message.value.value.clone().requires_grad_() for message in fresh]
        every: list[Tensor | None] = [None] * len(parties)
        if table is not None:
            every = [*table.read(batch.tensor(table.device))]
        for place, leaf in zip(places, leaves, strict=True):
            every[place] = leaf
        return Used(batch, fresh, self.combined(every, self._here(batch, leaves[0].device)), leaves)

    @property
    def sums_of_all(self) -> Sequence[float] | None:
        """c_m of the sum Σ c_m h_m over all parties, if that is what every batch is joined to; else None."""
        return None if self._masks else self.aggregate.coefficients(range(len(self.widths)))

    @property
    def _masks(self) -> bool:
        return self.present is not None or self.dropout is not None

    def _here(self, batch: Batch, device: torch.device) -> Tensor | None:
        """Return which parties' rows of a batch a training step uses, (b, parties); None: all."""
        rows = None if self.present is None else self.present["train"][batch.tensor(device)]
        if self.dropout is None:
            return rows
        there = self.dropout.there(batch, len(self.widths), device)
        return there.expand(len(batch), -1) if rows is None else rows & there

    def _unblinded(self, group: BlindedSum, fresh: Sequence[Any]) -> Tensor:
        """Return the sum of all clients' embeddings, plus the server's own if ``fresh`` has it."""
        values = {message.sender: message.value.value for message in fresh}
        embedding = values.pop(SERVER, None)
        total = group.total(values)
        return total if embedding is None else embedding + total

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


def groups_of(messages: Sequence[Received]) -> list[tuple[Batch, list[Received]]]:
    """Return messages by batch, in an order that does not depend on when they arrived."""
    groups: dict[tuple[int, int], tuple[Batch, list[Received]]] = {}
    for message in messages:
        batch = message.batch
        key = batch.origin, batch.index
        if key not in groups:
            groups[key] = batch, []
        groups[key][1].append(message)
    return [groups[key] for key in sorted(groups)]


def arrivals_of(groups: Sequence[tuple[Batch, list[Received]]]) -> list[tuple[Batch, list[int]]]:
    """Return the senders of each batch."""
    return [(batch, [message.sender for message in group]) for batch, group in groups]
