"""How far the parties are between two acts."""

from __future__ import annotations

import numpy as np

from vflsim.timing.base import Floats


class Now:
    """How far the clients (M,) and the server are, in seconds; and when what clients sent last arrives (M,).

    ``given`` (M,) is when each client has what the others have sent before the first round, None where it has.
    """

    def __init__(self, clients: int) -> None:
        self.clients: Floats = np.zeros(clients)
        self.arrives: Floats = self.clients
        self.server = 0.0
        self.given: Floats | None = None
