"""Tensors come back as they lay in memory: a product of the same numbers laid out otherwise has other last bits."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load, save

from vflsim.books import Counts
from vflsim.errors import CheckpointError
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.simulation.checkpoints.snapshot import Entry, Position, packed, unpacked
from vflsim.simulation.checkpoints.values import DTYPES, TensorReader, TensorWriter
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


def back(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors, by way of a file."""
    writer = TensorWriter()
    numbers = [writer.add(tensor) for tensor in tensors]
    reader = TensorReader(writer.places, load(save(writer.storages)))
    return [reader[number] for number in numbers]


def test_strides_and_offsets_come_back() -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    views = [whole, whole[1], whole[:, 1:3, 2], whole[2].T, whole[0, 0, 3], whole[:, :0], whole[0].expand(2, 4, 5)]
    for before, after in zip(views, back(*views), strict=True):
        assert torch.equal(before, after)
        assert (before.stride(), before.storage_offset()) == (after.stride(), after.storage_offset())
        assert before.data_ptr() % 64 == after.data_ptr() % 64


def test_what_shares_memory_is_written_once_and_shares_it_again() -> None:
    whole = torch.zeros(1000)
    writer = TensorWriter()
    for n in range(10):
        writer.add(whole[n * 100 : (n + 1) * 100])
    assert sum(len(content) for content in writer.storages.values()) == 4000
    first, second = back(whole[:10], whole[5:15])
    first[5:] = 1.0
    assert second[:5].tolist() == [1.0] * 5


def test_the_same_tensor_is_the_same_again_and_an_equal_one_is_not() -> None:
    one = torch.ones(3)
    first, second, third = back(one, one, one.clone())
    assert first is second
    assert first is not third


def test_the_numbers_are_copied_when_they_are_read() -> None:
    writer = TensorWriter()
    number = writer.add(torch.ones(3))
    TensorReader(writer.places, writer.storages)[number].zero_()
    assert TensorReader(writer.places, writer.storages)[number].tolist() == [1.0] * 3


@pytest.mark.parametrize("name", DTYPES)
def test_every_kind_of_number_comes_back(name: str) -> None:
    tensor = torch.tensor([0, 1, 2]).to(getattr(torch, name))
    (again,) = back(tensor)
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)


def test_parameters_come_back_as_tensors() -> None:
    (again,) = back(torch.nn.Parameter(torch.ones(2)))
    assert type(again) is torch.Tensor
    assert not again.requires_grad


def test_a_kind_of_number_that_is_not_known_is_refused() -> None:
    with pytest.raises(CheckpointError, match="a tensor of float8_e4m3fn cannot be kept"):
        TensorWriter().add(torch.zeros(1, dtype=torch.float8_e4m3fn))


SCORES = st.fixed_dictionaries({"loss": st.floats(), "accuracy": st.floats()}) | st.fixed_dictionaries(
    {"r2": st.floats()}
)


@given(st.lists(st.floats() | SCORES))
def test_a_journal_comes_back_in_order_and_to_the_bit(journal: list[Entry]) -> None:
    assert repr(unpacked(*packed(journal))) == repr(journal)


def test_what_is_alike_takes_one_line() -> None:
    runs, numbers = packed([{"loss": 1.0}, {"loss": 2.0}, *[0.5] * 1000, math.nan])
    assert runs == [(2, ["loss"]), (1001, None)]
    assert numbers.shape == (1003,)


def test_positions_differ_by_each_count() -> None:
    world, recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
    before = Position.of(world, recorder)
    for count in fields(Counts):
        other = Recorder()
        setattr(other, count.name, 3)
        assert before.differences(Position.of(world, other)) == [f"{count.name} 3, not 0"]
