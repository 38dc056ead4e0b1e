"""A data set that processes of one machine share: its numbers are in memory once, in a file without a name.

The file is Linux's ``memfd``: it has no place in any folder, the kernel removes it with the last process that has it
open, however that process ends, and its seals keep everybody from changing what is in it. Processes map it privately:
one that writes to its tensors would write to copies of pages of its own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflsim.learning.batches import Split
from vflsim.learning.data.loaded import LoadedData, Windows

_ALIGNMENT = 64
"""Bytes. All features start at a multiple of it: where memory starts can change the last bits of a sum over it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor of a data set begins in its file, in bytes, and what it is."""

    part: str
    split: Split
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Outline:
    """What a data set is apart from its numbers, and where each of its tensors stands in its file of ``size`` bytes.

    It can be pickled. Example: ``outline.mapped(descriptor).joint["train"]``, (rows, columns).
    """

    bare: LoadedData
    places: tuple[_Place, ...]
    size: int

    def mapped(self, descriptor: int) -> LoadedData:
        """Return the data set, whose tensors are in the file; the descriptor may be closed then. Raises OSError."""
        memory = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_COPY)
        parts: dict[str, dict[Split, Tensor]] = {"joint": {}, "labels": {}, "present": {}}
        for place in self.places:
            parts[place.part][place.split] = _tensor(memory, place)
        labels, present = parts["labels"], parts["present"] or None
        return replace(self.bare.with_joint(parts["joint"]), labels=labels, present=present)


class SharedData:
    """A data set in a file that other processes can map: ``descriptor`` is the file, ``outline`` says what is in it.

    Invariant: the file exists as long as this object, a tensor of ``data`` or another process that has opened it.
    """

    def __init__(self, data: LoadedData) -> None:
        """Write a data set on the CPU to a new file; ``data`` is the same in there. Raises OSError."""
        self.descriptor = -1
        places, size = [], 0
        for part, split, tensor in _tensors(data):
            places.append(_Place(part, split, size, tuple(tensor.shape), tensor.dtype))
            size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        active = None if data.active is None else dict[Split, Tensor]()
        bare = replace(
            data,
            joint={},
            features=Windows({}, data.columns, data.shapes),
            labels={},
            active=active,
            present=None,
            elsewhere={},
        )
        self.outline = Outline(bare, tuple(places), size)
        self.descriptor = _file(self.outline, data)
        self.data = self.outline.mapped(self.descriptor)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def can_share() -> bool:
    """Return whether this system has files without a name, and passes them between processes: Linux does.

    Example: ``if can_share(): SharedData(data)``
    """
    return sys.platform == "linux" and hasattr(os, "memfd_create")


def _file(outline: Outline, data: LoadedData) -> int:
    """Write all tensors to a new file that nobody can change then; return its descriptor. Raises OSError."""
    descriptor = os.memfd_create("vflsim-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            for place, (_, _, tensor) in zip(outline.places, _tensors(data), strict=True):
                file.seek(place.start)
                file.write(tensor.contiguous().numpy().data.cast("B") if tensor.numel() else b"")
            file.truncate(outline.size)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _tensors(data: LoadedData) -> Iterator[tuple[str, Split, Tensor]]:
    parts: Mapping[str, Mapping[Split, Tensor]] = {
        "joint": data.joint,
        "labels": data.labels,
        "present": data.present or {},
    }
    return ((part, split, tensor) for part, tensors in parts.items() for split, tensor in tensors.items())


def _tensor(memory: mmap.mmap, place: _Place) -> Tensor:
    count = torch.Size(place.shape).numel()
    if not count:
        return torch.empty(place.shape, dtype=place.dtype)
    return torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.start).reshape(place.shape)
