"""Memory of the server's table: that of a table that has gone serves the next, and is zero again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.learners import embedding_table, embedding_table as module
from vflsim.learning.learners.embedding_table import Arrived, EmbeddingTable, SummedTable, reusing_memory


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
    assert made(50).device.type == "cpu"


ROWS, PARTIES, WIDTH = 12, 7, 3
EQUAL = [1 / PARTIES] * PARTIES
UNEQUAL = [weight / 28 for weight in range(1, PARTIES + 1)]
DOUBLE = torch.float64


def writes(count: int, seed: int = 0, dtype: torch.dtype = DOUBLE, per_step: int = 1) -> Iterator[list[Arrived]]:
    """Steps of embeddings whose sizes differ by ten orders of magnitude, of five drawn rows each."""
    drawn, values = np.random.Generator(np.random.Philox(seed)), torch.Generator().manual_seed(seed)
    for step in range(count):
        arrived: list[Arrived] = []
        for n in range(per_step):
            batch = Batch(step * per_step + n, drawn.choice(ROWS, 5, replace=False))
            size = 10.0 ** drawn.integers(-5, 6)
            h = torch.randn(5, WIDTH, generator=values, dtype=DOUBLE) * size
            arrived.append((int(drawn.integers(PARTIES)), batch, h.to(dtype)))
        yield arrived


def every_row(table: SummedTable) -> Tensor:
    return table.joined(Batch(10**6, np.arange(ROWS)), {})


def exact(table: EmbeddingTable, coefficients: Sequence[float]) -> list[list[float]]:
    """Σ c_m h_m in rational numbers, of coefficients as floating point has them."""
    rows = table.rows(torch.arange(ROWS), PARTIES).tolist()
    c = [Fraction(each) for each in coefficients]
    return [[float(sum(c[m] * Fraction(row[m][k]) for m in range(PARTIES))) for k in range(WIDTH)] for row in rows]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("coefficients", [EQUAL, [1.0] * PARTIES, UNEQUAL], ids=["mean", "sum", "weighted"])
def test_no_sum_is_further_from_the_exact_one_than_the_bound(coefficients: list[float], dtype: torch.dtype) -> None:
    """6 M u Σ |c_m| A, u = 2⁻⁵³ and A the largest element that a row has held; and the rounding of what is returned."""
    table = SummedTable(ROWS, WIDTH, coefficients, dtype)
    largest = np.zeros(ROWS)
    for n, arrived in enumerate(writes(1500, dtype=dtype)):
        table.write(arrived)
        for _, batch, h in arrived:
            largest[batch.ids] = np.maximum(largest[batch.ids], h.abs().amax(1).double().numpy())
        if n % 50 == 0:
            wanted, found = np.array(exact(table, coefficients)), every_row(table).double().numpy()
            bound = 6 * PARTIES * 2.0**-53 * sum(coefficients) * largest[:, None]
            rounding = torch.finfo(dtype).eps * np.abs(wanted)
            assert (np.abs(found - wanted) <= bound + rounding).all()


def test_a_large_value_leaves_no_trace_after_as_many_changes_as_parties() -> None:
    """A sum that is only ever changed would stay 0 or 2 ulps of 1e17 off: 1e17 swallows what is added to it."""
    table, batch = SummedTable(1, 1, [1.0] * PARTIES, DOUBLE), Batch(0, np.array([0]))
    value = torch.ones(1, 1, dtype=DOUBLE)
    table.write([(0, batch, value * 1e17)])
    for place in range(1, PARTIES):
        table.write([(place, batch, value / 3)])
    table.write([(0, batch, value / 3)])
    for place in range(PARTIES):
        table.write([(place, batch, value / 3)])
    assert float(table.joined(batch, {})) == pytest.approx(PARTIES / 3, rel=1e-15)


@pytest.mark.parametrize("read_all", [1, 4, 100])
@pytest.mark.parametrize("coefficients", [EQUAL, UNEQUAL], ids=["mean", "weighted"])
def test_writes_of_several_parties_and_batches_leave_the_same_table_and_its_sums(
    coefficients: list[float], read_all: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many parties of a step make it sum anew; the batches of a step share rows, and parties come twice."""
    monkeypatch.setattr(embedding_table, "_READ_ALL", read_all)
    table, plain = SummedTable(ROWS, WIDTH, coefficients, DOUBLE), EmbeddingTable(ROWS, [WIDTH] * PARTIES, DOUBLE)
    c = torch.tensor(coefficients, dtype=DOUBLE)
    for arrived in writes(60, seed=3, per_step=5):
        arrived = [(place, batch, h.clamp(-2, 2)) for place, batch, h in arrived]
        table.write(arrived)
        plain.write(arrived)
        rows = plain.rows(torch.arange(ROWS), PARTIES)
        assert torch.equal(table.rows(torch.arange(ROWS), PARTIES), rows)
        assert torch.allclose(every_row(table), c @ rows, rtol=0, atol=1e-14)


@pytest.mark.parametrize("coefficients", [EQUAL, UNEQUAL], ids=["mean", "weighted"])
def test_rows_of_some_parties_are_replaced_in_the_sum_and_not_in_the_table(coefficients: list[float]) -> None:
    table = SummedTable(ROWS, WIDTH, coefficients, DOUBLE)
    for arrived in writes(20, seed=5):
        table.write([(place, batch, h.clamp(-2, 2)) for place, batch, h in arrived])
    before, batch = every_row(table), Batch(1, np.array([3, 0, 8]))
    instead = {2: torch.full((3, WIDTH), 0.5, dtype=DOUBLE), 5: torch.full((3, WIDTH), -1.5, dtype=DOUBLE)}
    rows = table.rows(batch.tensor(), PARTIES)
    for place, h in instead.items():
        rows[:, place] = h
    expected = torch.tensor(coefficients, dtype=DOUBLE) @ rows
    assert torch.allclose(table.joined(batch, instead), expected, rtol=0, atol=1e-14)
    assert torch.equal(every_row(table), before)


def test_whole_columns_are_summed_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_table, "_BLOCK", 5 * PARTIES * WIDTH * 8)  # blocks of five rows
    table = SummedTable(ROWS, WIDTH, EQUAL, DOUBLE)
    filled = torch.randn(PARTIES, ROWS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    table.fill(enumerate(filled))
    assert torch.allclose(every_row(table), filled.mean(0), rtol=0, atol=1e-15)


def test_restored_sums_go_on_to_the_bit() -> None:
    """Sums anew at the time of the checkpoint would differ in the last bits: they have been changed since."""
    table, other = (SummedTable(ROWS, WIDTH, EQUAL, DOUBLE) for _ in range(2))
    steps = list(writes(400, seed=9))
    for arrived in steps[:211]:
        table.write(arrived)
    other.load({name: tensor.clone() for name, tensor in table.state().items()})
    anew = torch.tensor(exact(table, EQUAL), dtype=DOUBLE)
    assert not torch.equal(every_row(table), anew)
    for arrived in steps[211:]:
        table.write(arrived)
        other.write(arrived)
        assert torch.equal(every_row(other), every_row(table))
    assert all(math.isfinite(value) for value in every_row(table).flatten().tolist())
