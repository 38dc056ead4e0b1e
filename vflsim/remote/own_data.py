"""One party's share of a data set: everything of others is a number without memory that spoils what it touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

import torch

from vflsim.learning.batches import Split
from vflsim.learning.data.loaded import LoadedData, Windows
from vflsim.streams import SERVER


def own_data(data: LoadedData, party: int, labels: Iterable[Split]) -> LoadedData:
    """Return ``data`` with the features of ``party`` alone, in memory of their own, and labels of these splits.

    The features of others are NaN, (rows, columns), and other labels are NaN or −1: each a single number that is read
    at every place. A computation that used them would end in NaN or in an error. Which rows each party holds
    (``present``) stays.

    Example::

        mine = own_data(data, party=2, labels=())
        bool(mine.features[0]["train"].isnan().all())  # True: those of client 1
    """
    joint = {split: _nothing(tensor) for split, tensor in data.joint.items()}
    others = Windows(joint, data.columns, data.shapes)
    features: Sequence[dict[Split, torch.Tensor]] = others
    active = data.active
    if active is not None:
        active = _owned(active) if party == SERVER else {split: _nothing(tensor) for split, tensor in active.items()}
    if party != SERVER:
        features = _OwnWindows(others, party - 1, _owned(data.features[party - 1]))
    held = set(labels)
    known = {split: tensor.clone() if split in held else _nothing(tensor) for split, tensor in data.labels.items()}
    return replace(data, joint=joint, features=features, labels=known, active=active, elsewhere={})


class _OwnWindows(Sequence[dict[Split, torch.Tensor]]):
    """The features of one client, and nothing of others."""

    def __init__(self, others: Windows, place: int, own: dict[Split, torch.Tensor]) -> None:
        self._others, self._place, self._own = others, place, own

    def __len__(self) -> int:
        return len(self._others)

    @overload
    def __getitem__(self, place: int) -> dict[Split, torch.Tensor]: ...
    @overload
    def __getitem__(self, place: slice) -> list[dict[Split, torch.Tensor]]: ...
    def __getitem__(self, place: int | slice) -> dict[Split, torch.Tensor] | list[dict[Split, torch.Tensor]]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self._own if place % len(self) == self._place else self._others[place]


def _owned(features: dict[Split, torch.Tensor]) -> dict[Split, torch.Tensor]:
    return {split: tensor.clone(memory_format=torch.contiguous_format) for split, tensor in features.items()}


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this shape whose elements are all one number."""
    filler = math.nan if tensor.is_floating_point() else 0 if tensor.dtype == torch.uint8 else -1
    return torch.full((), filler, dtype=tensor.dtype).expand(tensor.shape)
