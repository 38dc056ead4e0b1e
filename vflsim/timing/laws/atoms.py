"""The discrete part of a law: the values that have a probability of their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vflsim.errors import TooLargeError
from vflsim.timing.floats import Floats, floats

MAX_ATOMS = 2**21


class Atoms(NamedTuple):
    """Values in ascending order, and the probability of each."""

    values: Floats
    masses: Floats

    @classmethod
    def none(cls) -> Atoms:
        """Give the discrete part of a law that has none."""
        return cls(np.empty(0), np.empty(0))

    @classmethod
    def at(cls, value: float) -> Atoms:
        """Give the law of a constant."""
        return cls(np.array([value]), np.ones(1))

    @classmethod
    def merged(cls, values: Floats, masses: Floats) -> Atoms:
        """Sort values, and join equal ones."""
        unique, where = np.unique(values, return_inverse=True)
        return cls(unique, np.bincount(where.ravel(), masses, len(unique)).astype(np.float64))

    def lumped(self, most: int) -> Atoms:
        """Join neighbours into at most ``most`` groups of about equal mass, each at its mean."""
        if len(self.values) <= most:
            return self
        before = np.cumsum(self.masses) - self.masses / 2
        group = np.minimum((before * (most / self.mass)).astype(np.int64), most - 1)
        masses = np.bincount(group, self.masses, most)
        sums = np.bincount(group, self.masses * self.values, most)
        return Atoms(floats(sums[masses > 0] / masses[masses > 0]), floats(masses[masses > 0]))

    @property
    def mass(self) -> float:
        """The probability of all atoms together."""
        return float(self.masses.sum())

    def weighed(self, weight: float) -> Atoms:
        """Give the same values with masses that are multiplied by ``weight``."""
        return Atoms(self.values, self.masses * weight) if weight > 0 else Atoms.none()

    def plus(self, other: Atoms) -> Atoms:
        """Give the law of the sum. Raises TooLargeError for more than ``MAX_ATOMS`` combinations."""
        if len(self.values) * len(other.values) > MAX_ATOMS:
            raise TooLargeError(
                f"a sum of {len(self.values):,} by {len(other.values):,} observed values is too large for its exact "
                "distribution",
                "",
                f"{MAX_ATOMS:,} combinations",
            )
        return Atoms.merged(
            np.add.outer(self.values, other.values).ravel(), np.multiply.outer(self.masses, other.masses).ravel()
        )

    def cdf(self, x: ArrayLike) -> Floats:
        """Give P(X ≤ x), elementwise."""
        heights = np.concatenate([[0.0], np.cumsum(self.masses)])
        heights[-1] = self.masses.sum()
        np.minimum(heights, 1.0, out=heights)  # sums of rounded masses may exceed 1 by a few units of the last place
        return heights[np.searchsorted(self.values, floats(x), side="right")]

    def survival(self, x: ArrayLike) -> Floats:
        """Give P(X > x), elementwise; small ones precisely."""
        above = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)
        return above[np.searchsorted(self.values, floats(x), side="right")]
