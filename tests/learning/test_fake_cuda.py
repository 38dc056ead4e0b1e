"""Kernels without autograd on fake CUDA tensors: they stay on the device, and no value is read.

PyTorch without CUDA has no device guard for it. So what indexes with brackets, copies into a slice or keeps a graph
cannot be tried in this way; ``tests/simulation/test_device_rehearsal.py`` runs all of it on ``meta``.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from vflsim.codecs.round import BFloat16, Binarise, Float16, Round
from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.learning.batches import Batch
from vflsim.learning.learners.embedding_table import SummedTable
from vflsim.learning.models.aggregates import (
    Aggregate,
    ConcatAggregate,
    MaxAggregate,
    MeanAggregate,
    SumAggregate,
    WeightedAggregate,
)

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _fake() -> Iterator[None]:
    with torch.no_grad(), FakeTensorMode():
        yield


def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=CUDA)


@pytest.mark.parametrize(
    ("aggregate", "width"),
    [
        (MeanAggregate(), 6),
        (SumAggregate(), 6),
        (MaxAggregate(), 6),
        (ConcatAggregate(), 18),
        (WeightedAggregate(weights=(1, 2, 3)).bound([1, 1, 1], [1, 2, 3]), 6),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_aggregates_join_embeddings_on_the_device(aggregate: Aggregate, width: int) -> None:
    joined = aggregate.combine([made(8, 6) for _ in range(3)], [6, 6, 6])
    assert (joined.device, joined.shape) == (CUDA, (8, width))


@pytest.mark.parametrize("codec", [Float16(), BFloat16(), Round()], ids=lambda codec: codec.kind)
def test_codecs_change_embeddings_on_the_device(codec: Float16 | BFloat16 | Round) -> None:
    received = codec.keyed(1).through(made(8, 6))
    assert (received.device, received.shape, received.dtype) == (CUDA, (8, 6), torch.float32)


def test_a_codec_that_looks_at_values_would_read_them() -> None:
    with pytest.raises(DataDependentOutputException):
        Binarise().through(made(8, 6))


@pytest.mark.parametrize("p", [MERSENNE_31, MERSENNE_61])
@pytest.mark.parametrize("operation", ["add", "subtract", "multiply"])
def test_field_elements_are_computed_on_the_device(p: int, operation: str) -> None:
    field, elements = PrimeField(p), made(4, 5, dtype=torch.int64)
    compute: Callable[[Tensor, Tensor], Tensor] = getattr(field, operation)
    for result in (compute(elements, elements), field.power(elements, 5), field.signed(field.embed(elements))):
        assert (result.device, result.shape, result.dtype) == (CUDA, (4, 5), torch.int64)


def test_sums_of_the_servers_table_stay_on_the_device() -> None:
    table, batch = SummedTable(20, 6, [0.25] * 4, torch.float32, CUDA), Batch(0, np.arange(8))
    table.write([(0, batch, made(8, 6)), (1, batch, made(8, 6))])
    joined = table.joined(batch, {2: made(8, 6)})
    assert (joined.device, joined.shape) == (CUDA, (8, 6))


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        MeanAggregate().combine([made(8, 6), torch.empty(8, 6)], [6, 6])
