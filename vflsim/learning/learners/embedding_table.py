"""The table of latest embeddings that VAFL's server keeps (Sec. 2): a row a sample, the parties side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from vflsim.learning.batches import CPU


class EmbeddingTable:
    """Latest embedding of every (sample, client); zeros where none was ever received.

    A sample's embeddings lie side by side, so that reading a batch is one gather of long rows. Memory is the system's
    zero pages until a row is first written.
    """

    def __init__(self, rows: int, widths: Sequence[int], dtype: torch.dtype, device: torch.device = CPU) -> None:
        edges = [0, *accumulate(widths)]
        self._columns = [slice(start, end) for start, end in pairwise(edges)]
        shape = rows, edges[-1]
        if device == CPU:
            self._values = torch.from_numpy(np.zeros(shape, torch.empty(0, dtype=dtype).numpy().dtype))
        else:
            self._values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def device(self) -> torch.device:
        """The device that holds the table."""
        return self._values.device

    def fill(self, place: int, embeddings: Tensor) -> None:
        """Replace every row of the client in that place; ``embeddings`` is (rows, width)."""
        self._values[:, self._columns[place]] = embeddings

    def write(self, place: int, ids: Tensor, embeddings: Tensor) -> None:
        """Replace the rows ``ids`` of the client in that place; ``embeddings`` is (len(ids), width)."""
        self._values[ids, self._columns[place]] = embeddings

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
