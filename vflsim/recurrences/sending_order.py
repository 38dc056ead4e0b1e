"""In which order messages are sent at one instant, where they queue: that of the events that send them."""

from __future__ import annotations

import math

import numpy as np

from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats


class SendingOrder:
    """The order in which messages of the clients (M,), and of the server to them, join a queue.

    Of two events at one instant, the one comes first whose cause, the end of what a client did before, came first.
    What a client does begins with the arrival of the server's message, which is dealt with as its instant ends.
    """

    def __init__(self, clients: int) -> None:
        self.server: Ints = np.arange(clients)
        """The places of the clients in the order in which the server sends to them."""
        self._heard = self.server.copy()  # the place of each client's message in the server's latest queue
        self._since: list[Floats] = [np.zeros(clients)]
        """When clients began, or have heard from the server, and the ends of what they have done since."""

    def note(self, times: Floats) -> None:
        """Note when an activity of each client ends (M,)."""
        self._since.append(times.copy())

    def of_server(self, entered: Floats) -> Ints:
        """Return the places of the clients in the order in which messages to them enter their link (M,)."""
        order: Ints = self.server[np.argsort(entered[self.server], kind="stable")]
        self._heard[order] = np.arange(len(order))
        self._since.clear()
        return order

    def of_clients(self, entered: Floats) -> Ints:
        """Return the places of the clients in the order in which their messages enter the server's link (M,)."""
        order = np.argsort(entered, kind="stable")
        times = entered[order]
        if (times[1:] == times[:-1]).any():
            causes = [self.causes(place, time) for place, time in enumerate(entered.tolist())]
            order = np.array(sorted(range(len(causes)), key=causes.__getitem__))
        return order

    def causes(self, place: int, time: float) -> list[float]:
        """Return the times of a client's latest events, from ``time`` back to the arrival of the server's message."""
        causes = [time]
        for times in reversed(self._since):
            if times[place] != causes[-1]:
                causes.append(float(times[place]))
        return [*causes, math.inf, float(self._heard[place])]
