"""Common parts of attacks on recorded views: received values as numbers, known rows, intervals over rows."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vflsim.attacks.base import Attack, AttackedRun, OneOrEach
from vflsim.intervals.means import CONFIDENCE
from vflsim.results.read import Results
from vflsim.scenario.models import Scenario
from vflsim.timing.floats import Floats

Indices = NDArray[np.int64]
RESAMPLED = 500
"""Samples of a bootstrap and of a permutation test."""
FARTHEST = 5.0
"""The most standard deviations by which an input of a probe may differ from its mean."""


class AttackOfClients(Attack, ABC):
    """An attack by, or on, one client or each of them."""

    client: OneOrEach = "each"
    """The client."""

    def check(self, results: Results, scenario: Scenario) -> None:
        """Raise ``ValueError`` if the client does not exist."""
        if self.client != "each" and self.client > scenario.clients:
            raise ValueError(f"there is no client {self.client}; allowed: 1 to {scenario.clients}, or each")

    def clients(self, attacked: AttackedRun) -> list[int]:
        """Return the clients. Raises ``ValueError`` if they take no part, or are at the server."""
        models = attacked.models
        if models.protocol.traits.reference or not models.learners.clients:
            raise ValueError("no client of it is apart from the server, so nobody receives anything")
        if self.client not in ("each", *models.learners.clients):
            raise ValueError(f"client {self.client} takes no part")
        return list(models.learners.clients) if self.client == "each" else [self.client]


def numbers(values: Tensor) -> Floats:
    """Return received rows as real numbers, (rows, inputs), float64.

    An integer, such as an element of a field or one modulo 2^b, becomes the number and each of its bits: a probe need
    not know what it stands for.
    """
    flat = values.flatten(1).contiguous()
    real: Floats = flat.double().numpy()
    if flat.dtype.is_floating_point:
        return real
    return np.concatenate([real, np.unpackbits(flat.numpy().view(np.uint8), axis=1)], axis=1)


def scaled(x: Floats, known: Indices) -> Floats:
    """Return columns with mean 0 and standard deviation 1 over the ``known`` rows; constant ones, and NaN, are 0.

    What lies more than ``FARTHEST`` deviations out counts as that far: gradients of a few rows are hundreds of times as
    long as those of most, and a linear probe would predict as much more of them.
    """
    seen = np.ma.masked_invalid(x) if np.isnan(x).any() else x
    centred, spread = seen - seen[known].mean(0), seen[known].std(0)
    if isinstance(centred, np.ma.MaskedArray):
        centred, spread = centred.filled(0), np.ma.filled(spread, 0)
    found: Floats = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    return np.clip(found, -FARTHEST, FARTHEST)


def spread_of(score: Callable[[Indices], float], rows: int, bits: np.random.Generator) -> tuple[float, float]:
    """Return a 95 % interval of a score over resampled rows (percentile bootstrap)."""
    return _middle([score(bits.integers(rows, size=rows)) for _ in range(RESAMPLED)])


def by_chance(score: Callable[[Indices], float], rows: int, bits: np.random.Generator) -> tuple[float, float]:
    """Return the interval that holds a score in 95 % of random orders of the rows' truth (permutation test)."""
    return _middle([score(bits.permutation(rows)) for _ in range(RESAMPLED)])


def _middle(found: list[float]) -> tuple[float, float]:
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
