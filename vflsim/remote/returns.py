"""Clients whose process has gone in a run, and for which the server waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vflsim.errors import IncompleteRoundError
from vflsim.remote.channel import GoneError
from vflsim.streams import party_name
from vflsim.world.clock import Timer


class Returns:
    """Waits ``timeout`` seconds for each client that is away, then hands an error that names it to ``give_up``.

    ``call_later`` makes a call after seconds of real time, ``present`` gives the round in progress.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        timeout: float,
        present: Callable[[], int],
        give_up: Callable[[IncompleteRoundError], None],
    ) -> None:
        self._call_later, self._timeout, self._present, self._give_up = call_later, timeout, present, give_up
        self._waiting: dict[int, Timer] = {}

    def wait_for(self, client: int, error: GoneError) -> None:
        """Begin to wait for a client, unless it is waited for already: its new process may be gone, too."""
        if client not in self._waiting:
            self._waiting[client] = self._call_later(self._timeout, partial(self._end, client, error))

    def __contains__(self, client: int) -> bool:
        return client in self._waiting

    def here(self, client: int) -> None:
        """Wait for a client no longer: it is here."""
        self._waiting.pop(client).cancel()

    def close(self) -> None:
        """Wait for nobody."""
        while self._waiting:
            self.here(next(iter(self._waiting)))

    def _end(self, client: int, error: GoneError) -> None:
        del self._waiting[client]
        name = party_name(client)
        self._give_up(
            IncompleteRoundError(
                f"round {self._present()} cannot be completed: {error.what}, and {name} has not come back within "
                f"{self._timeout:g} s",
                remedy=f"start its process again in time: vflsim party … --party {client}, with the same --parts",
            )
        )
