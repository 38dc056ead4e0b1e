"""Tensors exactly as they lie in memory: their strides and what they share can change the last bits of a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, UntypedStorage

from vflsim.errors import CheckpointError

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
"""What a kept tensor may consist of, by name."""


class Place(NamedTuple):
    """Where a tensor lies: on which kind of device, in which storage, and how (in elements)."""

    device: str
    storage: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorWriter:
    """Collects tensors, each storage once. A tensor is known by a number; the same object gets the same number."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.storages: dict[str, Tensor] = {}
        """The bytes of every storage, by its number as text: nothing is copied from the CPU."""
        self._numbers: dict[int, int] = {}
        self._found: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that no id is given twice

    def add(self, tensor: Tensor) -> int:
        """Its number."""
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self.places)
            self._alive.append(tensor)
            self.places.append(
                Place(
                    tensor.device.type,
                    self._storage(tensor),
                    _name(tensor.dtype),
                    int(tensor.storage_offset()),
                    tuple(tensor.shape),
                    tensor.stride(),
                )
            )
        return number

    def _storage(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._found:
            self._found[key] = len(self.storages)
            content = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self.storages[str(self._found[key])] = content.cpu()
        return self._found[key]


class TensorReader:
    """Gives the tensors of a ``TensorWriter`` back: the same number is the same object."""

    def __init__(self, places: Sequence[Place], storages: Mapping[str, Tensor]) -> None:
        self._tensors: list[Tensor] = []
        own: dict[int, UntypedStorage] = {}
        for device, storage, dtype, offset, shape, strides in places:
            if storage not in own:  # copied: how what was loaded is aligned would be another source of last bits
                own[storage] = storages[str(storage)].clone().to(device).untyped_storage()
            tensor = torch.empty(0, dtype=DTYPES[dtype], device=device)
            self._tensors.append(tensor.set_(own[storage], offset, shape, strides))

    def __getitem__(self, number: int) -> Tensor:
        return self._tensors[number]


def _name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CheckpointError(f"a tensor of {name} cannot be kept", allowed=", ".join(DTYPES))
    return name
