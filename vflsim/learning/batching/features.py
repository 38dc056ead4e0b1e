"""The features of several clients as one tensor: a row a sample, the clients side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vflsim.learning.batches import Batch, Split
from vflsim.learning.learners.inputs import Rows
from vflsim.vocabulary.on_demand import Tensor, torch

_BLOCK = 2048
"""Rows of a split that are read at a time."""


class StackedFeatures:
    """The features of S clients out of the ``joint`` tensors, read as if all were ``width`` columns wide.

    ``joint`` maps a split to (rows, columns) and ``columns`` says which are whose, in client order. Narrower clients
    are padded with zeros on reading: nothing is stored twice. Clients that are equally wide and side by side are read
    in long rows.
    """

    def __init__(self, joint: Mapping[Split, Tensor], columns: Sequence[slice]) -> None:
        self._joint = joint
        widths = [column.stop - column.start for column in columns]
        self.clients, self.width = len(columns), max(widths)
        device = next(iter(joint.values())).device
        first = columns[0].start
        regular = all(
            column == slice(first + n * self.width, first + (n + 1) * self.width) for n, column in enumerate(columns)
        )
        self._block = slice(first, columns[-1].stop) if regular else None
        offsets = torch.arange(self.width, device=device)
        starts = torch.tensor([column.start for column in columns], device=device)
        here = offsets < torch.tensor(widths, device=device)[:, None]
        self._index = torch.where(here, starts[:, None] + offsets, starts[:, None])
        self._padding = None if bool(here.all()) else here
        self._latest: tuple[Batch, Tensor] | None = None

    def same_rows(self, rows: Rows) -> Tensor:
        """The rows of a training batch, or of a whole split, of all clients: (rows, S · width).

        A batch read twice in a row is gathered once: it is embedded, and then stepped on.
        """
        if isinstance(rows, str):
            return self._columns_of(self._joint[rows])
        if self._latest is None or self._latest[0] != rows:
            self._latest = rows, self._columns_of(self._joint["train"].index_select(0, self._ids(rows)))
        return self._latest[1]

    def rows_of(self, places: Sequence[int], batches: Sequence[Batch]) -> Tensor:
        """Each client's rows of its own training batch, all equally long: (G, rows, width)."""
        ids = torch.stack([self._ids(batch) for batch in batches])
        joint = self._joint["train"]
        index = torch.tensor(places, device=joint.device)
        columns = joint.shape[1]
        if self._block is not None and self._block.start % self.width == 0 and columns % self.width == 0:
            pieces = columns // self.width  # per row; a client's row is one of them
            flat = ids * pieces + (self._block.start // self.width + index)[:, None]
            return joint.reshape(-1, self.width).index_select(0, flat.flatten()).view(*ids.shape, self.width)
        rows = joint[ids[:, :, None], self._index[index][:, None, :]]
        return rows if self._padding is None else rows * self._padding[index][:, None, :]

    def blocks(self, rows: Rows) -> Iterator[Tensor]:
        """``same_rows`` in pieces: what is computed of a whole split is never much larger than a piece."""
        if not isinstance(rows, str):
            yield self.same_rows(rows)
            return
        for piece in torch.split(self._joint[rows], _BLOCK):
            yield self._columns_of(piece)

    def _columns_of(self, rows: Tensor) -> Tensor:
        if self._block is not None:
            return rows[:, self._block]
        columns = rows.index_select(1, self._index.flatten())
        return columns if self._padding is None else columns * self._padding.flatten()

    def _ids(self, batch: Batch) -> Tensor:
        return batch.tensor(self._index.device)
