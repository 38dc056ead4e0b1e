"""Noisy clients: Gaussian noise on the features of some clients (VIM Sec. 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from vflsim.learning.data.sources.raw import Array
from vflsim.streams import generator
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import Quantity
from vflsim.vocabulary.selections import Selection

_BLOCK = 4096  # rows drawn at a time, so that no second matrix of the whole size comes to be


class FeatureNoise(Part):
    """N(0, sd²) on every feature of the selected clients, in training, validation and test rows.

    Features are scaled before (``data.scale``), so ``sd`` is in scaled units. ``data.split_seed`` seeds the noise, so
    all runs share it.

    Example: ``{select: 1..N/2, sd: 2, replace: true}``
    """

    select: Selection
    sd: Annotated[float, Quantity(at_least=0, at_most=1e6)]
    """Standard deviation of the noise."""
    replace: bool = False
    """true: the noise takes the place of the features. false: it is added to them."""

    def put_on(self, joint: Array, columns: Mapping[int, slice], split: str, seed: int) -> None:
        """Make the features of some clients noisy, in place.

        ``joint`` holds the rows of ``split``, (rows, columns), and ``columns`` are each noisy client's. A draw is a
        function of (seed, client, split) and of its place among the client's features.
        """
        for client, own in columns.items():
            stream = generator(seed, client, f"feature_noise.{split}")
            for start in range(0, len(joint), _BLOCK):
                block = joint[start : start + _BLOCK, own]
                drawn = self.sd * stream.standard_normal(block.shape)
                block[...] = drawn if self.replace else block + drawn
