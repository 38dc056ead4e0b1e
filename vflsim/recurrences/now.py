"""How far the parties are between two acts."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.sending_order import SendingOrder
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.trail import Trail
from vflsim.timing.floats import Floats


class Now:
    """How far the clients (M,) and the server are, in seconds; and when what clients sent last arrives (M,).

    ``trail`` notes events of the world, where they are ``recorded``. ``given`` (M,) is when each client has what the
    others have sent before the first round, None where it has.
    """

    def __init__(self, clients: int, recorded: bool = False) -> None:
        self.clients: Floats = np.zeros(clients)
        self.arrives: Floats = self.clients
        self.server = 0.0
        self.given: Floats | None = None
        self.trail = Trail(clients) if recorded else None
        self.arriving: Ints | None = None
        """The events in which what clients sent last arrives (M,)."""
        self.sending = SendingOrder(clients)

    @property
    def horizon(self) -> float:
        """How far all parties are."""
        return min(float(self.clients.min()), self.server)
