"""The link of a party: its bandwidth and its latency."""

from __future__ import annotations

import math
from typing import final

from vflsim.timing.capacity import AnyCapacity
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.vocabulary import Part


@final
class Link(Part):
    """The connection of a party to the network. Latency is paid first and does not occupy the link; then bandwidth.

    Example: ``{up: 20 Mbps, down: 100 Mbps, latency: 5 ms}``
    """

    up: AnyCapacity = math.inf
    """Bandwidth from the party into the network."""
    down: AnyCapacity = math.inf
    """Bandwidth from the network to the party."""
    latency: AnyDelay = Constant(value=0.0)
    """Latency of every message that passes the link; a message pays that of its sender's and of its receiver's link."""

    @property
    def limited(self) -> bool:
        """Whether its bandwidth is limited, so that transfers take time."""
        return not self.up == self.down == math.inf
