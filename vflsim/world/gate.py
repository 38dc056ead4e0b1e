"""Pauses: what outages that are ``resumed`` do to the times of a party."""

from __future__ import annotations

import math

from vflsim.timing.arrivals import ActivationProcess, Arrival
from vflsim.timing.profile import Profile
from vflsim.world.kernel import World


class Gate:
    """Pauses a party in outages that are ``resumed``: time spent down does not count."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world, self._profile = world, profile

    async def lasting(self, seconds: float, about: str) -> float:
        """Return how long ``seconds`` of being up last from now on; wait for ever if they never pass."""
        now = self._world.now()
        end = self._profile.finish(now, seconds)
        if end == math.inf:
            await self._world.signal(f"{about}, but it is down for good")
        return end - now

    async def up(self) -> None:
        """Wait until the party is up."""
        await self._world.pause(await self.lasting(0.0, "its activation"), "coming up again")

    def next(self, process: ActivationProcess, now: float) -> Arrival | None:
        """Return the next activation, None if no more will come. A party that is down counts as busy."""
        return next_activation(self._profile, process, now)


def next_activation(profile: Profile, process: ActivationProcess, now: float) -> Arrival | None:
    """Return the next activation of a party that is up where ``profile`` is above 0, None if no more will come."""
    activation = process.next(now)
    while activation is not None and not process.queue:
        up = profile.finish(activation.time, 0.0)
        if up == activation.time:
            break
        activation = process.next(math.nextafter(up, 0.0)) if up < math.inf else None
    return activation
