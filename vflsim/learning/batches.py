"""Mini-batches: a seeded sequence of rows that every party derives for itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.training import Training
from vflsim.streams import SHARED, generator
from vflsim.vocabulary.on_demand import Tensor, torch

Split = Literal["train", "validation", "test"]
"""Rows to train on, to choose by, or to judge by. Example: ``learner.features("test")``."""

_REMEMBERED = 4
"""Epochs kept at hand: parties out of step are mostly within a few epochs of each other."""


@dataclass(frozen=True)
class Batch:
    """Mini-batch number ``index`` (from 0, across epochs) of a sequence.

    ``ids`` are row numbers of the training split, (b,) of int64, read-only. ``origin`` is the client whose own
    sequence it belongs to, or SHARED. Two batches are equal if they have the same place in the same sequence.

    Example::

        batch = Batch(index=3, ids=np.array([4, 1, 7]))
        len(batch)  # 3
        batch == Batch(index=3, ids=np.array([4, 1, 7]), origin=2)  # False
    """

    index: int
    ids: NDArray[np.int64] = field(compare=False, repr=False)
    origin: int = SHARED

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.ids)

    def tensor(self, device: torch.device | None = None) -> Tensor:
        """Return ``ids`` as a tensor on ``device``, (b,) of int64: one for all callers, not to be changed."""
        known: dict[torch.device | None, Tensor] = self.__dict__.setdefault("_tensors", {})
        if device not in known:
            known[device] = torch.tensor(self.ids, device=device)
        return known[device]


def row_numbers(batches: Sequence[Batch], device: torch.device) -> Tensor:
    """Return the rows of equally long batches, (G, b) of int64; they go to another device in one copy."""
    if device.type == "cpu":
        return torch.stack([batch.tensor(device) for batch in batches])
    return torch.tensor(np.stack([batch.ids for batch in batches]), device=device)


class BatchSequence:
    """The endless sequence of mini-batches over ``rows`` training rows: epoch after epoch, each a new permutation.

    With ``sampling: uniform`` every batch is a new sample of the rows without replacement; as many make an epoch, and
    all are full. The batches of an epoch are a function of (seed, origin, epoch) alone, ``origin`` being SHARED for
    ``batches: shared`` and ``party`` (a client's number) for ``batches: own``. So any batch can be had at any time.
    Raises ValueError for a batch larger than the training rows.

    Example::

        sequence = BatchSequence(setting.data.rows, setting.training, seed=0, party=1)
        sequence.batch(5) == sequence.batch(5)  # True
        sequence.length(5) == len(sequence.batch(5))  # True
    """

    def __init__(self, rows: int, training: Training, seed: int, party: int) -> None:
        if rows < 1:
            raise ValueError(f"batches need at least one row, not {rows}")
        self.rows = rows
        self.size = training.batch_of(rows)
        self.seed = seed
        self.origin = party if training.batches == "own" else SHARED
        self.uniform = training.sampling == "uniform"
        full, rest = divmod(rows, self.size)
        rest = rest if training.last_batch == "keep" else 0
        self._last = rest if rest and not self.uniform else self.size
        self.per_epoch = full + (rest > 0)
        self._epochs: OrderedDict[int, tuple[Batch, ...]] = OrderedDict()
        self._latest: Batch | None = None

    @property
    def smallest(self) -> int:
        """The number of rows in the smallest batch. Batch normalisation needs at least 2 (``models.least_batch``)."""
        return self._last

    def length(self, k: int) -> int:
        """Return the number of rows in batch ``k``, without drawing it."""
        return self._last if k % self.per_epoch == self.per_epoch - 1 else self.size

    def sizes(self) -> tuple[Batch, ...]:
        """Return a batch of each size. What operations on a batch and messages cost depends on its size alone."""
        return self.batch(0), self.batch(self.per_epoch - 1)

    def sizes_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each number of a batch the place of its size in ``sizes``."""
        places: NDArray[np.int64] = (numbers % self.per_epoch == self.per_epoch - 1).astype(np.int64)
        return places

    def batch(self, k: int) -> Batch:
        """Return batch ``k`` = 0, 1, …; equal arguments give equal batches, in any order."""
        latest = self._latest
        if latest is not None and latest.index == k:  # mostly: parties in step ask for the same
            return latest
        if k < 0:
            raise ValueError(f"batches are numbered from 0, not {k}")
        epoch, place = divmod(k, self.per_epoch)
        batches = self._epochs.get(epoch)
        if batches is None:
            batches = self._cut(epoch)
        self._epochs.move_to_end(epoch)
        self._latest = batches[place]
        return self._latest

    def _cut(self, epoch: int) -> tuple[Batch, ...]:
        first, size, permutation = epoch * self.per_epoch, self.size, self._drawn(epoch)
        permutation.setflags(write=False)
        batches = tuple(
            Batch(first + place, permutation[place * size : place * size + self.length(place)], self.origin)
            for place in range(self.per_epoch)
        )
        self._epochs[epoch] = batches
        if len(self._epochs) > _REMEMBERED:
            self._epochs.popitem(last=False)
        return batches

    def _drawn(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of all batches of an epoch, one after the other, and perhaps rows that it leaves out."""
        if self.uniform:
            rng = generator(self.seed, self.origin, f"batches.uniform/{epoch}")
            samples = [rng.choice(self.rows, self.size, replace=False) for _ in range(self.per_epoch)]
            return np.concatenate(samples).astype(np.int64, copy=False)
        permutation = generator(self.seed, self.origin, f"batches/{epoch}").permutation(self.rows)
        return permutation.astype(np.int64, copy=False)
