"""Links and the discipline by which messages share them. Vocabulary only: the engine is in the worlds."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field

from vflsim.timing.delays import AnyDelay, Constant
from vflsim.vocabulary import BitsPerSecond, Part, Shorthand, kind_from_text


@final
class Link(Part):
    """What connects a party to the network. Latency is paid first and does not occupy the link; then bandwidth."""

    up: BitsPerSecond = math.inf
    """Bandwidth from the party into the network."""
    down: BitsPerSecond = math.inf
    """Bandwidth from the network to the party."""
    latency: AnyDelay = Constant(value=0.0)
    """Latency of every message that passes the link; a message pays that of its sender's and of its receiver's link."""


@final
class Fifo(Part):
    """One message at a time per direction and party, in order, at min(sender's up, receiver's down)."""

    kind: Literal["fifo"] = "fifo"


@final
class Dedicated(Part):
    """No contention at all: every message at min(sender's up, receiver's down)."""

    kind: Literal["dedicated"] = "dedicated"


NetworkKind: TypeAlias = Fifo | Dedicated
NETWORKS: tuple[type[Part], ...] = get_args(NetworkKind)
"""Every discipline of the network."""

AnyNetwork = Annotated[
    NetworkKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["fifo", "dedicated"]})
]
"""A field that takes any discipline of the network, or its kind alone."""
