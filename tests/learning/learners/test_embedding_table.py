"""Memory of the server's table: that of a table that has gone serves the next, and is zero again."""

from __future__ import annotations

import pytest
import torch

from vflsim.learning.batches import CPU
from vflsim.learning.learners import embedding_table as module
from vflsim.learning.learners.embedding_table import EmbeddingTable, reusing_memory


@pytest.fixture(autouse=True)
def _small_tables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGE", 1)


def made(rows: int, dtype: torch.dtype = torch.float32) -> EmbeddingTable:
    return EmbeddingTable(rows, [2, 2], dtype)


def place(table: EmbeddingTable) -> int:
    return table.state()["rows"].data_ptr()


def test_a_table_takes_the_memory_of_one_that_has_gone_and_is_zero() -> None:
    with reusing_memory():
        first = made(50)
        first.fill([(0, torch.ones(50, 2)), (1, torch.ones(50, 2))])
        where = place(first)
        del first
        for rows, dtype in ((20, torch.float32), (25, torch.float64), (50, torch.float32)):
            table = made(rows, dtype)
            assert place(table) == where
            assert torch.equal(table.state()["rows"], torch.zeros(rows, 4, dtype=dtype))
            table.fill([(0, torch.ones(rows, 2)), (1, torch.ones(rows, 2))])
            del table


def test_memory_that_somebody_holds_is_nobody_elses() -> None:
    with reusing_memory():
        first = made(50)
        rows = first.state()["rows"]
        del first
        second = made(50)
        second.fill([(0, torch.ones(50, 2))])
        assert torch.equal(rows, torch.zeros(50, 4))
        assert place(second) != rows.data_ptr()


def test_other_tables_have_memory_of_their_own() -> None:
    with reusing_memory():
        outer = made(50)
        where = place(outer)
        with reusing_memory():
            assert place(made(50)) != where
        del outer
        assert torch.equal(made(60).state()["rows"], torch.zeros(60, 4))
    assert module._pool.get() is None
    assert made(50).device == CPU
