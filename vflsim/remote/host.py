"""The server's process, as a run sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel
from vflsim.remote.own_data import OwnData
from vflsim.scenario.models import Scenario


class Host(Protocol):
    """What a run asks of the server's process."""

    scenario: Scenario
    data: OwnData
    loop: asyncio.AbstractEventLoop
    admission: Admission
    timeout: float
    returns: bool

    @property
    def connected(self) -> Mapping[int, Channel]:
        """The connections to all clients, by their numbers."""
