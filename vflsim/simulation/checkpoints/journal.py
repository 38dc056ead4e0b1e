"""Pack the journal of an executor (losses and scores) into one tensor and a description of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor

Entry: TypeAlias = float | dict[str, float]
Runs: TypeAlias = list[tuple[int, list[str] | None]]
"""Numbers of consecutive entries with the same names; None for bare numbers."""


def packed(journal: Sequence[Entry]) -> tuple[Runs, Tensor]:
    """Return the description of the entries, and their numbers (n,) in float64."""
    runs: Runs = []
    numbers: list[float] = []
    for names, some in groupby(journal, key=_names):
        entries = list(some)
        runs.append((len(entries), None if names is None else list(names)))
        for entry in entries:
            numbers.extend(entry.values() if isinstance(entry, dict) else (entry,))
    return runs, torch.tensor(numbers, dtype=torch.float64)


def unpacked(runs: Runs, numbers: Tensor) -> list[Entry]:
    """Restore the entries."""
    left = iter(numbers.tolist())
    journal: list[Entry] = []
    for count, names in runs:
        for _ in range(count):
            journal.append(next(left) if names is None else {name: next(left) for name in names})
    return journal


def _names(entry: Entry) -> tuple[str, ...] | None:
    return tuple(entry) if isinstance(entry, dict) else None
