"""The base of protocols whose server waits for all clients in every round."""

from __future__ import annotations

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import Finding
from vflsim.analysis.rounds import synchronous
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import Analysable
from vflsim.setting import Setting


class WaitsForAll(Analysable, Protocol):
    """Rounds that end when the slowest client's message, or the last of its trips, has been dealt with."""

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the law of a round with one trip: the longest of the clients' cycles, plus a server step."""
        return synchronous(Cycles(self, setting))
