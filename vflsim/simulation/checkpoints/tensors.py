"""Tensors with their memory layout: strides and shared storages can change the last bits of a product."""

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
"""The dtypes of tensors that checkpoints can hold, by name."""


class Place(NamedTuple):
    """Layout of a tensor: type of device, storage, and offset and strides in elements."""

    device: str
    storage: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorWriter:
    """Collects tensors and numbers them, each storage once. The same object gets the same number."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.storages: dict[str, Tensor] = {}
        """The bytes of every storage, by its number as text; CPU storages are not copied."""
        self._numbers: dict[int, int] = {}
        self._found: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that ids stay unique

    def add(self, tensor: Tensor) -> int:
        """Return the tensor's number."""
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
    """Restores the tensors of a ``TensorWriter``: the same number gives the same object.

    They are copies, since the alignment of loaded memory could change last bits. ``borrowed`` returns an uncopied
    tensor, for reading once.
    """

    def __init__(self, places: Sequence[Place], storages: Mapping[str, Tensor]) -> None:
        self._places, self._storages = places, storages
        self._own: dict[int, UntypedStorage] = {}
        self._tensors: dict[int, Tensor] = {}

    def __getitem__(self, number: int) -> Tensor:
        tensor = self._tensors.get(number)
        if tensor is None:
            place = self._places[number]
            storage = self._own.get(place.storage)
            if storage is None:
                content = self._storages[str(place.storage)].clone().to(place.device)
                storage = self._own[place.storage] = content.untyped_storage()
            tensor = self._tensors[number] = _laid_out(place, storage, place.device)
        return tensor

    def borrowed(self, number: int) -> Tensor:
        """Return the loaded tensor on the CPU, without a copy."""
        place = self._places[number]
        return _laid_out(place, self._storages[str(place.storage)].untyped_storage(), "cpu")


def _laid_out(place: Place, storage: UntypedStorage, device: str) -> Tensor:
    tensor = torch.empty(0, dtype=DTYPES[place.dtype], device=device)
    return tensor.set_(storage, place.offset, place.shape, place.strides)


def _name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CheckpointError(f"a tensor of {name} cannot be kept", allowed=", ".join(DTYPES))
    return name
