"""The table of latest embeddings that VAFL's server keeps (Sec. 2): a row a sample, the parties side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from vflsim.learning.batches import CPU, Batch

Arrived: TypeAlias = tuple[int, Batch, Tensor]
"""The place of a party, a batch, and the party's embeddings of it, (rows, width)."""


class EmbeddingTable:
    """Latest embedding of every (sample, client); zeros where none was ever received.

    A sample's embeddings lie side by side, so that reading a batch is one gather of long rows. Memory is the system's
    zero pages until a row is first written.
    """

    def __init__(self, rows: int, widths: Sequence[int], dtype: torch.dtype, device: torch.device = CPU) -> None:
        edges = [0, *accumulate(widths)]
        self._columns = [slice(start, end) for start, end in pairwise(edges)]
        self._values = zeros((rows, edges[-1]), dtype, device)

    @property
    def device(self) -> torch.device:
        """The device that holds the table."""
        return self._values.device

    def fill(self, columns: Iterable[tuple[int, Tensor]]) -> None:
        """Replace every row of some parties: the place of each, and its (rows, width)."""
        for place, embeddings in columns:
            self._values[:, self._columns[place]] = embeddings

    def write(self, arrived: Sequence[Arrived]) -> None:
        """Replace rows by embeddings that ``arrived``, in this order."""
        for place, batch, embeddings in arrived:
            self._values[batch.tensor(self.device), self._columns[place]] = embeddings

    def rows(self, ids: Tensor, clients: int) -> Tensor:
        """Return the rows ``ids`` of all ``clients``, which are equally wide: (len(ids), clients, width)."""
        return self._values.index_select(0, ids).view(len(ids), clients, -1)

    def read(self, ids: Tensor) -> list[Tensor]:
        """Return the rows ``ids`` of every client, in client order: (len(ids), width) each."""
        rows = self._values.index_select(0, ids)
        return [rows[:, columns] for columns in self._columns]

    def state(self) -> dict[str, Tensor]:
        """Return all rows, by name: the tensor itself."""
        return {"rows": self._values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._values.copy_(state["rows"])


def zeros(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; on the CPU memory is taken when it is first written."""
    if device == CPU:
        return torch.from_numpy(np.zeros(shape, torch.empty(0, dtype=dtype).numpy().dtype))
    return torch.zeros(shape, dtype=dtype, device=device)
