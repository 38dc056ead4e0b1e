"""Facts about their data that clients tell each other before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from vflsim.protocols.capabilities import Peering
from vflsim.remote.control import ControlError

Public: TypeAlias = Mapping[int, Mapping[str, float]]
"""The facts of all clients of a run, in client order."""


def checked_facts(protocol: Peering, told: Mapping[str, float]) -> Mapping[str, float]:
    """Return what a client has told. Raises ``ControlError`` unless these are the protocol's facts."""
    if told.keys() != set(protocol.facts_told):
        raise ControlError(f"the facts {sorted(told)}", allowed=f"{sorted(protocol.facts_told)}")
    return told
