"""The network in ``run.json``: how messages shared the links, and the highest rate of each link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from pydantic import BaseModel

from vflsim.timing.capacity import AnyCapacity, capacity_profile
from vflsim.timing.link import Link
from vflsim.world.networks import AnyNetwork

Rates = tuple[tuple[int, int, float], ...]
"""(first party, last party, highest rate of their links in bit/s); unlimited links are left out."""


class NetworkFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The network of a run."""

    kind: str
    up: Rates = ()
    down: Rates = ()

    @classmethod
    def of(cls, network: AnyNetwork, links: Sequence[Link]) -> NetworkFacts:
        """Collect the facts from the links of all parties, the server's first."""
        return cls(
            kind=network.kind,
            up=_rates(_highest([link.up for link in links])),
            down=_rates(_highest([link.down for link in links])),
        )


def _highest(capacities: Sequence[AnyCapacity]) -> list[float]:
    known = {id(capacity): capacity for capacity in capacities}  # alike parties share one
    highest = {key: capacity_profile(capacity).highest for key, capacity in known.items()}
    return [highest[id(capacity)] for capacity in capacities]


def _rates(highest: Sequence[float]) -> Rates:
    found: list[tuple[int, int, float]] = []
    for rate, parties in groupby(enumerate(highest), key=lambda pair: pair[1]):
        numbers = [party for party, _ in parties]
        if rate < math.inf:
            found.append((numbers[0], numbers[-1], rate))
    return tuple(found)
