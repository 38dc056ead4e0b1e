"""Outages in which clients pause: time spent down does not count for their work, and their messages stand still."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import RunError
from vflsim.recurrences.chunk import Bools, Direction
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.stages import Ints
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.timing.arrivals import ActivationProcess, Arrival
from vflsim.timing.availability import Always
from vflsim.timing.capacity import capacity_profile
from vflsim.timing.floats import Floats
from vflsim.timing.profile import Flat, Profile, gated, lowest
from vflsim.world.gate import next_activation


class Pauses:
    """When each client that has outages is up, by its place among all.

    An activity of such a client lasts as many seconds as pass until it has been up for long enough. Seconds are found
    as on the event path: the end of the activity less its beginning, to which they are added again.
    """

    def __init__(self, setting: Setting, seed: int, clients: list[int]) -> None:
        availabilities = {place: setting.timings[client].availability for place, client in enumerate(clients)}
        self.gates: dict[int, Profile] = {
            place: availability.profile(seed, clients[place])
            for place, availability in availabilities.items()
            if not isinstance(availability, Always)
        }
        server, ways = setting.timings[SERVER].link, dict[Direction, dict[int, Profile]](up={}, down={})
        for place, gate in self.gates.items():
            link = setting.timings[clients[place]].link
            ways["up"][place] = lowest(gated(capacity_profile(link.up), gate), capacity_profile(server.down))
            ways["down"][place] = lowest(capacity_profile(server.up), gated(capacity_profile(link.down), gate))
        self._ways = {
            direction: {place: way for place, way in each.items() if not isinstance(way, Flat)}
            for direction, each in ways.items()
        }
        self._clients = len(clients)

    def __bool__(self) -> bool:
        """Whether any client ever pauses."""
        return bool(self.gates)

    # --- all clients at once --------------------------------------------------------------------------------------

    def lasting(self, now: Floats, seconds: Floats, whose: Bools | None = None) -> Floats:
        """Return how long ``seconds`` (M,) of work last from ``now`` (M,) on, of those whom ``whose`` selects."""
        lasting = seconds.copy()
        for place in self.gates:
            if whose is None or whose[place]:
                lasting[place] = self.work(place, float(now[place]), float(seconds[place]))
        return lasting

    def active(self, processes: Sequence[ActivationProcess | None], now: Floats, round_: int) -> Floats:
        """Return when each client (M,) is active, and up, from ``now`` on: the waits are added as on the event path.

        Raises ``UndecidedError``, which names the round, if a client waits for ever.
        """
        times = now.copy()
        for place, process in enumerate(processes):
            if process is not None or place in self.gates:
                for wait in self.activated(place, process, float(times[place]), round_):
                    times[place] += wait
        return times

    def moving(self, direction: Direction, began: Floats, sizes: Ints, seconds: Floats) -> Floats:
        """Return how long messages of ``sizes`` (M,) move from ``began`` on: ``seconds`` where nobody pauses."""
        moving = seconds.copy()
        for place in self._ways[direction]:
            moving[place] = self.transfer(direction, place, float(began[place]), int(sizes[place]))
        return moving

    def profiles(self, direction: Direction) -> NDArray[np.object_]:
        """Return the rate of each client's messages over time (M,), None where it is constant."""
        profiles = np.full(self._clients, None)
        for place, way in self._ways[direction].items():
            profiles[place] = way
        return profiles

    # --- one client -------------------------------------------------------------------------------------------------

    def work(self, place: int, now: float, seconds: float) -> float:
        """Return how long ``seconds`` of work of the client at ``place`` last from ``now`` on."""
        return _until(self.gates[place], now, seconds) if place in self.gates else seconds

    def transfer(self, direction: Direction, place: int, began: float, size: int) -> float | None:
        """Return how long a message moves, None where nobody pauses."""
        way = self._ways[direction].get(place)
        return None if way is None else _until(way, began, 8.0 * size)

    def activated(
        self, place: int, process: ActivationProcess | None, now: float, round_: int = 0
    ) -> tuple[float, float]:
        """Return the waits of a client for its next activation from ``now`` on, and until it is up then.

        Raises ``UndecidedError``, which names the round, if none comes.
        """
        gate, wait = self.gates.get(place), 0.0
        if process is not None:
            wait = max(0.0, self.activation(place, process, now, round_).time - now)
        return wait, 0.0 if gate is None else _until(gate, now + wait, 0.0)

    def activation(self, place: int, process: ActivationProcess, now: float, round_: int) -> Arrival:
        """Return a client's next activation. Raises ``UndecidedError``, which names the round, if none comes."""
        gate = self.gates.get(place)
        found = process.next(now) if gate is None else next_activation(gate, process, now)
        if found is None:
            raise undecided("a client waits for ever for an activation", round_, now)
        return found


def _until(profile: Profile, now: float, amount: float) -> float:
    """Return the seconds until an amount is through. Raises ``UndecidedError`` if it never is."""
    try:
        end = profile.finish(now, amount)
    except RunError as error:  # of very short outages, which the event path reports
        raise undecided(error.what, 0, now) from error
    if end == math.inf:
        raise undecided("a client goes down for good", 0, now)
    return end - now
