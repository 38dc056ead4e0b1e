"""Parts of what lies side by side: a few clients at a time, or the clients at some places."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflsim.learning.batches import CPU

_PIECE = 2**20
"""Bytes of a layer's output that are computed at once."""


def pieces_of(parameters: Sequence[Tensor], clients: int, rows: int) -> list[slice]:
    """Cut a number of clients so that the widest layers of a piece take ``_PIECE`` bytes; not on other devices."""
    first = parameters[0]
    widest = max(max(parameter.shape[1:]) for parameter in parameters)
    each = max(1, _PIECE // (rows * widest * first.itemsize)) if first.device == CPU else clients
    return [slice(begin, begin + each) for begin in range(0, clients, each)]


def those_at(places: Sequence[int], count: int, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the parameters of those at ``places`` (ascending) among ``count``, (len(places), …) each."""
    if len(places) == count:
        return parameters
    if len(places) == 1:
        return [parameter[places[0] : places[0] + 1] for parameter in parameters]
    index = torch.tensor(places, device=parameters[0].device)
    return [parameter.index_select(0, index) for parameter in parameters]
