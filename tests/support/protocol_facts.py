"""What ``run.json`` copies from a protocol's class, for results that tests write by hand."""

from __future__ import annotations

from typing import Any

from vflsim.protocols import PROTOCOLS

COPIED = ("waits_for_all", "rounds_correspond", "awaited_replies")


def protocol_facts(kind: str) -> dict[str, Any]:
    """The facts of the protocol of this kind."""
    (protocol,) = (each for each in PROTOCOLS if each.model_fields["kind"].default == kind)
    return {name: getattr(protocol.traits, name) for name in COPIED} | {"reference": protocol.traits.reference}
