"""Links and the discipline by which messages share them. Vocabulary only: the engine is in the worlds."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field

from vflsim.timing.capacity import AnyCapacity
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.latency import LatencyMatrix
from vflsim.vocabulary import Part, Shorthand, kind_from_text


@final
class Link(Part):
    """What connects a party to the network. Latency is paid first and does not occupy the link; then bandwidth."""

    up: AnyCapacity = math.inf
    """Bandwidth from the party into the network."""
    down: AnyCapacity = math.inf
    """Bandwidth from the network to the party."""
    latency: AnyDelay = Constant(value=0.0)
    """Latency of every message that passes the link; a message pays that of its sender's and of its receiver's link."""

    @property
    def limited(self) -> bool:
        """Whether its bandwidth makes anything take time."""
        return not self.up == self.down == math.inf


class Network(Part):
    """How messages share the links; a discipline is a final subclass with its own ``kind``."""

    latency: LatencyMatrix | None = None
    """A latency for every pair of parties, added to that of their links."""


@final
class Fifo(Network):
    """One message at a time per direction and party, in order, at min(sender's up, receiver's down)."""

    kind: Literal["fifo"] = "fifo"


@final
class Dedicated(Network):
    """No contention at all: every message at min(sender's up, receiver's down)."""

    kind: Literal["dedicated"] = "dedicated"


@final
class Fair(Network):
    """All messages move at once and share the up-links and down-links max–min fairly, as in network simulators."""

    kind: Literal["fair"] = "fair"


NetworkKind: TypeAlias = Fifo | Dedicated | Fair
NETWORKS: tuple[type[Part], ...] = get_args(NetworkKind)
"""Every discipline of the network."""

AnyNetwork = Annotated[
    NetworkKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fifo", "dedicated", "fair"]})
]
"""A field that takes any discipline of the network, or its kind alone."""
