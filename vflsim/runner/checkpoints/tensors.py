"""Tensors exactly as they lie in memory: their strides and what they share can change the last bits of a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
"""What a kept tensor may consist of, by name."""


class Place(NamedTuple):
    """Where a tensor lies: in which storage, and how (in elements)."""

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
                    self._storage(tensor),
                    str(tensor.dtype).removeprefix("torch."),
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

    def __init__(self, places: Sequence[Place], storages: Mapping[str, Tensor], device: str) -> None:
        self._tensors: list[Tensor] = []
        # Copied: how what was loaded is aligned would be another source of last bits.
        own = {name: content.clone().to(device) for name, content in storages.items()}
        for place in places:
            tensor = torch.empty(0, dtype=DTYPES[place.dtype], device=device)
            storage = own[str(place.storage)].untyped_storage()
            self._tensors.append(tensor.set_(storage, place.offset, place.shape, place.strides))

    def __getitem__(self, number: int) -> Tensor:
        return self._tensors[number]
