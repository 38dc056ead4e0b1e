"""Clients whose process has gone in a run, and for which the server waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import partial

from vflsim.errors import IncompleteRoundError, RunError
from vflsim.protocol import party_name
from vflsim.remote.channel import GoneError
from vflsim.remote.control import Control, Introduced, Peer, Prepare
from vflsim.remote.peers import LIFE
from vflsim.worlds import Timer


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


class Restarts:
    """Has new processes prepare for the run ``announced``: what each of them is told.

    ``peers``: what clients that are connected to each other have said of themselves; empty where none are. ``tell``
    sends a client a control message, ``host_of`` gives the address that a client comes from. Invariant: of clients that
    are connected to each other one prepares at a time, so that each connects to all that are here, and none to it.
    """

    def __init__(
        self,
        announced: Prepare,
        peers: Collection[Peer],
        tell: Callable[[int, Control], None],
        host_of: Callable[[int], str],
    ) -> None:
        self._announced, self._tell, self._host_of = announced, tell, host_of
        self._peers = {each.party: each for each in peers}
        self._waiting: deque[int] = deque()
        self._lives: Counter[int] = Counter()

    def first(self, client: int) -> int:
        """Return from which number on a client's latest process numbers its messages."""
        return self._lives[client] * LIFE

    def came(self, client: int) -> None:
        """Have a new process prepare, as soon as it is its turn."""
        self._waiting.append(client)
        if not self._peers or len(self._waiting) == 1:
            self._announce(client)

    def done(self, client: int) -> None:
        """Note that a client is prepared, or has gone again."""
        if client not in self._waiting:
            return
        first = self._waiting[0] == client
        self._waiting.remove(client)
        if self._peers and first and self._waiting:
            self._announce(self._waiting[0])

    def introduced(self, client: int, said: Introduced, away: Collection[int]) -> None:
        """Tell a client that prepares of all others; ``away`` are those without a process that is ready.

        Raises ``RunError`` if it says other facts than its former process.
        """
        former = self._peers.get(client)
        if former is None or client not in self._waiting:
            raise RunError(f"client {client} sent an {said.kind!r} message in a run")
        if said.facts != former.facts:
            what = f"{party_name(client)} has come back with other data: it tells other facts"
            raise RunError(what, remedy="give its new process the data of its former one")
        self._peers[client] = former.model_copy(update={"host": self._host_of(client), "port": said.port})
        for other, peer in self._peers.items():
            if other != client:
                self._tell(client, peer.model_copy(update={"here": other not in away}))

    def _announce(self, client: int) -> None:
        self._lives[client] += 1
        self._tell(client, self._announced.model_copy(update={"again": True, "first": self.first(client)}))
