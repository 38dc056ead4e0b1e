"""The strongest of several attackers: chosen on some rows, judged on others, so that the choice flatters nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from vflsim.attacks.probing import Indices

STRONGEST = "strongest"
"""What stands for a setting that the strongest attacker has chosen."""
T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One way to attack: its settings, and ``of``, which guesses from what has arrived about the rows in an order."""

    setting: Mapping[str, str]
    rows: int
    of: Callable[[Indices], T]

    @property
    def words(self) -> str:
        """Its settings, for a table: ``gradient, all, directions, kernel``."""
        return ", ".join(self.setting.values())

    @cached_property
    def guess(self) -> T:
        """What it guesses from what has really arrived."""
        return self.of(np.arange(self.rows))

    def control(self, bits: np.random.Generator) -> T:
        """Guess from what has arrived about other rows, in a random order: nothing is to be found there."""
        return self.of(bits.permutation(self.rows))


def strongest(
    attempts: Sequence[Attempt[T]], score: Callable[[Attempt[T], Indices], float], halves: tuple[Indices, Indices]
) -> Attempt[T]:
    """Return the attempt with the highest score on the first half of the rows; ties go to the first attempt.

    The other half, which nobody has chosen by, judges it. ``score`` takes an attempt and places of judged rows.

    Example::

        halves = halved(256, np.random.default_rng(0))
        best = strongest(attempts, score, halves)
        score(best, halves[1])
    """
    return max(attempts, key=lambda attempt: score(attempt, halves[0]))


def halved(rows: int, bits: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the rows that choose an attacker and those that judge it: a random half each."""
    choosing, judging = np.array_split(bits.permutation(rows), 2)
    return np.sort(choosing), np.sort(judging)
