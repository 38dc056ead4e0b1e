"""What a server step joins: fresh embeddings and rows of the table, without the rows that parties lack."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.learning.learners.joint import Joining
from vflsim.learning.models.aggregates import Aggregate, ConcatAggregate, MaxAggregate, MeanAggregate

ROWS, PARTIES, WIDTH = 9, 3, 2


@dataclass
class Sent:
    sender: int
    value: Handle[Tensor]


@pytest.mark.parametrize("aggregate", [MeanAggregate(), MaxAggregate(), ConcatAggregate()], ids=lambda each: each.kind)
def test_absent_rows_are_missing_among_fresh_embeddings_and_in_the_table(aggregate: Aggregate) -> None:
    """A row never filled is zeros, and counts; a row that a party lacks does not, whatever stands in its place."""
    made = torch.Generator().manual_seed(0)
    present = torch.rand(ROWS, PARTIES, generator=made) < 0.6
    present[:, 2] |= ~present.any(1)
    filled = torch.randn(ROWS, PARTIES, WIDTH, generator=made, dtype=torch.float64)
    filled[3] = 0
    table = EmbeddingTable(ROWS, [WIDTH] * PARTIES, torch.float64)
    table.fill((place, filled[:, place]) for place in range(PARTIES))
    batch = Batch(0, np.array([7, 3, 0, 5, 8]))
    fresh: Handle[Tensor] = Handle((5, WIDTH), torch.float64)
    fresh.set(torch.randn(5, WIDTH, generator=made, dtype=torch.float64))
    joining = Joining(aggregate, (WIDTH,) * PARTIES, present={"train": present})
    used = joining.used(batch, [Sent(2, fresh)], [1], table)
    for n, row in enumerate(batch.ids.tolist()):
        values: list[Any] = [filled[row, 0], fresh.value[n], filled[row, 2]]
        alone = [value[None] if here else None for value, here in zip(values, present[row].tolist(), strict=True)]
        torch.testing.assert_close(used.joined[n : n + 1].detach(), aggregate.combine(alone, [WIDTH] * PARTIES))
    (gradient,) = torch.autograd.grad(used.joined.sum(), used.leaves)
    assert not gradient[~present[batch.ids, 1]].any()
