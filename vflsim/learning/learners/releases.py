"""The release of an embedding to other parties: bounded, noisy, counted, and blinded."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.learners.blinding import Blinder
from vflsim.learning.privacy.releases import OneRelease, Releases, Rows


class Release:
    """One release of bounded embeddings of ``rows``: ``releases`` adds noise and counts it; None leaves them alone.

    A ``blinder`` then blinds those of a batch.

    The noise takes its place in the party's sequence at the first call of ``begin``, or of the release itself.
    ``commit`` counts the release when the party has computed the embeddings in virtual time.
    """

    __slots__ = ("_blinder", "_kind", "_present", "_releases", "_rows", "_through")

    def __init__(
        self, releases: Releases | None, kind: str, rows: Batch | Rows, blinder: Blinder | None = None
    ) -> None:
        self._releases, self._kind, self._rows, self._blinder = releases, kind, rows, blinder
        self._present: Tensor | None = None
        self._through: OneRelease | None = None

    def of_those(self, present: Tensor | None) -> Release:
        """Put zeros in the place of rows that are not ``present``, (rows of the split, 1) of bool; None: all are."""
        self._present = present
        return self

    @property
    def plain(self) -> bool:
        """Whether embeddings are released as they are."""
        return self._releases is None and self._blinder is None and self._present is None

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of what others see; None for that of the embeddings."""
        return None if self._blinder is None else self._blinder.group.uploaded

    def flops(self, elements: int) -> float:
        """Count what a release of so many elements costs beside the embedding: the masks."""
        return 0.0 if self._blinder is None else self._blinder.flops(elements)

    def begin(self) -> None:
        """Take the next noise: the party begins to compute the embeddings."""
        if self._releases is not None and self._through is None:
            if isinstance(self._rows, Batch):
                batch = self._rows
                self._through = self._releases.begin(self._kind, batch.ids, (batch.origin, batch.index))
            else:
                self._through = self._releases.begin(self._kind, self._rows)

    def commit(self) -> None:
        """Count the release: the party has computed the embeddings."""
        self.begin()
        if self._through is not None:
            self._through.commit()

    def __call__(self, h: Tensor) -> Tensor:
        """Release ``h``, (rows, width), detached. Raises ``BudgetError`` and ``BlindingError``."""
        self.begin()
        h = h.detach() if self._through is None else self._through(h)
        if self._present is not None:
            rows = self._rows.tensor(h.device) if isinstance(self._rows, Batch) else self._rows
            h = h.masked_fill(~self._present[rows], 0.0)
        if self._blinder is None:
            return h
        assert isinstance(self._rows, Batch), "only embeddings of a batch are blinded"
        return self._blinder.blinded(self._kind, self._rows, h)


AS_THEY_ARE = Release(None, "", slice(None))
"""The release of embeddings that others see as they are: it remembers nothing, so one serves all."""
